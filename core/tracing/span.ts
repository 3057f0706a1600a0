/**
 * Spans of distributed traces. A span's place in its trace travels as text, in the form of the `traceparent` header
 * (W3C Trace Context, section 3.2): through headers, messages, queues and the protocol of workers.
 *
 * Without a span source every function here returns at once and no trace context is stored or sent.
 */

export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>

export type SpanOptions = {
  /** `server` and `client`: a request and its answer. `producer` and `consumer`: a message that is read later. Default: `internal`. */
  kind?: 'server' | 'client' | 'producer' | 'consumer' | 'internal'
  /** `traceparent` of the parent. A value in another form is ignored, as the recommendation requires: the span begins a new trace. */
  parent?: string | undefined
  /** Names of OpenTelemetry's semantic conventions where they exist. Undefined values are left out. */
  attributes?: SpanAttributes
}

export type Span = {
  /** `traceparent` for what this span causes; undefined while tracing is off. */
  readonly traceparent: string | undefined
  setAttributes(attributes: SpanAttributes): void
  /** Marks the span as failed, with the message of the error. */
  fail(error: unknown): void
  /** Ends the span. Later calls have no effect. */
  end(): void
}

export type SpanSource = { startSpan(name: string, options: SpanOptions): Span }

const NO_SPAN: Span = {
  traceparent: undefined,
  setAttributes: () => undefined,
  fail: () => undefined,
  end: () => undefined,
}

let source: SpanSource | undefined

/** Sets where spans of this process go; undefined turns tracing off. There is one source per process, as in OpenTelemetry's API. */
export function setSpanSource(next: SpanSource | undefined): void {
  source = next
}

export function isTracing(): boolean {
  return source !== undefined
}

/** Starts a span. The caller must end it. The name is one of few: ids belong into attributes. */
export function startSpan(name: string, options: SpanOptions = {}): Span {
  return source === undefined ? NO_SPAN : source.startSpan(name, options)
}

/** Runs the work within a span, which fails when the work rejects. */
export async function withSpan<T>(name: string, options: SpanOptions, work: (span: Span) => Promise<T>): Promise<T> {
  if (source === undefined) return await work(NO_SPAN)
  const span = source.startSpan(name, options)
  try {
    return await work(span)
  } catch (error) {
    span.fail(error)
    throw error
  } finally {
    span.end()
  }
}
