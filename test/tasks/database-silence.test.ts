// task-manager.md section 3, rule 7: a manager and a database that hear nothing of each other, without a sign that the connection is gone
import pg from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createDatabase } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { Relay } from '../core/relay.ts'
import { createTestDatabase, silentLogger } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { clientOf, startTestManager, startTestWorker, until } from './support.ts'
import type { TestManager, TestWorker } from './support.ts'

/** A statement of the writer may take 10 s, and the silence is noticed 5 s later. */
vi.setConfig({ testTimeout: 60_000 })

let db: TestDatabase
let relay: Relay
let relayed: Database
let manager: TestManager
let worker: TestWorker
let admin: pg.Client

beforeAll(async () => {
  db = await createTestDatabase()
  admin = new pg.Client(db.address)
  await admin.connect()
  relay = await Relay.start(db.address)
  relayed = createDatabase({
    address: relay.address,
    maxConnections: 8,
    applicationName: 'relayed',
    logger: silentLogger,
    statementDeadlineMs: 1000,
    silenceGraceMs: 1000,
  })
  manager = await startTestManager(relayed)
  worker = await startTestWorker(manager, { name: 'one' })
}, 60_000)

afterAll(async () => {
  // Breaks what is frozen: a connection that hears nothing is not closed in order.
  relay.cut()
  relay.repair()
  await worker.close()
  await manager.close()
  await relayed.close()
  await relay[Symbol.asyncDispose]()
  await admin.end()
  await db[Symbol.asyncDispose]()
})

/** Sessions of the run writer that have begun a transaction and hear nothing more. */
async function abandoned(): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    `SELECT count(*)::integer AS n FROM pg_stat_activity
      WHERE application_name = 'skein-run-writer' AND datname = current_database() AND state = 'idle in transaction'`,
  )
  return rows[0]?.n ?? 0
}

test('a transaction whose manager was cut off ends, and the manager continues over another connection', async () => {
  const client = clientOf(manager.app)
  const id = await client.task('add', { inputs: [40, 2] })
  const start = () => client.post(`/tasks/${id}/start`)
  await admin.query('BEGIN')
  await admin.query('SELECT FROM tasks WHERE id = $1 FOR UPDATE', [id])
  const cutOff = start()
  await until(
    'the writer waits for the task',
    async () => (await admin.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount,
    (waiting) => waiting !== 0,
  )
  relay.freeze()
  await admin.query('COMMIT')
  await until('a transaction that hears nothing of its manager', abandoned, (n) => n > 0)
  relay.repair()
  expect(await cutOff).toMatchObject({ status: 504, body: { error: 'timeout' } })
  expect((await start()).status).toBe(200)
  expect(await client.ended(id)).toMatchObject({ results: [42] })
  // A transaction of the new connection may be between two statements.
  await until('no transaction is left', abandoned, (n) => n === 0)
})
