/** `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date. */

/** How long to wait, in milliseconds from `nowMs`; undefined when the header is absent or neither form. */
export function retryAfterMs(header: string | undefined, nowMs: number): number | undefined {
  if (header === undefined) return undefined
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1000
  const date = Date.parse(header)
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs)
}
