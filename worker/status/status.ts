/** The status of a worker for display, available without a manager. It contains no secrets. */
import type { ReadinessReport } from '#core/readiness/index.ts'

export type WorkerStatus = {
  id: string | null
  name: string
  version: string
  pid: number
  manager: string
  /** connected: a session is established. */
  state: 'connected' | 'disconnected' | 'draining'
  readiness: ReadinessReport
  /** Milliseconds until its runs are stopped; 0: the lease has expired, null: it never had one. */
  lease_ms: number | null
  slots: number
  runs: { run_id: string; task: string; running: boolean; held_ms: number; on_lost_wait: boolean }[]
  finished_total: number
  /** Unacknowledged results on disk. */
  spooled_results: number
  cached_modules: number
  runners: { pid: number; resident_bytes: number; under_way: number }[]
  resident_bytes: number
  /** SKEIN_WORKER_MEMORY; null: not limited. */
  memory_limit_bytes: number | null
  /** Isolation level of its guests: namespace, uid or process. */
  isolation: string
  /** It accepts no tasks of domains, because the isolation level is too weak for its machine. */
  platform_only: boolean
  /** Expiry of its certificate; null: it has none. */
  certificate_ends_at: string | null
}

/** Limit of listed runs; the rest is counted. */
const MAX_LISTED_RUNS = 20

export function renderStatus(status: WorkerStatus): string {
  const mib = (bytes: number) => `${Math.round(bytes / 1024 / 1024)} MiB`
  const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`
  const lease =
    status.lease_ms === null ? 'none yet' : status.lease_ms === 0 ? 'expired' : `${seconds(status.lease_ms)} left`
  const running = status.runs.filter((run) => run.running).length
  const rows: [string, string][] = [
    [
      'Worker',
      `${status.name}  ${status.id ?? 'not registered yet'}  (process ${status.pid}, Skein ${status.version})`,
    ],
    ['Ready', renderReadiness(status.readiness)],
    ['Manager', `${status.manager}  ${status.state}, lease ${lease}`],
    [
      'Runs',
      `${running} running, ${status.runs.length - running} waiting, ${status.slots} slots, ${status.finished_total} ended`,
    ],
    ['Unsent', `${status.spooled_results} results on disk`],
    ['Modules', `${status.cached_modules} cached`],
    [
      'Memory',
      `${mib(status.resident_bytes)}, runners ${status.runners.map(({ resident_bytes }) => mib(resident_bytes)).join(', ') || 'none'}${status.memory_limit_bytes === null ? '' : `; SKEIN_WORKER_MEMORY is ${mib(status.memory_limit_bytes)}`}`,
    ],
    [
      'Isolation',
      `${status.isolation}${status.platform_only ? '; accepts no tasks of domains (SKEIN_WORKER_ISOLATION)' : ''}`,
    ],
    ['Certificate', status.certificate_ends_at === null ? 'none' : `until ${status.certificate_ends_at}`],
  ]
  const listed = status.runs.slice(0, MAX_LISTED_RUNS).map((run): [string, string] => {
    const wait = run.on_lost_wait ? ', continues without a lease' : ''
    return ['', `${run.run_id}  ${run.task}  ${run.running ? 'running' : 'waiting'} for ${seconds(run.held_ms)}${wait}`]
  })
  return [...rows, ...listed].map(([name, text]) => `${name.padEnd(12)} ${text}\n`).join('')
}

function renderReadiness({ status, checks }: ReadinessReport): string {
  const lacks = Object.entries(checks).flatMap(([name, { reason, since }]) =>
    reason === undefined ? [] : [`${name}: ${reason} (since ${since})`],
  )
  return lacks.length === 0 ? 'yes' : `${status === 'unavailable' ? 'no' : status}  ${lacks.join('; ')}`
}
