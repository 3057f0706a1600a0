/** Prometheus metrics: every request by protocol and route, and Node's runtime (contract section 11). */
import type { FastifyInstance } from 'fastify'
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from 'prom-client'

/** Upper bounds of the buckets for request durations. */
const DURATION_BOUNDS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export type Metrics = {
  readonly registry: Registry
  /** Counts one request of any protocol; `route` is a pattern or packet name, never a path with ids. */
  countRequest(protocol: string, route: string, outcome: string, durationSeconds: number): void
  /** A number that is read when the metrics are asked for. */
  gauge(name: string, help: string, read: () => number): void
  counter(name: string, help: string, labelNames?: readonly string[]): Counter
}

export function createMetrics(): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const requests = new Counter({
    name: 'skein_requests_total',
    help: 'Requests by protocol, route and outcome',
    labelNames: ['protocol', 'route', 'outcome'],
    registers,
  })
  const durations = new Histogram({
    name: 'skein_request_duration_seconds',
    help: 'Time from the request to its answer',
    labelNames: ['protocol', 'route'],
    buckets: DURATION_BOUNDS_SECONDS,
    registers,
  })
  return {
    registry,
    countRequest(protocol, route, outcome, durationSeconds) {
      requests.inc({ protocol, route, outcome })
      durations.observe({ protocol, route }, durationSeconds)
    },
    gauge(name, help, read) {
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read())
        },
      })
    },
    counter: (name, help, labelNames = []) => new Counter({ name, help, labelNames: [...labelNames], registers }),
  }
}

/** Counts every HTTP request under its route pattern; unknown paths count together. */
export function registerRequestMetrics(app: FastifyInstance, metrics: Metrics): void {
  app.addHook('onResponse', (request, reply, done) => {
    const route = `${request.method} ${request.routeOptions.url ?? 'unknown'}`
    metrics.countRequest('http', route, String(reply.statusCode), reply.elapsedTime / 1000)
    done()
  })
}
