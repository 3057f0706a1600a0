/** One call of a function of a guest: made from an assignment once, and passed on as it is to where the guest runs. */
import type { Json } from '#core/wasm/index.ts'

export type Call = {
  /** Empty: the task's name, else `_start`, `run`, `main`, else the only exported function. */
  functionName: string
  taskName: string
  inputs: Json[]
  /** Without argv[0], which is the task's name. */
  args: string[]
  env: Record<string, string>
  /** The message that started the run; empty: none. */
  stdin: string
  memoryLimitBytes: number
  /** Bound of each of stdout and stderr. */
  maxOutputBytes: number
}
