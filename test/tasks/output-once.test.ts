/** What a command writes is stored once, with its result, and is sent once; it is shown as the output of the run all the same. */
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { afterAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { Counters } from '../budgets/counters.ts'
import { FrameRelay } from '../budgets/frame-relay.ts'
import { clientOf, exampleModule, startDatabase, startTestManager, startTestWorker, until } from './support.ts'

const MIB = 1024 * 1024
const WRITTEN_BYTES = 8 * MIB
const PIECE_BYTES = 65_536

const stack = new AsyncDisposableStack()
afterAll(() => stack.disposeAsync())
const counters = stack.use(new Counters())
const db = await startDatabase()
stack.defer(() => db.close())
// A worker repeats a result that was not acknowledged for two heartbeats.
const manager = await startTestManager(db.database, { timing: { heartbeatIntervalMs: 5_000 } })
stack.defer(() => manager.close())
const relay = stack.use(await FrameRelay.start(manager.grpcAddress))
const worker = await startTestWorker({ grpcAddress: relay.address, workerToken: manager.workerToken })
stack.defer(() => worker.close())
const client = clientOf(manager.app)

/** Writes letters at random in pieces, with loops between that take time, and exits with the code. `first`: below the others by 16. */
async function printer({ bytes = WRITTEN_BYTES, first = 'a', spins = 0, code = 0 } = {}): Promise<Buffer> {
  return Buffer.from(
    await parse(`(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 2)
      (func (export "_start") (local $count i32) (local $spin i32) (local $at i32) (local $seed i32)
        (i32.store (i32.const 0) (i32.const 16))
        (i32.store (i32.const 4) (i32.const ${PIECE_BYTES}))
        (local.set $seed (i32.const 1))
        (loop $again
          (local.set $at (i32.const 0))
          (loop $fill
            (local.set $seed (i32.add (i32.mul (local.get $seed) (i32.const 1664525)) (i32.const 1013904223)))
            (i32.store8 offset=16 (local.get $at)
              (i32.add (i32.const ${first.charCodeAt(0)}) (i32.shr_u (local.get $seed) (i32.const 28))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br_if $fill (i32.lt_u (local.get $at) (i32.const ${PIECE_BYTES}))))
          (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (local.set $spin (i32.const ${spins}))
          (block $spun (loop $more
            (br_if $spun (i32.eqz (local.get $spin)))
            (local.set $spin (i32.sub (local.get $spin) (i32.const 1)))
            (br $more)))
          (br_if $again (i32.lt_u (local.get $count) (i32.const ${Math.ceil(bytes / PIECE_BYTES)}))))
        (call $exit (i32.const ${code}))))`),
  )
}

async function newTask(module: Buffer, fields: object = {}): Promise<string> {
  const created = await client.call('POST', '/tasks', { name: 'printer', max_output_bytes: 16 * MIB, ...fields })
  expect(created.status, JSON.stringify(created.body)).toBe(201)
  const id = String(created.body['id'])
  expect((await client.upload(id, module)).status).toBe(200)
  return id
}

async function run(task: string): Promise<Record<string, unknown>> {
  expect((await client.call('POST', `/tasks/${task}/start`)).status).toBeLessThan(300)
  return await client.ended(task)
}

type Stored = { logs: number; results: number }
async function storedOf(task: string): Promise<Stored> {
  const { rows } = await sql<Stored>`
    SELECT coalesce((SELECT sum(length(l.data)) FROM run_logs l WHERE l.run_key = r.key), 0)::float8 AS logs,
      coalesce(r.result_bytes, length(r.results::text), 0)::float8 AS results
    FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = ${task} ORDER BY r.key DESC LIMIT 1`.execute(
    db.database.db,
  )
  return rows[0] as Stored
}

/** No row of the table is written until it is disposed. `waiting` counts the statements that wait for it. */
async function lockTable(table: string) {
  const connection = await db.database.dedicated('lock')
  await connection.query(`BEGIN; LOCK TABLE ${table} IN SHARE MODE`)
  let isHeld = true
  return {
    async waiting(): Promise<number> {
      const { rows } = await connection.query<{ count: number }>(
        `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '${table}'::regclass`,
      )
      return rows[0]?.count ?? 0
    },
    async [Symbol.asyncDispose]() {
      if (!isHeld) return
      isHeld = false
      await connection.query('ROLLBACK')
      await connection.end()
    },
  }
}

const logsOf = async (task: string, query = '') =>
  (await manager.app.inject({ method: 'GET', url: `/tasks/${task}/logs${query}` })).rawPayload

test('8 MiB are sent once by the runner and once by the worker, and written once', async () => {
  const task = await newTask(await printer())
  const before = counters.counted(relay.wire)
  const { results } = await run(task)
  const { stdout } = results as { stdout: string }
  const after = counters.counted(relay.wire)
  const [pipe, wire] = (['runner bytes', 'gRPC bytes'] as const).map((name) => after[name] - before[name])
  expect(stdout).toHaveLength(WRITTEN_BYTES)
  for (const bytes of [pipe, wire]) {
    expect(bytes).toBeGreaterThan(WRITTEN_BYTES)
    expect(bytes).toBeLessThan(1.2 * WRITTEN_BYTES)
  }
  const { logs, results: kept } = await storedOf(task)
  expect(logs).toBe(0)
  expect(kept).toBeLessThan(WRITTEN_BYTES + 1000)
  expect((await logsOf(task)).toString()).toBe(stdout)
  expect(await logsOf(task, '?stream=stderr')).toHaveLength(0)
})

test('output that was followed while the run lasted is removed with its end, and the follower gets all of it', async () => {
  // Each piece takes some 50 ms.
  const task = await newTask(await printer({ bytes: 1.5 * MIB, first: 'A', spins: 40_000_000 }))
  expect((await client.call('POST', `/tasks/${task}/start`)).status).toBeLessThan(300)
  await until(
    'output while it runs',
    () => storedOf(task),
    ({ logs }) => logs > 0,
  )
  const following = manager.app.inject({ method: 'GET', url: `/tasks/${task}/logs?follow=true` })
  const { results } = await client.ended(task)
  const { stdout } = results as { stdout: string }
  expect(stdout).toHaveLength(1.5 * MIB)
  await until(
    'one copy',
    () => storedOf(task),
    ({ logs }) => logs === 0,
  )
  expect((await logsOf(task)).toString()).toBe(stdout)
  const events = (await following).body.split('\n').flatMap((line) => {
    if (!line.startsWith('data:')) return []
    const data = JSON.parse(line.slice('data:'.length)) as { offset?: number; text?: string }
    return data.text === undefined ? [] : [data]
  })
  let at = 0
  for (const { offset, text } of events) {
    expect(offset).toBe(at)
    at += text?.length ?? 0
  }
  expect(events.map(({ text }) => text).join('')).toBe(stdout)
})

test.each([
  ['of a command that failed', { bytes: 2 * MIB, code: 3 }, {}],
  ['that is not UTF-8', { bytes: PIECE_BYTES, first: '\u00f8' }, {}],
])('output %s is in its result alone', async (_what, module, fields) => {
  const task = await newTask(await printer(module), fields)
  const { results } = await run(task)
  const { stdout } = results as { stdout: string | { base64: string } }
  const written = typeof stdout === 'string' ? Buffer.from(stdout) : Buffer.from(stdout.base64, 'base64')
  expect(written.length).toBeGreaterThanOrEqual(module.bytes)
  expect((await storedOf(task)).logs).toBe(0)
  expect((await logsOf(task)).equals(written)).toBe(true)
})

test('a result without parts does not wait for the parts of a large one that are being stored', async () => {
  const small = await newTask(exampleModule('add'))
  const large = await newTask(await printer({ bytes: 2 * MIB, first: 'A' }))
  await using storing = await lockTable('staged_results')
  expect((await client.call('POST', `/tasks/${large}/start`)).status).toBeLessThan(300)
  await until('the parts wait', storing.waiting, (count) => count > 0)
  const invoked = await client.call('POST', `/tasks/${small}/invoke`, { inputs: [20, 22] })
  expect(invoked.body).toMatchObject({ results: [42] })
  await storing[Symbol.asyncDispose]()
  const { results } = await client.ended(large)
  expect((results as { stdout: string }).stdout).toHaveLength(2 * MIB)
})

test('a large result whose parts cannot be stored comes again until they can', async () => {
  const task = await newTask(await printer({ bytes: 2 * MIB, first: 'B' }))
  const { db: writer } = db.database
  await sql
    .raw(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'full'; END$$`)
    .execute(writer)
  await sql
    .raw('CREATE TRIGGER refuse BEFORE INSERT ON staged_results FOR EACH STATEMENT EXECUTE FUNCTION refuse()')
    .execute(writer)
  expect((await client.call('POST', `/tasks/${task}/start`)).status).toBeLessThan(300)
  await until(
    'the worker leaves because its result was not recorded',
    () => Promise.resolve(manager.workerCount),
    (count) => count === 0,
  )
  await sql.raw('DROP TRIGGER refuse ON staged_results').execute(writer)
  await sql.raw('DROP FUNCTION refuse()').execute(writer)
  const { results } = await client.ended(task)
  expect((results as { stdout: string }).stdout).toHaveLength(2 * MIB)
})

test('output beyond the limit, and output of a function, is kept apart', async () => {
  const limited = await newTask(await printer({ bytes: 4 * PIECE_BYTES }), { max_output_bytes: PIECE_BYTES })
  await run(limited)
  await until(
    'its output',
    () => storedOf(limited),
    ({ logs }) => logs === PIECE_BYTES,
  )
  expect((await logsOf(limited)).toString()).toMatch(/truncated at 65536 bytes/)
})

test('output that an earlier build stored beside the result is shown', async () => {
  const task = await newTask(await printer({ bytes: PIECE_BYTES }))
  await run(task)
  await sql`INSERT INTO run_logs (run_key, stream, byte_offset, data, truncated)
    SELECT r.key, 1, 0, 'apart'::bytea, false FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = ${task}`.execute(
    db.database.db,
  )
  expect((await logsOf(task)).toString()).toBe('apart')
})
