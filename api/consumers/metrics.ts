/** Named consumers: what they were given, and how far they are behind. */
import type { Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'

/** Rows that are counted; more show this number. */
const MAX_COUNTED = 100_000

export const CONSUMER_METRICS = defineMetrics('Named consumers', {
  consumers: gauge('skein_consumers', 'Named consumers of all domains', { aggregator: 'max' }),
  behind: gauge('skein_consumers_behind', 'Named consumers for which messages wait', { aggregator: 'max' }),
  behindSeconds: gauge('skein_consumers_behind_seconds', 'Age of the oldest message that waits; 0: none does', {
    aggregator: 'max',
  }),
  inDoubt: gauge(
    'skein_consumers_in_doubt',
    'Messages that were delivered and are not acknowledged, or are held back; at most 100,000 are counted',
    { aggregator: 'max' },
  ),
  deadLetters: gauge('skein_consumers_dead_letters', 'Dead letters of named consumers; at most 100,000 are counted', {
    aggregator: 'max',
  }),
  delivered: counter('skein_consumer_deliveries_total', 'Messages that were given to callers of named consumers'),
  acknowledged: counter('skein_consumer_acknowledgements_total', 'Messages that callers acknowledged'),
  expired: counter('skein_consumer_expired_total', 'Messages that waited for too long'),
})

export function consumerGauges(database: Database): GaugeSource {
  const { consumers, behind, behindSeconds, inDoubt, deadLetters } = CONSUMER_METRICS
  const counted = (isDead: boolean) => sql`(SELECT count(*) FROM (SELECT FROM message_consumer_deliveries
    WHERE ${isDead ? sql`dead_at IS NOT NULL` : sql`dead_at IS NULL`} LIMIT ${MAX_COUNTED}) AS counted)`
  return {
    name: 'consumers',
    gauges: [consumers, behind, behindSeconds, inDoubt, deadLetters],
    async read() {
      const { rows } = await sql<{ total: number; behind: number; seconds: number; doubt: number; dead: number }>`
        SELECT count(*) AS total, count(behind_since) AS behind, coalesce(extract(epoch FROM now() - min(behind_since)), 0)::float8 AS seconds,
          ${counted(false)} + (SELECT coalesce(sum(messages), 0)::bigint FROM message_consumer_pages) AS doubt, ${counted(true)} AS dead FROM message_consumers`.execute(
        database.db,
      )
      return rows.flatMap((row) => [
        ...gaugeValue(consumers, row.total),
        ...gaugeValue(behind, row.behind),
        ...gaugeValue(behindSeconds, row.seconds),
        ...gaugeValue(inDoubt, row.doubt),
        ...gaugeValue(deadLetters, row.dead),
      ])
    },
  }
}
