/** Every interval of the manager in one place, so that tests can run the same rules twenty times faster. */

export type ManagerTiming = {
  /** Between two heartbeats of a worker while there are few of them, in milliseconds. */
  heartbeatIntervalMs: number
  /** Shortest lease, in milliseconds; a longer interval stretches it to four intervals. */
  minLeaseMs: number
  /** Between two looks at rows whose deadline passed, at queues of other managers and at dead workers. */
  sweepIntervalMs: number
  /** Between two writes of the workers' signs of life. */
  leaseWriteIntervalMs: number
  /** An assigned run is looked at again when its timeout and this have passed. */
  runCheckMarginMs: number
  /** A queued run that nobody can place is looked at again after this, then with backoff. */
  placementCheckMs: number
  /** A stop that the worker did not confirm by then is forced. */
  stopDeadlineMs: number
  /** Whether a run that another manager's worker holds has ended is asked this often. */
  foreignRunPollMs: number
  /** Between two looks for messages that start runs, while some wait. */
  messageIntervalMs: number
}

export const DEFAULT_TIMING: ManagerTiming = {
  heartbeatIntervalMs: 5_000,
  minLeaseMs: 20_000,
  sweepIntervalMs: 1_000,
  leaseWriteIntervalMs: 1_000,
  runCheckMarginMs: 60_000,
  placementCheckMs: 30_000,
  stopDeadlineMs: 5_000,
  foreignRunPollMs: 250,
  messageIntervalMs: 100,
}

/** Workers up to which the interval stays at its shortest; beyond, it grows by 1 s for each 100 workers. */
const FEW_WORKERS = 500
const WORKERS_PER_BEAT_AND_SECOND = 100
const MAX_STRETCH = 3

/** The interval for so many workers (task-manager.md section 3, rule 3): 5 s up to 500, then N/100 s up to 15 s. */
export function heartbeatIntervalMs(timing: ManagerTiming, workers: number): number {
  const stretch = workers <= FEW_WORKERS ? 1 : Math.min(workers / WORKERS_PER_BEAT_AND_SECOND / 5, MAX_STRETCH)
  return Math.round(timing.heartbeatIntervalMs * stretch)
}

/** max(20 s, 4 x interval). */
export function leaseMs(timing: ManagerTiming, intervalMs: number): number {
  return Math.max(timing.minLeaseMs, 4 * intervalMs)
}
