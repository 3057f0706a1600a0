/** Housekeeping of messages: partitions by retention class and arrival, idempotency keys of 24 hours (decision 54). */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deleteExpiredKeys } from '../../api/messages/ingest/idempotency.ts'
import { deleteDroppedWeeks } from '../../api/messages/projections/dropped-weeks.ts'
import { deleteOldBatches } from '../../api/messages/retention/batches.ts'
import { createPartitions, maintainPartitions } from '../../api/messages/store/partitions.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'

let server: TestDatabase

beforeAll(async () => {
  server = await createTestDatabase()
})
afterAll(() => server[Symbol.asyncDispose]())

async function partitionsOf(parent: string): Promise<string[]> {
  const { rows } = await server.database.pool.query<{ name: string }>(
    `SELECT leaf.relname AS name FROM pg_inherits JOIN pg_class leaf ON leaf.oid = inhrelid
      WHERE inhparent = $1::regclass ORDER BY 1`,
    [parent],
  )
  return rows.map((row) => row.name)
}

/** Beginnings of the weeks that the parent has partitions for, as in their names. */
const weeksOf = async (parent: string) => (await partitionsOf(parent)).map((name) => name.slice(-8))

/** A record of each class on each day from so many days ago until so many; gives the weeks that they are in. */
async function arrive(classes: readonly number[], fromDays: number, untilDays: number): Promise<string[]> {
  const { rows } = await server.database.pool.query<{ week: string }>(
    `INSERT INTO records (channel_key, min_time, max_time, arrived_at, batch_seq, message, chunk, retention_days, protocol, series_keys, times)
     SELECT 1, now(), now(), now() - make_interval(days => ago), 0, 0, 0, class, 1, '{1}', ARRAY[now()]
       FROM unnest($1::smallint[]) AS class, generate_series($3::integer, $2::integer) AS ago
     RETURNING to_char(date_trunc('week', arrived_at, 'UTC') AT TIME ZONE 'UTC', 'YYYYMMDD') AS week`,
    [classes, fromDays, untilDays],
  )
  return rows.map(({ week }) => week)
}

test('partitions are created ahead once, however many nodes start together', async () => {
  // Weeks begin on the way there, whatever day it is.
  const made = await Promise.all([1, 2, 3].map(() => createPartitions(server.database, 45)))
  expect(made.filter((count) => count > 0)).toHaveLength(1)
  const weeks = await weeksOf('records_r7')
  expect(weeks.length).toBeGreaterThanOrEqual(7)
  expect((await partitionsOf('records_r0')).length).toBeGreaterThanOrEqual(2)
  // Every class has the same weeks, those of its rollups begin where `arrived_on` says.
  for (const table of ['records', 'payloads', 'rollups'])
    for (const days of [30, 90, 365, 3650, 0])
      expect(await weeksOf(`${table}_r${days}`), `${table} of ${days} days`).toEqual(weeks)
  const { rows } = await server.database.pool.query<{ start: string; is_monday: boolean }>(
    `SELECT to_char(date_trunc('week', now(), 'UTC') AT TIME ZONE 'UTC', 'YYYYMMDD') AS start,
            extract(isodow FROM date_trunc('week', now(), 'UTC') AT TIME ZONE 'UTC') = 1 AS is_monday`,
  )
  expect(rows).toEqual([{ start: weeks[0], is_monday: true }])
})

test('the weeks of arrivals have no gaps, also in a session with another time zone', async () => {
  const client = await server.database.dedicated('another time zone')
  try {
    await client.query(`SET timezone = 'Europe/Berlin'`)
    // Summer time ends in between.
    await client.query(`SELECT create_message_partitions('2030-10-20T12:00:00Z', '2030-11-05T00:00:00Z')`)
    await client.query(`SET timezone = 'UTC'`)
    const { rows } = await client.query<{ bound: string }>(
      `SELECT pg_get_expr(relpartbound, oid) AS bound FROM pg_class WHERE relkind = 'r' AND relname LIKE 'records_r0_2030%' ORDER BY relname`,
    )
    expect(rows.map(({ bound }) => bound.match(/\d{4}-\d\d-\d\d 00:00:00\+00/g))).toEqual([
      ['2030-10-14 00:00:00+00', '2030-10-21 00:00:00+00'],
      ['2030-10-21 00:00:00+00', '2030-10-28 00:00:00+00'],
      ['2030-10-28 00:00:00+00', '2030-11-04 00:00:00+00'],
      ['2030-11-04 00:00:00+00', '2030-11-11 00:00:00+00'],
    ])
  } finally {
    await client.end()
  }
})

