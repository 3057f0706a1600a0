/** Times in fields of forms, in the time zone of the browser. Pure. */

export const BROWSER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone

const MINUTE_MS = 60_000

/** As a field of the type `datetime-local` shows it; empty for what is no time. */
export function localTextOf(at: Date): string {
  if (Number.isNaN(at.getTime())) return ''
  return new Date(at.getTime() - at.getTimezoneOffset() * MINUTE_MS).toISOString().slice(0, 19)
}

/** RFC 3339; empty for an empty field. What is no time stays as it is, so that the server says so. */
export function instantOf(local: string): string {
  const text = local.trim()
  if (text === '') return ''
  const at = new Date(text)
  return Number.isNaN(at.getTime()) ? text : at.toISOString()
}
