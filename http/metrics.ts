/** Metrics of requests, of whatever protocol (contract section 11). */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { counter, createRegistry, defineMetrics, histogram } from '#core/metrics/index.ts'
import type { MetricSet, Registry } from '#core/metrics/index.ts'

const PROTOCOL = 'http, mqtt or coap'
const ROUTE = 'pattern of the route or name of the packet, never a path with ids'

export const REQUEST_METRICS = defineMetrics('Requests', {
  requests: counter('skein_requests_total', 'Requests that were answered', {
    protocol: PROTOCOL,
    route: ROUTE,
    outcome: 'status of HTTP, code of CoAP, stored for MQTT',
  }),
  duration: histogram('skein_request_duration_seconds', 'Time from the request to its answer', {
    labels: { protocol: PROTOCOL, route: ROUTE },
  }),
})

export type Metrics = {
  readonly registry: Registry
  /** Counts one request of any protocol; `route` is a pattern or packet name, never a path with ids. */
  countRequest(protocol: string, route: string, outcome: string, durationSeconds: number): void
}

/** Creates the metrics that a process shows: requests, Node's runtime, and the sets of its program. `process`: see `createRegistry`. */
export function createMetrics(sets: readonly MetricSet[] = [], process?: string): Metrics {
  return {
    registry: createRegistry([REQUEST_METRICS.set, ...sets], process),
    countRequest(protocol, route, outcome, durationSeconds) {
      REQUEST_METRICS.requests.add({ protocol, route, outcome })
      REQUEST_METRICS.duration.observe({ protocol, route }, durationSeconds)
    },
  }
}

/**
 * Counts every HTTP request under its route pattern; unknown paths share one. A request that was passed on is counted by the process
 * that answers it.
 */
export function countAnswered(request: FastifyRequest, reply: FastifyReply, metrics: Metrics): void {
  const { facts, method } = request
  if (facts.config.isForwarded === true) return
  metrics.countRequest(
    'http',
    `${method} ${facts.url ?? 'unknown'}`,
    String(reply.statusCode),
    reply.elapsedTime / 1000,
  )
}