test('a partition is removed when its last arrival is older than its class; unlimited classes stay', async () => {
  const { pool } = server.database
  await pool.query(`SELECT create_message_partitions(now() - interval '70 days', now() - interval '40 days')`)
  await arrive([90, 0], 70, 40)
  const before = { week: await partitionsOf('records_r7'), month: await partitionsOf('records_r30') }
  const kept = { quarter: await partitionsOf('records_r90'), ever: await partitionsOf('records_r0') }
  await maintainPartitions(server.database, silentLogger)
  const after = { week: await partitionsOf('records_r7'), month: await partitionsOf('records_r30') }
  expect(after.week.length).toBeLessThan(before.week.length - 3)
  expect(after.month.length).toBeLessThan(before.month.length)
  expect(await partitionsOf('records_r90')).toEqual(kept.quarter)
  expect(await partitionsOf('records_r0')).toEqual(kept.ever)
  // A second round finds nothing to do.
  await maintainPartitions(server.database, silentLogger)
  expect(await partitionsOf('records_r7')).toEqual(after.week)
})

test('a week without arrivals is removed soon; one with records stays, and so do its rollups and the partitions ahead', async () => {
  await server.database.pool.query(
    `SELECT create_message_partitions(now() - interval '30 days', now() + interval '1 day')`,
  )
  const [filled] = await arrive([3650], 17, 17)
  const before = await weeksOf('records_r3650')
  const at = before.indexOf(filled ?? '')
  const [earlier, present] = [before[at - 1], before.at(-1)]
  await maintainPartitions(server.database, silentLogger)
  for (const table of ['records_r3650', 'rollups_r3650']) {
    const weeks = await weeksOf(table)
    expect(weeks, table).toContain(filled)
    expect(weeks, table).toContain(present)
    expect(weeks, table).not.toContain(earlier)
  }
  expect(await weeksOf('payloads_r3650')).toContain(present)
  expect(await weeksOf('payloads_r3650')).not.toContain(filled)
})

test('a partition whose removal waited too long for a reader is removed in the next round', async () => {
  const { pool } = server.database
  await pool.query(`SELECT create_message_partitions(now() - interval '35 days', now() - interval '30 days')`)
  const reader = await server.database.dedicated('a long export')
  try {
    await reader.query('BEGIN')
    await reader.query('SELECT count(*) FROM records')
    await expect(maintainPartitions(server.database, silentLogger)).rejects.toMatchObject({ code: '55P03' })
    const { rows } = await pool.query('SELECT inhrelid FROM pg_inherits WHERE inhdetachpending')
    expect(rows).toHaveLength(1)
    await reader.query('COMMIT')
    await maintainPartitions(server.database, silentLogger)
    const left = await pool.query('SELECT inhrelid FROM pg_inherits WHERE inhdetachpending')
    expect(left.rows).toEqual([])
  } finally {
    await reader.end()
  }
})

test('rollups by week are removed after the partition of their records, and not before', async () => {
  const { pool } = server.database
  await pool.query(`SELECT create_message_partitions(now() - interval '30 days', now())`)
  const [passed] = await arrive([7], 27, 27)
  await pool.query(
    `INSERT INTO rollup_weeks (channel_key, series_key, retention_days, arrived_on, records, first_bucket, last_bucket)
     SELECT 1, 1, class, date_trunc('week', now() - make_interval(days => ago), 'UTC'), 1, now(), now()
       FROM unnest('{7,30,0}'::smallint[]) AS class, unnest('{27,1}'::integer[]) AS ago`,
  )
  const weeks = async () => {
    const { rows } = await pool.query<{ week: string; classes: number[] }>(
      `SELECT to_char(arrived_on AT TIME ZONE 'UTC', 'YYYYMMDD') AS week, array_agg(retention_days ORDER BY retention_days) AS classes
         FROM rollup_weeks GROUP BY 1 ORDER BY 1`,
    )
    return rows.map(({ week, classes }) => [week === passed ? 'passed' : 'present', classes])
  }
  await deleteDroppedWeeks(server.database)
  const all = [0, 7, 30]
  expect(await weeks()).toEqual([
    ['passed', all],
    ['present', all],
  ])
  await maintainPartitions(server.database, silentLogger)
  await deleteDroppedWeeks(server.database)
  expect(await weeks()).toEqual([
    ['passed', [0, 30]],
    ['present', all],
  ])
})

test('idempotency keys are deleted after 24 hours, not before', async () => {
  await server.database.pool.query(`
    INSERT INTO idempotency_keys (scope, request_digest, created_at)
    VALUES ('\\x01', '\\x00', now() - interval '25 hours'), ('\\x02', '\\x00', now() - interval '23 hours')`)
  expect(await deleteExpiredKeys(server.database)).toBe(1)
  const { rows } = await server.database.pool.query(`SELECT encode(scope, 'hex') AS scope FROM idempotency_keys`)
  expect(rows).toEqual([{ scope: '02' }])
})

test('batches are deleted when they are projected and older than eight days', async () => {
  await server.database.pool.query(`
    INSERT INTO ingest_batches (batch, arrived_at, messages, records, projected)
    SELECT gen_random_uuid(), now() - make_interval(days => days), 1, 1, projected
      FROM (VALUES (9, true), (9, false), (7, true)) AS b (days, projected)`)
  expect(await deleteOldBatches(server.database)).toBe(1)
  const { rows } = await server.database.pool.query('SELECT projected FROM ingest_batches ORDER BY arrived_at')
  expect(rows).toEqual([{ projected: false }, { projected: true }])
})
