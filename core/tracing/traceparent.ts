/** The `traceparent` header (W3C Trace Context, section 3.2). */

export type SpanPlace = { traceId: string; spanId: string; flags: number }

const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
/** Longer values are refused before they are matched. */
const MAX_CHARS = 256
const NO_TRACE = '0'.repeat(32)
const NO_SPAN = '0'.repeat(16)

/** Undefined for a value that receivers must ignore (W3C Trace Context). */
export function parseTraceparent(text: string | undefined): SpanPlace | undefined {
  if (text === undefined || text.length > MAX_CHARS) return undefined
  const [, version = '', traceId = '', spanId = '', flags = '', rest] = FORM.exec(text) ?? []
  if (version === '' || version === 'ff' || (version === '00' && rest !== undefined)) return undefined
  if (traceId === NO_TRACE || spanId === NO_SPAN) return undefined
  return { traceId, spanId, flags: Number.parseInt(flags, 16) }
}

export function formatTraceparent({ traceId, spanId, flags }: SpanPlace): string {
  return `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, '0')}`
}

/** Returns the trace id for log lines. Undefined: there is no trace. */
export function traceIdOf(traceparent: string | undefined): string | undefined {
  return parseTraceparent(traceparent)?.traceId
}
