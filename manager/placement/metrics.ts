/**
 * Workers as this manager sees them. A worker has no listener: its measurements arrive with its heartbeats, and is
 * summed up here over the workers whose sessions this manager holds. `skein workers view` and `npm run worker -- status` say
 * which worker it is.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { counter, defineMetrics, gauge } from '#core/metrics/index.ts'
import type { GaugeMetric } from '#core/metrics/index.ts'
import type { Cluster } from './cluster.ts'
import type { WorkerSession } from './worker-session.ts'

/** Reasons that a worker may name; another one is counted as `other`. */
const KILL_REASONS = new Set(['memory', 'stuck', 'start', 'compile', 'fault', 'crash'])

export const WORKER_METRICS = defineMetrics('Workers', {
  workers: gauge('skein_workers', 'Workers whose session this manager holds', {
    labels: { state: 'connected, suspect (two heartbeats are missing) or draining' },
  }),
  slots: gauge('skein_worker_slots', 'Slots of these workers'),
  usedSlots: gauge('skein_worker_slots_used', 'Slots that have a run'),
  held: gauge('skein_worker_runs', 'Runs that these workers hold, those included that wait for a slot'),
  leaseLosses: counter('skein_worker_lease_losses_total', 'Workers whose lease ended; their runs were given to others'),
  resident: gauge('skein_worker_resident_bytes', 'Resident memory of workers and their runner processes'),
  runners: gauge('skein_worker_runner_processes', 'Runner processes'),
  spooled: gauge('skein_worker_spool_results', 'Results that wait for their acknowledgement'),
  spooledBytes: gauge('skein_worker_spool_bytes', 'Size of these results'),
  oldestSpooled: gauge(
    'skein_worker_spool_oldest_age_seconds',
    'Age of the oldest of these results; 0: there is none',
    {
      aggregator: 'max',
    },
  ),
  modules: gauge('skein_worker_modules', 'Modules in the caches of workers'),
  moduleBytes: gauge('skein_worker_module_cache_bytes', 'Size of these modules'),
  moduleHits: counter('skein_worker_module_hits_total', 'Runs whose module was in the cache of the worker'),
  moduleFetches: counter('skein_worker_module_fetches_total', 'Modules that workers fetched'),
  moduleFetchFailures: counter('skein_worker_module_fetch_failures_total', 'Modules that workers could not fetch'),
  kills: counter(
    'skein_worker_runner_kills_total',
    'Runner processes that ended otherwise than they were meant to',
    { reason: `${[...KILL_REASONS].join(', ')} or other` },
    [...KILL_REASONS].map((reason) => ({ reason })),
  ),
})

/** What a worker says of itself with a heartbeat; totals count from the start of its process. */
export type WorkerMeasured = {
  residentBytes: number
  runners: number
  spooledResults: number
  spooledBytes: number
  oldestSpooledMs: number
  cachedModules: number
  cachedBytes: number
  moduleHits: number
  moduleFetches: number
  moduleFetchFailures: number
  kills: ReadonlyMap<string, number>
}

type Totals = Pick<WorkerMeasured, 'moduleHits' | 'moduleFetches' | 'moduleFetchFailures' | 'kills'>

/** Workers whose last totals are remembered over their sessions. */
const MAX_CACHED_WORKERS = 10_000

export class WorkerMeasurements {
  readonly #last = new BoundedCache<number, Totals>({ maxEntries: MAX_CACHED_WORKERS })
  readonly #sources: readonly (() => void)[]

  constructor(cluster: Cluster) {
    const each = (metric: GaugeMetric, read: (session: WorkerSession) => number | undefined) =>
      metric.from(() =>
        [...cluster.sessions].flatMap((session) => {
          const value = read(session)
          return value === undefined ? [] : [{ labels: {}, value }]
        }),
      )
    const { workers } = WORKER_METRICS
    this.#sources = [
      workers.from(() => ['connected', 'suspect', 'draining'].map((state) => ({ labels: { state }, value: 0 }))),
      workers.from(() => [...cluster.sessions].map((session) => ({ labels: { state: stateOf(session) }, value: 1 }))),
      // 0 where no worker is connected, so that an alert rule can distinguish this from a manager that does not respond.
      WORKER_METRICS.slots.fromValue(() => 0),
      WORKER_METRICS.usedSlots.fromValue(() => 0),
      each(WORKER_METRICS.slots, ({ slots }) => slots),
      each(WORKER_METRICS.usedSlots, ({ slots, held }) => Math.min(slots, held)),
      each(WORKER_METRICS.held, ({ held }) => held),
      each(WORKER_METRICS.resident, ({ measured }) => measured?.residentBytes),
      each(WORKER_METRICS.runners, ({ measured }) => measured?.runners),
      each(WORKER_METRICS.spooled, ({ measured }) => measured?.spooledResults),
      each(WORKER_METRICS.spooledBytes, ({ measured }) => measured?.spooledBytes),
      each(WORKER_METRICS.oldestSpooled, ({ measured }) =>
        measured === undefined ? undefined : measured.oldestSpooledMs / 1000,
      ),
      each(WORKER_METRICS.modules, ({ measured }) => measured?.cachedModules),
      each(WORKER_METRICS.moduleBytes, ({ measured }) => measured?.cachedBytes),
    ]
  }

  /** Takes what came with a heartbeat: gauges show it, counters grow by what is new since the last one of this worker. */
  record(session: WorkerSession, measured: WorkerMeasured): void {
    session.measured = measured
    const last = this.#last.get(session.key)
    this.#last.set(session.key, measured)
    // If the worker was connected before this manager began, only what happens from now on is known to be new.
    if (last === undefined) return
    const { moduleHits, moduleFetches, moduleFetchFailures, kills } = WORKER_METRICS
    moduleHits.add({}, growth(measured.moduleHits, last.moduleHits))
    moduleFetches.add({}, growth(measured.moduleFetches, last.moduleFetches))
    moduleFetchFailures.add({}, growth(measured.moduleFetchFailures, last.moduleFetchFailures))
    for (const [name, count] of measured.kills) {
      const reason = KILL_REASONS.has(name) ? name : 'other'
      kills.add({ reason }, growth(count, last.kills.get(name) ?? 0))
    }
  }

  stop(): void {
    for (const remove of this.#sources) remove()
  }
}

/** A total that became smaller was reset by a restart of its worker. */
function growth(now: number, before: number): number {
  return now >= before ? now - before : now
}

function stateOf({ isSuspect, isDraining }: WorkerSession): string {
  if (isSuspect) return 'suspect'
  return isDraining ? 'draining' : 'connected'
}
