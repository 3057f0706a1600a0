/** A span for each HTTP request, as OpenTelemetry's semantic conventions name it. The caller's `traceparent` is its parent. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { PROTOCOL_STATUS, kindOf } from '#core/errors/index.ts'
import { isTracing, startSpan, traceIdOf } from '#core/tracing/index.ts'
import type { Span } from '#core/tracing/index.ts'

/** Probes and scrapes are frequent and have no effects, so they get no spans. */
const UNTRACED = new Set(['/health', '/ready', '/metrics'])

const spans = new WeakMap<object, Span>()

/** `traceparent` for what this request causes; undefined while tracing is off. */
export function traceparentOf(request: FastifyRequest): string | undefined {
  return spans.get(request.raw)?.traceparent
}

/** Begins the span of the request, if one is recorded. */
export function beginTrace(request: FastifyRequest): void {
  if (!isTracing()) return
  const route = request.facts.url
  if (UNTRACED.has(route ?? '')) return
  const { traceparent } = request.headers
  const span = startSpan(route === undefined ? request.method : `${request.method} ${route}`, {
    kind: 'server',
    parent: typeof traceparent === 'string' ? traceparent : undefined,
    attributes: {
      'http.request.method': request.method,
      'http.route': route,
      'network.protocol.version': request.raw.httpVersion,
      'client.address': request.server.callerAddress(request.raw),
      'skein.request_id': request.id,
    },
  })
  spans.set(request.raw, span)
  // Log lines of this request contain the trace id.
  request.log = request.log.child({ trace_id: traceIdOf(span.traceparent) })
}

/** The request was answered. */
export function endTrace(request: FastifyRequest, reply: FastifyReply): void {
  const span = spans.get(request.raw)
  span?.setAttributes({ 'http.response.status_code': reply.statusCode })
  span?.end()
}

export function registerFailedTraces(app: FastifyInstance): void {
  app.addHook('onError', (request, _reply, error, done) => {
    if (PROTOCOL_STATUS[kindOf(error)].http >= 500) spans.get(request.raw)?.fail(error)
    done()
  })
}
