/** Housekeeping of messages: partitions by retention class and arrival, idempotency keys of 24 hours (decision 54). */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { forgetExpiredKeys } from '../../api/messages/ingest/idempotency.ts'
import { forgetOldBatches } from '../../api/messages/retention/batches.ts'
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

test('partitions are made ahead once, however many nodes start together', async () => {
  // Weeks and months begin on the way there, whatever day it is.
  const made = await Promise.all([1, 2, 3].map(() => createPartitions(server.database, 45)))
  expect(made.filter((count) => count > 0)).toHaveLength(1)
  expect((await partitionsOf('records_r7')).length).toBeGreaterThanOrEqual(7)
  expect((await partitionsOf('records_r0')).length).toBeGreaterThanOrEqual(2)
})

test('a partition goes when its last arrival is older than its class; what is kept for ever stays', async () => {
  const { pool } = server.database
  await pool.query(`SELECT create_message_partitions(now() - interval '70 days', now() - interval '40 days')`)
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

test('idempotency keys are forgotten after 24 hours, not before', async () => {
  await server.database.pool.query(`
    INSERT INTO idempotency_keys (scope, request_digest, created_at)
    VALUES ('\\x01', '\\x00', now() - interval '25 hours'), ('\\x02', '\\x00', now() - interval '23 hours')`)
  expect(await forgetExpiredKeys(server.database)).toBe(1)
  const { rows } = await server.database.pool.query(`SELECT encode(scope, 'hex') AS scope FROM idempotency_keys`)
  expect(rows).toEqual([{ scope: '02' }])
})

test('batches are forgotten when they are folded and older than eight days', async () => {
  await server.database.pool.query(`
    INSERT INTO ingest_batches (batch, arrived_at, messages, records, folded)
    SELECT gen_random_uuid(), now() - make_interval(days => days), 1, 1, folded
      FROM (VALUES (9, true), (9, false), (7, true)) AS b (days, folded)`)
  expect(await forgetOldBatches(server.database)).toBe(1)
  const { rows } = await server.database.pool.query('SELECT folded FROM ingest_batches ORDER BY arrived_at')
  expect(rows).toEqual([{ folded: false }, { folded: true }])
})
