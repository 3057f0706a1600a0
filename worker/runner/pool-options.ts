/** Options of a pool of runners. */
import type { Logger } from '#core/logging/index.ts'
import type { Isolation } from '../isolation/index.ts'
import type { MemoryShares } from '../identity/memory.ts'

export type RunnerPoolOptions = {
  /** Concurrent calls, over all runners. */
  slots: number
  /** Runner processes per domain, normally one per core. */
  runners: number
  isolation: Isolation
  /** Folder of the runners' code from `stageRunnerCode`. */
  codeFolder: string
  maxModuleBytes: number
  allowGc: boolean
  logger: Logger
  /** The memory of a worker that limits it; undefined: only slots limit runs. Then no runner waits unused. */
  memory?: MemoryShares | undefined
  /** Memory of a runner besides the limits of its guests. */
  overheadBytes?: number
  /** A runner without runs is retired after this. */
  idleMs?: number
}
