/** Every interval of the manager, so that tests can run the same rules twenty times faster. */

export type ManagerTiming = {
  /** Heartbeat interval of up to 500 workers, in milliseconds. */
  heartbeatIntervalMs: number
  /** Shortest lease, in milliseconds; a longer interval stretches it to four intervals. */
  minLeaseMs: number
  /** Interval of sweeps for passed deadlines, queues of other managers and dead workers. */
  sweepIntervalMs: number
  /** Interval of lease writes. */
  leaseWriteIntervalMs: number
  /** An assigned run is checked when its timeout and this margin have passed. */
  runCheckMarginMs: number
  /** A queued run without a matching worker is checked again after this, then with backoff. */
  placementCheckMs: number
  /** A stop without a confirmation by then is forced. */
  stopDeadlineMs: number
  /** Polling interval for the end of a run that another manager's worker holds. */
  foreignRunPollMs: number
  /** A run that was sent to its worker before it was recorded is recorded as started after this. */
  recordAfterMs: number
  /** Polling interval for messages that start runs, while messages are queued. */
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
  recordAfterMs: 50,
  messageIntervalMs: 100,
}

/** Number of workers up to which the interval is shortest; beyond, it grows by 1 s for each 100 workers. */
const FEW_WORKERS = 500
const WORKERS_PER_BEAT_AND_SECOND = 100
const MAX_STRETCH = 3

/**
 * The heartbeat interval for this number of workers (task-manager.md section 3, rule 3): 5 s up to 500, then N/100 s up
 * to 15 s.
 */
export function heartbeatIntervalMs(timing: ManagerTiming, workers: number): number {
  const stretch = workers <= FEW_WORKERS ? 1 : Math.min(workers / WORKERS_PER_BEAT_AND_SECOND / 5, MAX_STRETCH)
  return Math.round(timing.heartbeatIntervalMs * stretch)
}

/** max(20 s, 4 x interval). */
export function leaseMs(timing: ManagerTiming, intervalMs: number): number {
  return Math.max(timing.minLeaseMs, 4 * intervalMs)
}
