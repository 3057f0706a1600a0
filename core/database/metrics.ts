/**
 * The database as this process sees it: its pool, its transactions, and the transactions of other processes that delay the readers
 * of logs. Metrics of the pool have the names of OpenTelemetry's semantic conventions; `db.client.connection.count` loses its
 * ending, which Prometheus keeps for histograms.
 */
import { counter, defineMetrics, gauge, histogram, gaugeValue } from '../metrics/index.ts'
import type { GaugeSource } from '../metrics/index.ts'
import { sql } from '../sql.ts'
import type { Database } from './connect.ts'

const POOL = { db_client_connection_pool_name: 'application name of the pool: skein and the program' }
const SIZE_INTERVAL_MS = 60_000

export const DATABASE_METRICS = defineMetrics('Database', {
  connections: gauge('db_client_connections', 'Connections of the pool', {
    labels: { ...POOL, db_client_connection_state: 'idle or used' },
  }),
  maxConnections: gauge('db_client_connection_max', 'Connections that the pool may open', { labels: POOL }),
  waiting: gauge('db_client_connection_pending_requests', 'Requests that wait for a free connection of the pool', {
    labels: POOL,
  }),
  waitTime: histogram('db_client_connection_wait_time_seconds', 'Time until a connection of the pool was free'),
  transactionTime: histogram(
    'skein_database_transaction_duration_seconds',
    'Time from BEGIN to the end of a transaction',
    {
      labels: { outcome: 'committed or failed' },
    },
  ),
  repeats: counter(
    'skein_database_transaction_repeats_total',
    'Transactions that were repeated after a deadlock or a serialization failure',
  ),
  oldestWriter: gauge(
    'skein_database_oldest_writing_transaction_age_seconds',
    'Age of the oldest open transaction that has written, of any client of the server; readers of logs wait for its end',
    { aggregator: 'max' },
  ),
  serverConnections: gauge('skein_database_server_connections', 'Connections that clients have open at the server', {
    aggregator: 'max',
  }),
  maxServerConnections: gauge(
    'skein_database_server_connections_limit',
    'Connections that the server accepts (max_connections)',
    {
      aggregator: 'max',
    },
  ),
  size: gauge('skein_database_size_bytes', 'Size of the database', { aggregator: 'max' }),
})

/** The gauges that are read from the server. They are the same for every process that uses it. */
export function databaseGauges(database: Database): GaugeSource[] {
  const { oldestWriter, serverConnections, maxServerConnections, size } = DATABASE_METRICS
  return [
    {
      name: 'database',
      gauges: [oldestWriter, serverConnections, maxServerConnections],
      async read() {
        const { rows } = await sql<{ oldest: number; connections: number; limit: number }>`
          SELECT greatest(
              (SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity WHERE backend_xid IS NOT NULL),
              (SELECT max(extract(epoch FROM clock_timestamp() - prepared)) FROM pg_prepared_xacts), 0)::float8 AS oldest,
            (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
            current_setting('max_connections')::integer AS "limit"`.execute(database.db)
        return rows.flatMap((row) => [
          ...gaugeValue(oldestWriter, row.oldest),
          ...gaugeValue(serverConnections, row.connections),
          ...gaugeValue(maxServerConnections, row.limit),
        ])
      },
    },
    {
      name: 'database size',
      gauges: [size],
      intervalMs: SIZE_INTERVAL_MS,
      async read() {
        const { rows } = await sql<{ bytes: number }>`SELECT pg_database_size(current_database()) AS bytes`.execute(
          database.db,
        )
        return rows.flatMap(({ bytes }) => gaugeValue(size, bytes))
      },
    },
  ]
}
