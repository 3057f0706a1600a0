/** The table of every metric, for people: docs/metrics.md. */
import { API_METRICS } from '#api/index.ts'
import { INFRASTRUCTURE_METRICS } from '#infrastructure/index.ts'
import { REQUEST_METRICS } from '#http/index.ts'
import { PROCESS_SET } from '#core/metrics/index.ts'
import type { MetricDeclaration, MetricSet } from '#core/metrics/index.ts'
import { PROCESS_METRICS } from '#infrastructure/processes/index.ts'
import { MANAGER_METRICS } from '#manager/index.ts'
import { PROXY_METRICS } from '#proxy/index.ts'

const EVERYWHERE = [PROCESS_SET, REQUEST_METRICS.set]

/** npm script -> what it shows at `/metrics`; a test compares it with what each program answers. */
export const PROGRAM_METRICS: Readonly<Record<string, readonly MetricSet[]>> = {
  start: [
    ...EVERYWHERE,
    ...INFRASTRUCTURE_METRICS,
    PROCESS_METRICS.set,
    ...API_METRICS,
    ...MANAGER_METRICS,
    ...PROXY_METRICS,
  ],
  api: [...EVERYWHERE, ...INFRASTRUCTURE_METRICS, PROCESS_METRICS.set, ...API_METRICS],
  manager: [...EVERYWHERE, ...INFRASTRUCTURE_METRICS, ...MANAGER_METRICS],
  proxy: [...EVERYWHERE, ...PROXY_METRICS],
}

export function declarationsOf(sets: readonly MetricSet[]): MetricDeclaration[] {
  return [...new Set(sets)].flatMap(({ metrics }) => Object.values(metrics).map(({ declaration }) => declaration))
}

export function renderMetrics(): string {
  const sets = new Set(Object.values(PROGRAM_METRICS).flat())
  return [
    '# Metrics',
    '',
    'Every program answers `GET /metrics` on each of its HTTP ports in the text format of Prometheus. A worker has no port: its',
    'measurements come with its heartbeats, and the task manager shows them as `skein_worker_…`.',
    '[Monitor an installation](guides/monitor.md) says how to use them.',
    '',
    'Units are those of Prometheus: seconds, bytes, and counts of what the name says. Values of labels come from fixed lists: no',
    'label holds the id or name of a domain, client, channel, user, task or worker. **Several processes** says how the values of',
    'several processes become one: `sum` for what each process has, `max` for what every process reads of the same database or',
    'disk. `npm start` runs all programs in one process, which shows the same metrics on every port: scrape one of them. With',
    '`SKEIN_API_PROCESSES` every port shows the metrics of all processes, with the label `process`.',
    '',
    'A gauge that is read from a database or a disk is read every 10 seconds in the background, some every 60 seconds. A value',
    'that could not be read for 45 seconds disappears (270 seconds for the latter), and `skein_collector_age_seconds` grows.',
    'Metrics that begin with `process_` and `nodejs_` come from [prom-client](https://github.com/siimon/prom-client).',
    '',
    'Written by `npm run generate`; a metric is declared in the `metrics.ts` of its folder.',
    '',
    ...[...sets].flatMap((set) => [
      `## ${set.subject}`,
      '',
      `Shown by ${programsOf(set)}.`,
      '',
      '| Metric | Type | Several processes | Meaning | Labels |',
      '|---|---|---|---|---|',
      ...declarationsOf([set]).map(row),
      '',
    ]),
  ].join('\n')
}

function programsOf(set: MetricSet): string {
  return Object.entries(PROGRAM_METRICS)
    .filter(([, sets]) => sets.includes(set))
    .map(([program]) => `\`npm ${program === 'start' ? 'start' : `run ${program}`}\``)
    .join(', ')
}

function row({ name, type, help, labels, aggregator }: MetricDeclaration): string {
  const shown = Object.entries(labels).map(([label, values]) => `\`${label}\`: ${values}`)
  return `| \`${name}\` | ${type} | ${aggregator} | ${help} | ${shown.join('; ')} |`
}
