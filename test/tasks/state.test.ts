/** State of tasks (docs/guides/task-state.md): what guests keep between runs, written with their results. */
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { Caller } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { moduleFromText } from '../worker/pool.ts'
import { componentCounter, coreCounter, keyedCounter } from './counter.ts'
import { startTestTenant } from './platform.ts'
import { clientOf, until } from './support.ts'

const tenant = useWorld(startTestTenant)

async function taskWith(module: Uint8Array, fields: Record<string, unknown> = {}): Promise<string> {
  const created = await tenant.owner.call('POST', '/tasks', { name: 'add', domain_id: tenant.domain, ...fields })
  expect(created.status, created.text).toBe(201)
  const { id } = created.json<{ id: string }>()
  const uploaded = await upload(id, module)
  expect(uploaded.status, JSON.stringify(uploaded.body)).toBe(200)
  return id
}

const upload = async (task: string, module: Uint8Array) =>
  await clientOf(tenant.api.app).upload(task, Buffer.from(module), 'file', {
    authorization: `Bearer ${tenant.owner.accessToken}`,
  })

type Ended = { results: number[] | number | null; reason: string | null; error: string | null }
const add = async (id: string, delta: number) =>
  (await tenant.owner.call('POST', `/tasks/${id}/invoke`, { inputs: [delta] })).json<Ended>()

type Value = { value: string; encoding: string; version: number; size: number; client: string }
const get = (id: string, key: string, query = '') => tenant.owner.call('GET', `/tasks/${id}/state/${key}${query}`)

test('a core module finds what its earlier run has kept', async () => {
  const id = await taskWith(await coreCounter())
  expect(await add(id, 2)).toMatchObject({ results: [2] })
  expect(await add(id, 3)).toMatchObject({ results: [5] })
})

test.each(['0.2.0-draft', '0.2.0-draft2'])('a component counts with wasi:keyvalue@%s', async (version) => {
  const id = await taskWith(await componentCounter(version))
  expect(await add(id, 2)).toMatchObject({ results: 2 })
  expect(await add(id, 3)).toMatchObject({ results: 5 })
  expect((await get(id, 'n')).json<Value>()).toMatchObject({ value: '5', encoding: 'utf-8', size: 1, client: '' })
})

test('runs at the same time lose no change', async () => {
  const id = await taskWith(await coreCounter())
  const answers = await Promise.all(Array.from({ length: 20 }, () => add(id, 1)))
  const results = answers.flatMap(({ results: returned }) => (Array.isArray(returned) ? returned : []))
  const failed = answers.filter(({ results: returned }) => !Array.isArray(returned))
  for (const one of failed) expect(one).toMatchObject({ reason: 'state_conflict' })
  // Each number once, up to that of the runs that completed.
  expect(results.toSorted((a, b) => a - b)).toEqual(results.map((_, index) => index + 1))
  expect(await add(id, 0)).toMatchObject({ results: [results.length] })
})

