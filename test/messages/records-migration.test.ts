/** Records that an earlier version stored, a row each, are the same records after the update. */
import pg from 'pg'
import { expect, inject, test } from 'vitest'
import { migrate, readMigrations } from '#core/database/index.ts'
import { MIGRATIONS_FOLDER } from '#core/ground/index.ts'
import { newId } from '#core/ids.ts'
import { silentLogger } from '../harness/database.ts'

const RECORDS = 14

test('records move into runs: none is lost, none moves to another message, time or series', async () => {
  const name = `test_${newId().replaceAll('-', '')}`
  const admin = new pg.Client({ ...inject('postgres'), database: 'postgres' })
  await admin.connect()
  await admin.query(`CREATE DATABASE ${name} TEMPLATE template0`)
  const client = new pg.Client({ ...inject('postgres'), database: name })
  await client.connect()
  try {
    const migrations = await readMigrations(MIGRATIONS_FOLDER)
    await migrate(client, migrations.slice(0, RECORDS - 1), silentLogger)
    await client.query(`SELECT create_message_partitions(now() - interval '20 days', now() + interval '1 day')`)
    // Forty messages of 150 records each, every third value missing, half of them kept for 30 days, over two hours.
    await client.query(`
      INSERT INTO messages (channel_key, series_key, time, arrived_at, batch_seq, message, ordinal, retention_days, protocol,
                            value, sum, bool_value, string_value)
      SELECT 1 + message % 2, ordinal % 7, '2026-01-01T00:07:00Z'::timestamptz + make_interval(secs => ordinal * 48 % 7200),
             now() - make_interval(days => message % 20), message / 10, message % 10, ordinal, message % 2 * 30, 1,
             CASE WHEN ordinal % 3 > 0 THEN ordinal END, CASE WHEN message = 7 THEN ordinal END,
             CASE WHEN ordinal % 3 = 0 AND message <> 7 THEN true END, NULL
        FROM generate_series(0, 39) message, generate_series(0, 149) ordinal`)
    const before = await client.query(`
      SELECT channel_key, series_key, time, arrived_at, batch_seq, message, retention_days, value, sum, bool_value
        FROM messages ORDER BY batch_seq, message, time, series_key, value, sum`)
    await migrate(client, migrations, silentLogger)
    const after = await client.query(`
      SELECT m.channel_key, r.series_key, r.time, m.arrived_at, m.batch_seq, m.message, m.retention_days, r.value, r.sum, r.bool_value
        FROM records m, unnest(m.series_keys, m.times, m."values", m.sums, m.bool_values) AS r(series_key, time, value, sum, bool_value)
       ORDER BY m.batch_seq, m.message, r.time, r.series_key, r.value, r.sum`)
    expect(before.rows).toHaveLength(6000)
    expect(after.rows).toEqual(before.rows)
    const bounds = await client.query(`
      SELECT count(*) AS wrong FROM records
       WHERE min_time <> (SELECT min(t) FROM unnest(times) t) OR max_time <> (SELECT max(t) FROM unnest(times) t)
          OR cardinality(times) > 64 OR cardinality(series_keys) <> cardinality(times)
          OR floor(extract(epoch FROM min_time) / 900) <> floor(extract(epoch FROM max_time) / 900)`)
    expect(Number(bounds.rows[0].wrong)).toBe(0)
  } finally {
    await client.end()
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)
    await admin.end()
  }
})
