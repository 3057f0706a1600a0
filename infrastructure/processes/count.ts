/** How many processes share the ports of one machine. */
import type { Logger } from '#core/logging/index.ts'
import { MAX_PROCESSES } from './settings.ts'

export type HostCapacity = { cores: number; platform: NodeJS.Platform }

/** With fewer cores, one process is used: PostgreSQL and the other parts require a core of their own. */
const MIN_CORES = 4
/** PostgreSQL takes about as much processor time as the processes that use it. */
const CORES_PER_PROCESS = 2

/** `auto` is half of the cores. Several processes can share a port only on Linux; other systems run one. */
export function processCount(asked: number | 'auto', { cores, platform }: HostCapacity, logger: Logger): number {
  const fitting = cores < MIN_CORES ? 1 : Math.min(MAX_PROCESSES, Math.floor(cores / CORES_PER_PROCESS))
  const count = asked === 'auto' ? fitting : asked
  if (count === 1 || platform === 'linux') return count
  logger.info(`starting one process: only Linux lets several share a port (SKEIN_API_PROCESSES=${asked})`)
  return 1
}

/** Connections of the pools of all processes together. */
const POOLED_CONNECTIONS = 32
const MAX_POOL = 16

/** The size of the pool of each of `count` processes. */
export function poolSizeOf(count: number): number {
  return Math.min(MAX_POOL, Math.floor(POOLED_CONNECTIONS / count))
}
