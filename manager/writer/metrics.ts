/** Runs: how they end, how many wait, and how long they wait for a worker. */
import type { CommitObserver, Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, histogram, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { FAILURE_REASONS } from '../model/run.ts'
import type { RunEnding } from '../model/run.ts'
import { MAX_QUEUED_RUNS } from '../model/limits.ts'
import { measureRunQueue } from '../store/run-queue.ts'

const DISPATCH_BOUNDS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60, 300, 3600]
const BATCH_BOUNDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

export const RUN_METRICS = defineMetrics('Runs', {
  ended: counter(
    'skein_runs_total',
    'Runs that ended',
    {
      state: 'completed, failed, stopped or skipped',
      reason: `why it failed: ${FAILURE_REASONS.join(', ')}; otherwise none`,
    },
    [
      { state: 'completed', reason: 'none' },
      { state: 'stopped', reason: 'none' },
      ...FAILURE_REASONS.map((reason) => ({ state: 'failed', reason })),
    ],
  ),
  duration: histogram('skein_run_duration_seconds', 'Time that the guest ran', {
    labels: { state: 'completed, failed or stopped' },
    bounds: DISPATCH_BOUNDS_SECONDS,
  }),
  requeued: counter(
    'skein_run_requeues_total',
    'Attempts that ended without ending their run, which waits again',
    { reason: 'a reason of skein_runs_total, or rejected, not_delivered or ended' },
    [...FAILURE_REASONS, 'rejected', 'not_delivered', 'ended'].map((reason) => ({ reason })),
  ),
  dispatch: histogram(
    'skein_run_dispatch_duration_seconds',
    'Time from the start of a run to its first assignment to a worker',
    { labels: { path: 'direct (a slot was free) or queued' }, bounds: DISPATCH_BOUNDS_SECONDS },
  ),
  queued: gauge('skein_run_queue_runs', 'Runs that wait for a worker', { aggregator: 'max' }),
  queuedLimit: gauge(
    'skein_run_queue_limit_runs',
    'Runs that may wait for a worker; further starts of the domains that fill it are refused',
    {
      aggregator: 'max',
    },
  ),
  oldest: gauge('skein_run_queue_oldest_age_seconds', 'Age of the oldest run that waits for a worker; 0: none waits', {
    aggregator: 'max',
  }),
  pending: gauge('skein_run_writer_pending_changes', 'Changes of runs that wait for their commit'),
  batch: histogram('skein_run_writer_batch_changes', 'Changes of runs in a transaction', { bounds: BATCH_BOUNDS }),
  commit: histogram(
    'skein_run_writer_commit_duration_seconds',
    'Time from the begin of a batch of changes to its commit',
  ),
  refused: counter('skein_run_writer_refusals_total', 'Changes of runs that were refused because too many wait'),
})

export const WRITER_OBSERVER: CommitObserver = {
  batch(items, durationMs) {
    RUN_METRICS.batch.observe({}, items)
    RUN_METRICS.commit.observe({}, durationMs / 1000)
  },
  full: () => RUN_METRICS.refused.add({}),
  // The queue of the writer has no deadline.
  late: () => undefined,
}

const STATE_NAMES = new Map<number, string>(Object.entries(TASK_STATE).map(([name, state]) => [state, name]))

export function countEnd({ state, reason, durationMs }: RunEnding): void {
  const name = STATE_NAMES.get(state) ?? 'unknown'
  RUN_METRICS.ended.add({ state: name, reason: reason ?? 'none' })
  if (durationMs !== null) RUN_METRICS.duration.observe({ state: name }, durationMs / 1000)
}

/** The queue as the database has it, of all managers together. */
export function runQueueGauges(database: Database): GaugeSource {
  const { queued, queuedLimit, oldest } = RUN_METRICS
  return {
    name: 'runs',
    gauges: [queued, queuedLimit, oldest],
    async read() {
      const { waiting, oldestSeconds } = await measureRunQueue(database, MAX_QUEUED_RUNS)
      return [
        ...gaugeValue(queued, waiting),
        ...gaugeValue(queuedLimit, MAX_QUEUED_RUNS),
        ...gaugeValue(oldest, oldestSeconds),
      ]
    },
  }
}
