/** What a pool of runners is told of its machine and its bounds. */
import type { Logger } from '#core/logging/index.ts'
import type { Isolation } from '../isolation/index.ts'

export type RunnerPoolOptions = {
  /** Calls under way at a time, over all runners. */
  slots: number
  /** Runner processes that one domain may have, normally one per core. */
  runners: number
  isolation: Isolation
  /** Folder of the runners' code, as `stageRunnerCode` laid it out. */
  codeFolder: string
  maxModuleBytes: number
  allowGc: boolean
  logger: Logger
  /** What a runner may use beside the memory limits of its guests. */
  overheadBytes?: number
  /** A runner without work leaves after this. */
  idleMs?: number
}
