/** Prometheus metrics: every request by protocol and route, and Node's runtime (contract section 11). */
import type { FastifyInstance } from 'fastify'
import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client'
import type { Metric } from 'prom-client'
import { createRequestTotals } from './request-totals.ts'

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
  const totals = createRequestTotals()
  // A registry takes anything with a name that it can read; its types know the library's own classes alone.
  for (const metric of totals.metrics) registry.registerMetric(metric as unknown as Metric)
  return {
    registry,
    countRequest: totals.count,
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
  /** Made once, because a text that is put together anew must be hashed anew. */
  const names = new Map<string, Map<string, string>>()
  const nameOf = (method: string, url: string) => {
    let methods = names.get(url)
    if (methods === undefined) names.set(url, (methods = new Map()))
    let name = methods.get(method)
    if (name === undefined) methods.set(method, (name = `${method} ${url}`))
    return name
  }
  app.addHook('onResponse', (request, reply, done) => {
    const route = nameOf(request.method, request.routeOptions.url ?? 'unknown')
    metrics.countRequest('http', route, String(reply.statusCode), reply.elapsedTime / 1000)
    done()
  })
}