test('64 runs at a time lose no change of 1,000 keys, and repeat less than one in ten', async () => {
  const id = await taskWith(await keyedCounter())
  const [atATime, each, keys] = [64, 5, 1_000]
  const expected = new Map<string, number>()
  const caller = async (number: number) => {
    for (let run = 0; run < each; run++) {
      const key = Math.imul(number * each + run, 2_654_435_761) >>> 0
      const { results } = (
        await tenant.owner.call('POST', `/tasks/${id}/invoke`, { inputs: [key % keys] })
      ).json<Ended>()
      expect(results).toHaveLength(1)
      const name = String(key % keys).padStart(4, '0')
      expected.set(name, (expected.get(name) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: atATime }, (_, number) => caller(number)))
  const { rows } = await sql<{ name: string; value: Buffer }>`
    SELECT name, value FROM task_state WHERE task_key = (SELECT key FROM tasks WHERE id = ${id})`.execute(
    tenant.database.db,
  )
  expect(new Map(rows.map(({ name, value }) => [name, value.readInt32LE()]))).toEqual(expected)
  const { rows: repeats } = await sql<{ count: number }>`
    SELECT count(*)::int AS count FROM run_attempts a JOIN runs r ON r.key = a.run_key
    WHERE r.task_key = (SELECT key FROM tasks WHERE id = ${id}) AND a.reason = 'state_conflict'`.execute(
    tenant.database.db,
  )
  expect(repeats[0]?.count).toBeLessThan((atATime * each) / 10)
})

test('starts and invocations at the same time lose no change', async () => {
  const id = await taskWith(await coreCounter(), { inputs: [1] })
  for (let round = 0; round < 4; round++) {
    const starts = Array.from({ length: 6 }, () => tenant.owner.call('POST', `/tasks/${id}/start`))
    await Promise.all([...starts, ...Array.from({ length: 12 }, () => add(id, 1))])
  }
  const runsOf = async () =>
    (await tenant.owner.call('GET', `/tasks/${id}/runs?limit=100`)).json<{
      runs: { state: number; reason: string | null }[]
    }>().runs
  const ended = await until('the ends of all runs', runsOf, (runs) => runs.every(({ state }) => state >= 3))
  expect(ended.every(({ state, reason }) => state === 3 || reason === 'state_conflict')).toBe(true)
  const completed = ended.filter(({ state }) => state === 3).length
  expect(completed).toBeGreaterThan(20)
  expect(await add(id, 0)).toMatchObject({ results: [completed] })
  const { rows } = await sql<{ keys: number }>`SELECT keys FROM task_state_sizes
    WHERE task_key = (SELECT key FROM tasks WHERE id = ${id})`.execute(tenant.database.db)
  expect(rows).toEqual([{ keys: 1 }])
})

test('a run that fails writes nothing', async () => {
  const id = await taskWith(
    await moduleFromText(`(module
      (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 100) "n")
      (func (export "add") (param i32) (result i32)
        (drop (call $set (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 100) (i32.const 1)))
        (if (local.get 0) (then unreachable))
        (i32.const 7)))`),
  )
  expect(await add(id, 1)).toMatchObject({ reason: 'trap' })
  expect((await get(id, 'n')).status).toBe(404)
  expect(await add(id, 0)).toMatchObject({ results: [7] })
  expect((await get(id, 'n')).json<Value>()).toMatchObject({ value: 'n' })
})

test('a run that would exceed a limit of the task fails with the reason, and one that does not grow goes on', async () => {
  const id = await taskWith(await coreCounter())
  expect(await add(id, 1)).toMatchObject({ results: [1] })
  await sql`UPDATE task_state_sizes SET keys = 10000 WHERE task_key = (SELECT key FROM tasks WHERE id = ${id})`.execute(
    tenant.database.db,
  )
  expect(await add(id, 1)).toMatchObject({ results: [2] })
  expect((await tenant.owner.call('DELETE', `/tasks/${id}/state/n`)).status).toBe(204)
  await sql`UPDATE task_state_sizes SET keys = 10000 WHERE task_key = (SELECT key FROM tasks WHERE id = ${id})`.execute(
    tenant.database.db,
  )
  const failed = await add(id, 1)
  expect(failed).toMatchObject({ reason: 'guest_error', results: null })
  expect(failed.error).toBe('the state of the task would have 10001 keys, at most 10000 are stored')
  expect((await get(id, 'n')).status).toBe(404)
})

/** A command that reads the key `n`, waits, writes to its outputs, and sets the key. */
const slowCommand = (waitMs: number) =>
  moduleFromText(`(module
    (import "skein" "state_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
    (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1) (data (i32.const 100) "n") (data (i32.const 110) "begun\\nstuck\\n")
    (data (i32.const 124) "\\6e\\00\\00\\00\\06\\00\\00\\00\\74\\00\\00\\00\\06\\00\\00\\00")
    (func (export "_start")
      (drop (call $get (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 0) (i32.const 4)))
      (drop (call $write (i32.const 1) (i32.const 124) (i32.const 1) (i32.const 200)))
      (drop (call $write (i32.const 2) (i32.const 132) (i32.const 1) (i32.const 200)))
      (i32.store (i32.const 316) (i32.const 1))
      (i64.store (i32.const 324) (i64.const ${waitMs}000000))
      (drop (call $poll (i32.const 300) (i32.const 400) (i32.const 1) (i32.const 500)))
      (drop (call $set (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 100) (i32.const 1)))))`)

test('what a run has written to its outputs is kept when its state cannot be written', async () => {
  const id = await taskWith(await slowCommand(150))
  const { call } = tenant.owner
  const outputs = async (name: string) => (await call('GET', `/tasks/${id}/logs?stream=${name}`)).text
  let isOpen = true
  const ending = call('POST', `/tasks/${id}/invoke`).finally(() => {
    isOpen = false
  })
  for (let at = 0; isOpen; at++) {
    expect((await call('PUT', `/tasks/${id}/state/n`, { value: String(at) })).status).toBe(200)
    await new Promise((resolve) => setTimeout(resolve, 15))
  }
  const conflicted = (await ending).json<Ended>()
  expect(conflicted).toMatchObject({ reason: 'state_conflict', results: { stdout: 'begun\n', stderr: 'stuck\n' } })
  expect([await outputs('stdout'), await outputs('stderr')]).toEqual(['begun\n', 'stuck\n'])

  expect((await call('DELETE', `/tasks/${id}/state/n`)).status).toBe(204)
  await sql`UPDATE task_state_sizes SET keys = 10000 WHERE task_key = (SELECT key FROM tasks WHERE id = ${id})`.execute(
    tenant.database.db,
  )
  const refused = (await call('POST', `/tasks/${id}/invoke`)).json<Ended>()
  expect(refused).toMatchObject({ reason: 'guest_error', results: { stdout: 'begun\n', stderr: 'stuck\n' } })
  expect(refused.error).toContain('10001 keys')
  expect([await outputs('stdout'), await outputs('stderr')]).toEqual(['begun\n', 'stuck\n'])
})

test('users list, read, write and delete keys, with a version or without', async () => {
  const id = await taskWith(await coreCounter())
  await add(id, 258)
  const state = `/tasks/${id}/state`
  const { owner } = tenant
  const first = (await get(id, 'n')).json<Value>()
  // A NUL is no text for PostgreSQL.
  expect(first).toMatchObject({ value: 'AgEAAA==', encoding: 'base64', size: 4 })
  const written = await owner.call('PUT', `${state}/n`, {
    value: 'CgAAAA==',
    encoding: 'base64',
    version: first.version,
  })
  expect(written.status, written.text).toBe(200)
  expect(await add(id, 1)).toMatchObject({ results: [11] })
  const stale = await owner.call('PUT', `${state}/n`, { value: 'x', version: first.version })
  expect(stale.status).toBe(409)
  expect((await owner.call('PUT', `${state}/a%2Fb?client=pump`, { value: 'é' })).status).toBe(200)
  expect((await get(id, 'a%2Fb', '?client=pump')).json<Value>()).toMatchObject({ value: 'é', client: 'pump', size: 2 })
  const page = (await owner.call('GET', state)).json<{ total: number; keys: Value[] }>()
  expect(page).toMatchObject({
    total: 2,
    keys: [
      { key: 'n', client: '' },
      { key: 'a/b', client: 'pump' },
    ],
  })
  expect((await owner.call('GET', `${state}?client=pump`)).json()).toMatchObject({ total: 1 })
  expect((await owner.call('PUT', `${state}/n`, { value: 'x'.repeat(65_537) })).status).toBe(413)
  expect((await owner.call('PUT', `${state}/n`, { value: '*', encoding: 'base64' })).status).toBe(400)
  expect((await owner.call('PUT', `${state}/${'k'.repeat(257)}`, { value: 'x' })).status).toBe(400)
  expect((await owner.call('DELETE', `${state}/n?version=1`)).status).toBe(409)
  expect((await owner.call('DELETE', `${state}/n`)).status).toBe(204)
  expect((await owner.call('DELETE', `${state}/n`)).status).toBe(204)
  expect((await get(id, 'n')).status).toBe(404)
  const { rows } = await sql`SELECT keys, bytes FROM task_state_sizes z JOIN tasks t ON t.key = z.task_key
    WHERE t.id = ${id}`.execute(tenant.database.db)
  expect(rows).toEqual([{ keys: 1, bytes: 5 }])
})

test('others do not see the state of a task, and readers do not write it', async () => {
  const id = await taskWith(await coreCounter())
  await add(id, 1)
  const stranger = await tenant.api.newUser()
  expect((await stranger.call('GET', `/tasks/${id}/state/n`)).status).toBe(404)
  expect((await stranger.call('PUT', `/tasks/${id}/state/n`, { value: 'x' })).status).toBe(404)
  const reader = await tenant.newMember(tenant.owner.call, tenant.domain, ['task_read'])
  expect((await reader.call('GET', `/tasks/${id}/state/n`)).status).toBe(200)
  expect((await reader.call('PUT', `/tasks/${id}/state/n`, { value: 'x' })).status).toBe(403)
  expect((await reader.call('DELETE', `/tasks/${id}/state/n`)).status).toBe(403)
})

test('the state of a task is deleted with it', async () => {
  const id = await taskWith(await coreCounter())
  await add(id, 1)
  const { rows } = await sql<{ key: number }>`SELECT key FROM tasks WHERE id = ${id}`.execute(tenant.database.db)
  expect((await tenant.owner.call('DELETE', `/tasks/${id}?force=true`)).status).toBe(204)
  const left = await sql`SELECT FROM task_state WHERE task_key = ${rows[0]?.key}`.execute(tenant.database.db)
  expect(left.rows).toEqual([])
})

async function newDevice(channel: string): Promise<{ id: string; call: Caller }> {
  const { call } = tenant.owner
  const client = (await call('POST', `/${tenant.domain}/clients`, { name: 'device' })).json<{
    id: string
    credentials: { secret: string }
  }>()
  const pair = { client_ids: [client.id], channel_ids: [channel], types: ['publish'] }
  expect((await call('POST', `/${tenant.domain}/channels/connect`, pair)).status).toBeLessThan(300)
  return { id: client.id, call: tenant.api.as(`Client ${client.credentials.secret}`) }
}

test('each client has a bucket, and a run without a message has none', async () => {
  const { owner, domain } = tenant
  const channel = await tenant.newChannel(owner.call, domain)
  const trigger = { channel_id: channel, order: 'channel' }
  // It is called with the value and the time of a record.
  const module = await moduleFromText(`(module
    (import "skein" "state_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
    (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1) (data (i32.const 100) "sum")
    (func (export "add") (param $value f64) (param $time f64) (result i32) (local $code i32)
      (local.set $code (call $get (i32.const 1) (i32.const 100) (i32.const 3) (i32.const 0) (i32.const 1)))
      (if (i32.eq (local.get $code) (i32.const -3)) (then (i32.store8 (i32.const 0) (i32.const 48))))
      (i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.trunc_f64_s (local.get $value))))
      (call $set (i32.const 1) (i32.const 100) (i32.const 3) (i32.const 0) (i32.const 1))))`)
  const id = await taskWith(module, { trigger })
  const [one, other] = [await newDevice(channel), await newDevice(channel)]
  for (const [device, value] of [
    [one, 1],
    [other, 2],
    [one, 3],
  ] as const)
    await tenant.publish(device.call, domain, channel, [{ n: 'r', v: value }])
  const sumOf = async (client: string) => (await get(id, 'sum', `?client=${client}`)).json<Partial<Value>>().value
  await until(
    'both sums',
    async () => [await sumOf(one.id), await sumOf(other.id)].join(' '),
    (sums) => sums === '4 2',
  )
  const invoked = (await owner.call('POST', `/tasks/${id}/invoke`, { inputs: [1, 0] })).json<Ended>()
  // not_found of `state_get`, and of `state_set`.
  expect(invoked).toMatchObject({ results: [-3] })
})

test('an interface of wasi:keyvalue that is not served is refused at upload', async () => {
  const id = await taskWith(await coreCounter())
  const watcher = await componentCounter('0.3.0')
  const refused = await upload(id, watcher)
  expect(refused.status).toBe(400)
  expect(JSON.stringify(refused.body)).toContain('wasi:keyvalue in 0.2.0-draft and 0.2.0-draft2')
})
