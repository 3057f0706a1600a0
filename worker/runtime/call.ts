/** One call of a guest function: created from an assignment, and passed unchanged to the thread of the guest. */
import type { TextOrBytes } from '#core/bytes/index.ts'
import type { Json } from '#core/wasm/index.ts'

export type Call = {
  /** Empty: the task's name, else `_start`, `run`, `main`, else the only exported function. */
  functionName: string
  taskName: string
  inputs: Json[]
  /** Without argv[0], which is the task's name. */
  args: string[]
  env: Record<string, string>
  /** Standard input: the message that triggered the run, or what its caller gave; empty: none. */
  stdin: TextOrBytes
  /** Lists of `u8` in the result are `{"base64": …}` instead of arrays. */
  bytesAsBase64: boolean
  memoryLimitBytes: number
  /** Size limit of each of stdout and stderr. */
  maxOutputBytes: number
}
