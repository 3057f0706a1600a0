/** One call of a guest function, passed unchanged to the thread of the guest. */
import type { TextOrBytes } from '#core/bytes/index.ts'
import type { Json } from '../wasm/index.ts'

export type Call = {
  /** Empty: the program's name, else `_start`, `run`, `main`, else the only exported function. */
  functionName: string
  /** The first argument of a program. */
  programName: string
  inputs: Json[]
  /** The arguments without argv[0], which is the program's name. */
  args: string[]
  env: Record<string, string>
  /** Empty: none. */
  stdin: TextOrBytes
  /** Lists of `u8` in the result are `{"base64": …}` instead of arrays. */
  bytesAsBase64: boolean
  memoryLimitBytes: number
  /** Size limit of each of stdout and stderr. */
  maxOutputBytes: number
}
