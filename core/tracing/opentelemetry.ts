/**
 * Spans go to an OpenTelemetry collector (OTLP over HTTP, protobuf), in batches. The packages are loaded when tracing
 * starts and at no other time: they cost 40 MiB and a fifth of a second.
 */
import type { SpanKind as OtelSpanKind } from '@opentelemetry/api'
import type { Sampler } from '@opentelemetry/sdk-trace'
import { kindOf, presentError } from '../errors/index.ts'
import type { TracingConfig } from './settings.ts'
import type { Span, SpanAttributes, SpanOptions, SpanSource } from './span.ts'
import { setSpanSource } from './span.ts'
import { formatTraceparent, parseTraceparent } from './traceparent.ts'

/** Spans that wait to be sent; beyond it new ones are dropped, so a collector that is away costs no memory. */
const MAX_QUEUED_SPANS = 8_192
const MAX_EXPORTED_SPANS = 512
const EXPORT_INTERVAL_MS = 1_000
const EXPORT_DEADLINE_MS = 5_000
/** Attributes come from callers in part. */
const MAX_ATTRIBUTE_CHARS = 256

/** Starts tracing for this process. `stop` sends what waits, within the deadline of an export. */
export async function startTracing(
  config: TracingConfig,
  { service, version, instance }: { service: string; version: string; instance: string },
): Promise<{ stop(): Promise<void> }> {
  const [api, sdk, { OTLPTraceExporter }, { resourceFromAttributes }] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-proto'),
    import('@opentelemetry/resources'),
  ])

  function samplerOf(): Sampler {
    const { sampler, samplerRatio } = config
    const roots = {
      always_on: new sdk.AlwaysOnSampler(),
      always_off: new sdk.AlwaysOffSampler(),
      traceidratio: new sdk.TraceIdRatioBasedSampler(samplerRatio),
    }
    const [, parentBased, root] = /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(sampler) ?? []
    const chosen = roots[root as keyof typeof roots]
    return parentBased === undefined ? chosen : new sdk.ParentBasedSampler({ root: chosen })
  }

  const exporter = new OTLPTraceExporter({
    url: `${config.endpoint}/v1/traces`,
    timeoutMillis: EXPORT_DEADLINE_MS,
    ...(config.headers === undefined ? {} : { headers: parseHeaders(config.headers.reveal()) }),
  })
  const provider = new sdk.TracerProvider({
    resource: resourceFromAttributes({
      'service.name': service,
      'service.namespace': 'skein',
      'service.version': version,
      'service.instance.id': instance,
    }),
    sampler: samplerOf(),
    spanLimits: { attributeValueLengthLimit: MAX_ATTRIBUTE_CHARS },
    spanProcessors: [
      new sdk.BatchSpanProcessor({
        exporter,
        maxQueueSize: MAX_QUEUED_SPANS,
        maxExportBatchSize: MAX_EXPORTED_SPANS,
        scheduledDelayMillis: EXPORT_INTERVAL_MS,
        exportTimeoutMillis: EXPORT_DEADLINE_MS,
      }),
    ],
  })
  const tracer = provider.getTracer('skein', version)
  const kinds: Record<NonNullable<SpanOptions['kind']>, OtelSpanKind> = {
    internal: api.SpanKind.INTERNAL,
    server: api.SpanKind.SERVER,
    client: api.SpanKind.CLIENT,
    producer: api.SpanKind.PRODUCER,
    consumer: api.SpanKind.CONSUMER,
  }

  const source: SpanSource = {
    startSpan(name, { kind = 'internal', parent, attributes = {} }): Span {
      const place = parseTraceparent(parent)
      const context =
        place === undefined
          ? api.ROOT_CONTEXT
          : api.trace.setSpanContext(api.ROOT_CONTEXT, {
              traceId: place.traceId,
              spanId: place.spanId,
              traceFlags: place.flags,
              isRemote: true,
            })
      const span = tracer.startSpan(name, { kind: kinds[kind], attributes: present(attributes) }, context)
      const { traceId, spanId, traceFlags } = span.spanContext()
      return {
        traceparent: formatTraceparent({ traceId, spanId, flags: traceFlags }),
        setAttributes: (more) => void span.setAttributes(present(more)),
        fail(error) {
          // The error is shown as a caller would see it: an unexpected error may quote rows.
          span.setAttribute('error.type', kindOf(error))
          span.setStatus({ code: api.SpanStatusCode.ERROR, message: presentError(error).message })
        },
        end: () => span.end(),
      }
    },
  }
  setSpanSource(source)
  return {
    async stop() {
      setSpanSource(undefined)
      await provider.shutdown()
    },
  }
}

function present(attributes: SpanAttributes): Record<string, string | number | boolean> {
  const entries = Object.entries(attributes).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as Record<string, string | number | boolean>
}

/** `name=value,name=value`, values percent-encoded, as OpenTelemetry's specification has it. */
function parseHeaders(text: string): Record<string, string> {
  const pairs = text.split(',').flatMap((pair) => {
    const at = pair.indexOf('=')
    return at < 1 ? [] : [[pair.slice(0, at).trim(), decoded(pair.slice(at + 1).trim())] as const]
  })
  return Object.fromEntries(pairs)
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    return value
  }
}
