/** Rates of arrival in a domain, or in all domains, as a short series of equal steps. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { formatTime } from '#core/time.ts'

/** Seconds of a step by window: each series has 60 to 96 steps. */
export const RATE_STEPS = { '1h': 60, '6h': 300, '24h': 900 } as const
export type RateWindow = keyof typeof RATE_STEPS
export const WINDOW_SECONDS: Readonly<Record<RateWindow, number>> = { '1h': 3600, '6h': 21_600, '24h': 86_400 }

export type RatePoint = {
  time: string
  seconds: number
  messages: number
  records: number
  messages_per_second: number
  records_per_second: number
}

type Row = { step_at: string; seconds: number; messages: number; records: number }

/**
 * Returns every step of the window, oldest first; the last one is the present one, whose rate is that of the seconds that
 * have passed of it. Arrivals are counted within seconds. Undefined `domainKey`: all domains together.
 */
export async function findRates(
  db: Queryable,
  domainKey: number | undefined,
  window: RateWindow,
): Promise<RatePoint[]> {
  const step = RATE_STEPS[window]
  const ofDomain = domainKey === undefined ? sql<boolean>`true` : sql<boolean>`m.domain_key = ${domainKey}`
  const { rows } = await sql<Row>`
    WITH steps AS (
      SELECT to_timestamp(last.epoch - n * ${step}::bigint) AS step_at
        FROM (SELECT floor(extract(epoch FROM now()) / ${step}::bigint)::bigint * ${step}::bigint AS epoch) last,
             generate_series(0, ${WINDOW_SECONDS[window] / step - 1}::integer) n
    ), arrived AS (
      SELECT to_timestamp(floor(extract(epoch FROM m.minute) / ${step}::bigint) * ${step}::bigint) AS step_at,
             sum(m.messages)::bigint AS messages, sum(m.records)::bigint AS records
        FROM domain_minutes m
       WHERE ${ofDomain} AND m.minute >= (SELECT min(step_at) FROM steps) GROUP BY 1
    )
    SELECT s.step_at, least(${step}::float8, greatest(extract(epoch FROM now() - s.step_at)::float8, 1)) AS seconds,
           coalesce(a.messages, 0) AS messages, coalesce(a.records, 0) AS records
      FROM steps s LEFT JOIN arrived a USING (step_at) ORDER BY s.step_at`.execute(db)
  return rows.map(({ step_at: at, seconds, messages, records }) => ({
    time: formatTime(at),
    seconds,
    messages,
    records,
    messages_per_second: rounded(messages / seconds),
    records_per_second: rounded(records / seconds),
  }))
}

/** Thousandths: one message in a step of a quarter of an hour is still seen. */
const rounded = (rate: number) => Math.round(rate * 1000) / 1000
