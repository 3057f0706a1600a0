/**
 * How many requests there were and how long they took. The client library looks its labels up at every observation,
 * once for every request; here they are looked up when the metrics are read.
 */
/** Upper bounds of the histogram. */
const BOUNDS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

type Value = { metricName: string; labels: Record<string, string | number>; value: number }
/** A metric as a registry prints it. */
type Printable = { name: string; help: string; type: 'counter' | 'histogram'; aggregator: 'sum'; values: Value[] }

type RouteTotals = {
  outcomes: Map<string, number>
  /** Requests up to each bound and above the one before it; the last number is of those above all bounds. */
  buckets: number[]
  sumSeconds: number
}

export type RequestTotals = {
  count(protocol: string, route: string, outcome: string, durationSeconds: number): void
  /** `skein_requests_total` and `skein_request_duration_seconds`, in the form in which a registry asks for them. */
  readonly metrics: readonly { name: string; get(): Promise<Printable> }[]
}

export function createRequestTotals(): RequestTotals {
  const protocols = new Map<string, Map<string, RouteTotals>>()

  function totalsOf(protocol: string, route: string): RouteTotals {
    let routes = protocols.get(protocol)
    if (routes === undefined) protocols.set(protocol, (routes = new Map()))
    let totals = routes.get(route)
    if (totals === undefined) {
      totals = {
        outcomes: new Map(),
        buckets: Array.from({ length: BOUNDS_SECONDS.length + 1 }, () => 0),
        sumSeconds: 0,
      }
      routes.set(route, totals)
    }
    return totals
  }

  const each = (valuesOf: (labels: { protocol: string; route: string }, totals: RouteTotals) => Value[]) =>
    [...protocols].flatMap(([protocol, routes]) =>
      [...routes].flatMap(([route, totals]) => valuesOf({ protocol, route }, totals)),
    )

  return {
    count(protocol, route, outcome, durationSeconds) {
      const totals = totalsOf(protocol, route)
      totals.outcomes.set(outcome, (totals.outcomes.get(outcome) ?? 0) + 1)
      let bucket = 0
      while (bucket < BOUNDS_SECONDS.length && durationSeconds > (BOUNDS_SECONDS[bucket] as number)) bucket += 1
      totals.buckets[bucket] = (totals.buckets[bucket] ?? 0) + 1
      totals.sumSeconds += durationSeconds
    },
    metrics: [
      metric('skein_requests_total', 'Requests by protocol, route and outcome', 'counter', () =>
        each((labels, { outcomes }) =>
          [...outcomes].map(([outcome, value]) => ({
            metricName: 'skein_requests_total',
            labels: { ...labels, outcome },
            value,
          })),
        ),
      ),
      metric('skein_request_duration_seconds', 'Time from the request to its answer', 'histogram', () =>
        each(durations),
      ),
    ],
  }
}

function durations(labels: { protocol: string; route: string }, { buckets, sumSeconds }: RouteTotals): Value[] {
  const name = 'skein_request_duration_seconds'
  let count = 0
  const bounded = buckets.map((inBucket, index) => {
    count += inBucket
    const le = BOUNDS_SECONDS[index] ?? '+Inf'
    return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: count }
  })
  return [
    ...bounded,
    { metricName: `${name}_sum`, labels, value: sumSeconds },
    { metricName: `${name}_count`, labels, value: count },
  ]
}

function metric(name: string, help: string, type: Printable['type'], read: () => Value[]) {
  return { name, get: () => Promise.resolve<Printable>({ name, help, type, aggregator: 'sum', values: read() }) }
}
