/** Partitions of messages: how many there are, how large they are, and how far ahead they reach. */
import type { Database } from '#core/database/index.ts'
import { defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'

/** Sizes are asked of the file system, one partition at a time. */
const INTERVAL_MS = 60_000
const TABLE = { table: 'records, payloads or rollups' }

export const PARTITION_METRICS = defineMetrics('Partitions', {
  count: gauge('skein_partitions', 'Partitions of a table of messages', { labels: TABLE, aggregator: 'max' }),
  bytes: gauge('skein_partitions_bytes', 'Size of these partitions with their indexes', {
    labels: TABLE,
    aggregator: 'max',
  }),
  oldest: gauge('skein_partitions_oldest_timestamp_seconds', 'Begin of the oldest partition', {
    labels: TABLE,
    aggregator: 'max',
  }),
  newest: gauge(
    'skein_partitions_newest_timestamp_seconds',
    'Time up to which every retention class has a partition; messages that arrive later must make one first',
    { labels: TABLE, aggregator: 'max' },
  ),
})

export function partitionGauges(database: Database): GaugeSource {
  const { count, bytes, oldest, newest } = PARTITION_METRICS
  return {
    name: 'partitions',
    gauges: [count, bytes, oldest, newest],
    intervalMs: INTERVAL_MS,
    async read() {
      const { rows } = await sql<{ name: string; partitions: number; size: number; since: number; until: number }>`
        SELECT name, sum(partitions)::bigint AS partitions, sum(size)::bigint AS size, min(since)::float8 AS since, min(until)::float8 AS until
          FROM (
            SELECT kind AS name, parent.relname, count(*) AS partitions, sum(pg_total_relation_size(leaf.oid)) AS size,
                   extract(epoch FROM min(bounds[1]::timestamptz)) AS since, extract(epoch FROM max(bounds[2]::timestamptz)) AS until
              FROM pg_inherits
              JOIN pg_class leaf ON leaf.oid = inhrelid
              JOIN pg_class parent ON parent.oid = inhparent
             CROSS JOIN LATERAL substring(parent.relname FROM '^(records|payloads|rollups)_r\\d+$') AS kind
             CROSS JOIN LATERAL regexp_match(pg_get_expr(leaf.relpartbound, leaf.oid), 'FROM \\(''([^'']+)''\\) TO \\(''([^'']+)''\\)') AS bounds
             WHERE parent.relnamespace = current_schema()::regnamespace AND kind IS NOT NULL
             GROUP BY kind, parent.relname) AS classes
         GROUP BY name`.execute(database.db)
      return rows.flatMap(({ name: table, partitions, size, since, until }) => [
        ...gaugeValue(count, partitions, { table }),
        ...gaugeValue(bytes, size, { table }),
        ...gaugeValue(oldest, since, { table }),
        ...gaugeValue(newest, until, { table }),
      ])
    },
  }
}
