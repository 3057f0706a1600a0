/** How the memory of a worker is divided (SKEIN_WORKER_MEMORY, decision 0144). */
const MIB = 1024 * 1024
/** The worker itself: 46 MiB were measured. */
const WORKER_BYTES = 64 * MIB
/** A runner with one thread and without a run: 23 MiB were measured. */
export const RUNNER_BYTES = 32 * MIB
/** The smallest memory that managers count for a run (manager/model/needs.ts). */
const SMALLEST_RUN_BYTES = 64 * MIB
/** The least memory with which a worker can run something. */
export const MIN_WORKER_MEMORY_BYTES = WORKER_BYTES + RUNNER_BYTES + SMALLEST_RUN_BYTES
/** A limited worker keeps modules of this share of its memory in a runner, whose code takes four times as much. */
const LOADED_SHARE = 1 / 64

/** The parts of a worker's memory. */
export type MemoryShares = {
  /** Of all runners with their runs. */
  runnersBytes: number
  /** Of runs at once. */
  runsBytes: number
  /** Runs of the smallest size at once. */
  slots: number
  /** Of modules that a runner keeps loaded. */
  loadedBytes: number
}

export function shareMemory(workerBytes: number): MemoryShares {
  const runsBytes = workerBytes - WORKER_BYTES - RUNNER_BYTES
  return {
    runnersBytes: workerBytes - WORKER_BYTES,
    runsBytes,
    slots: Math.max(Math.floor(runsBytes / SMALLEST_RUN_BYTES), 1),
    loadedBytes: Math.floor(workerBytes * LOADED_SHARE),
  }
}
