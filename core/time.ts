/** Timestamps in the API, durations in settings, and clocks. No other file formats a timestamp. */
import { ServiceError, refusedField } from './errors/index.ts'

/** The zero time of the specification: "never updated". Stored as NULL, and formatted only here. */
export const ZERO_TIME = '0001-01-01T00:00:00Z'

/** Milliseconds of a monotonic clock: for deadlines, leases and measurements, never for timestamps. */
export function monotonicMs(): number {
  return performance.now()
}

/**
 * RFC 3339 in UTC with microseconds (contract section 0). `undefined` and `null` are the zero time.
 * A Date carries milliseconds; text from PostgreSQL (`timestamptz` as text in UTC) keeps its microseconds.
 */
export function formatTime(value: Date | string | null | undefined): string {
  if (value === null || value === undefined) return ZERO_TIME
  if (typeof value === 'string') return formatDatabaseTime(value)
  return value.toISOString().replace(/(\.\d{3})Z$/, '$1000Z')
}

/** `2026-11-21 01:02:03.456789+00` → `2026-11-21T01:02:03.456789Z`; the fraction is padded to six digits. */
function formatDatabaseTime(text: string): string {
  const match = /^(\d{4,}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00(?::?00)?|Z)$/.exec(text)
  if (match === null) throw new Error(`not a UTC timestamp of the database: ${text}`)
  const [, day, clock, fraction = ''] = match
  return `${day}T${clock}.${fraction.padEnd(6, '0')}Z`
}

/** RFC 3339 section 5.6; the offset is required. */
const INSTANT = /^(\d{4}-\d\d-(\d\d))T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/i

/**
 * A time of RFC 3339 in UTC, with its fraction, as PostgreSQL takes it. JavaScript takes the 30th of February and offsets that PostgreSQL refuses.
 * Throws `malformed` naming `path` for anything else, and for a time outside the years 1 to 9999.
 */
export function parseInstant(text: string, path: string): string {
  const [, day = '', number, clock = '', fraction = '0', offset = ''] = INSTANT.exec(text) ?? []
  const at = new Date(`${day}T${clock}${offset.toUpperCase()}`)
  const dayBegins = new Date(`${day}T00:00:00Z`)
  const isReal = Number.isFinite(at.getTime()) && Number(number) === dayBegins.getUTCDate()
  const utc = isReal ? at.toISOString() : ''
  if (!/^\d{4}-/.test(utc) || utc.startsWith('0000'))
    throw refusedField(path, 'must be a time in RFC 3339, such as 2026-01-01T00:00:00Z')
  return `${utc.slice(0, 19)}.${fraction}Z`
}

const UNIT_MS: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
}

/** The pattern of `parseDurationMs`, for documents; the parser accepts the signs for microseconds too. */
export const DURATION_PATTERN = String.raw`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`

/**
 * Parses a Go duration (`90s`, `1h30m`, `250ms`) to milliseconds, as the clients of this platform family write them.
 * Throws `malformed` naming `path` for anything else, a negative one included: `/ttl` in a body, `ttl` elsewhere.
 */
export function parseDurationMs(text: string, path = 'duration'): number {
  const refuse = () => refusedField(path, 'must be a duration such as 90s, 15m or 1h30m')
  if (text === '0') return 0
  if (!/^(\d+(\.\d+)?(ns|us|µs|μs|ms|s|m|h))+$/.test(text)) throw refuse()
  let total = 0
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)/gy)) {
    total += Number(number) * (UNIT_MS[unit as string] as number)
  }
  if (!Number.isFinite(total)) throw refuse()
  return total
}

/** Milliseconds as a Go duration, largest units first; fractions are rounded, negative values are `0s`. */
export function formatDurationMs(durationMs: number): string {
  let rest = Math.round(durationMs)
  if (rest <= 0) return '0s'
  let text = ''
  for (const [unit, size] of [
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1000],
    ['ms', 1],
  ] as const) {
    const count = Math.floor(rest / size)
    if (count > 0) text += `${count}${unit}`
    rest -= count * size
  }
  return text
}

/** Node fires a timer with a longer delay (24.8 days) at once. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Waits for at most 24 days. Rejects with the signal's reason as soon as it is aborted, so that loops end on shutdown. */
export function sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error)
    const onAbort = () => {
      clearTimeout(timer)
      reject(signal?.reason as Error)
    }
    const timer = setTimeout(
      () => {
        signal?.removeEventListener('abort', onAbort)
        resolve()
      },
      Math.min(durationMs, MAX_TIMER_MS),
    )
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}

/** Rejects with `timeout` when the promise has not settled in time. The work itself continues. */
export async function withDeadline<T>(work: Promise<T>, deadlineMs: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new ServiceError('timeout', `${what} did not finish within ${formatDurationMs(deadlineMs)}`)),
      Math.min(deadlineMs, MAX_TIMER_MS),
    )
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
