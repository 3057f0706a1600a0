// task-manager.md sections 1 and 2: one task from its creation to its result
import { afterAll, expect, test } from 'vitest'
import { moduleFromText } from '../worker/pool.ts'
import { exampleModule, startSite, until } from './support.ts'

const { worker, client, close } = await startSite()
afterAll(close)

test('a new task is pending, with zero times and its defaults', async () => {
  const { status, body, headers } = await client.post('/tasks', { name: 'add', inputs: [1, 2] })
  expect(status).toBe(201)
  expect(headers['location']).toBe(`/tasks/${String(body['id'])}`)
  expect(body).toMatchObject({
    name: 'add',
    state: 0,
    inputs: [1, 2],
    cli_args: null,
    on_lost: 'requeue',
    timeout: '5m',
  })
  expect(body).toMatchObject({ start_time: '0001-01-01T00:00:00Z', finish_time: '0001-01-01T00:00:00Z' })
})

test('add is uploaded, started, runs on the worker and its result is recorded', async () => {
  const id = await client.task('add', { inputs: [2, 40] })
  const started = await client.post(`/tasks/${id}/start`)
  expect(started).toMatchObject({ status: 200, body: { started: true } })
  expect(await client.ended(id)).toMatchObject({
    state: 3,
    results: [42],
    error: null,
    reason: null,
    run_id: started.body['run_id'],
  })
  const { body: task } = await client.get(`/tasks/${id}`)
  expect(task['state']).toBe(3)
  expect(String(task['start_time']) > '2020').toBe(true)
  expect(String(task['finish_time']) >= String(task['start_time'])).toBe(true)
  const { body: page } = await client.get(`/tasks/${id}/runs`)
  expect(page).toMatchObject({
    total: 1,
    runs: [{ kind: 'start', state: 3, attempt: 1, worker_id: worker.id, results: [42] }],
  })
})

test('a single run shows what it was started with, up to 256 KiB', async () => {
  const id = await client.task('add', { inputs: [2, 40] })
  const { body: own } = await client.post(`/tasks/${id}/start`)
  await client.ended(id)
  const { body: given } = await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2], cli_args: ['--fast'] })
  const runOf = async (run: unknown) => (await client.get(`/tasks/${id}/runs/${String(run)}`)).body
  expect(await runOf(own['run_id'])).toMatchObject({ function: 'add', inputs: [2, 40] })
  expect(await runOf(own['run_id'])).not.toHaveProperty('cli_args')
  expect(await runOf(given['run_id'])).toMatchObject({ inputs: [1, 2], cli_args: ['--fast'] })
  const large = Array.from({ length: 10 }, () => 'x'.repeat(30_000))
  const { body: many } = await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2], cli_args: large })
  const shown = await runOf(many['run_id'])
  expect(shown).not.toHaveProperty('inputs')
  expect(shown['input_bytes']).toBeGreaterThan(300_000)
  const { body: page } = await client.get(`/tasks/${id}/runs`)
  expect((page['runs'] as object[]).some((run) => 'inputs' in run || 'function' in run)).toBe(false)
})

test('a task says on request how often it runs, and how often it fails', async () => {
  const id = await client.task('add', { inputs: [2, 40] })
  const recent = async () => (await client.get(`/tasks/${id}?recent=true`)).body['recent_runs']
  expect(await recent()).toEqual({ runs: 0, failed: 0, seconds: 0 })
  await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] })
  await client.put(`/tasks/${id}`, { function: 'no_such' })
  await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] })
  await client.put(`/tasks/${id}`, { function: 'add', timeout: '5s' })
  await client.post(`/tasks/${id}/invoke`, { inputs: [1, 2] })
  const found = await recent()
  expect(found).toMatchObject({ failed: 0 })
  expect((found as { runs: number }).runs).toBe(2)
  expect((found as { seconds: number }).seconds).toBeLessThan(60)
  const failing = await client.task('endless', { timeout: '200ms' })
  await client.post(`/tasks/${failing}/start`)
  await client.ended(failing)
  expect((await client.get(`/tasks/${failing}?recent=true`)).body['recent_runs']).toMatchObject({ runs: 1, failed: 1 })
  expect((await client.get(`/tasks/${failing}`)).body).not.toHaveProperty('recent_runs')
})

test('the record of a task carries results, error, reason and run_id of its last run', async () => {
  const id = await client.task('add', { inputs: [2, 40] })
  const fresh = (await client.get(`/tasks/${id}`)).body
  expect(fresh).toMatchObject({ results: null, error: null, reason: null })
  expect(fresh['run_id']).toBeUndefined()
  const { body: started } = await client.post(`/tasks/${id}/start`)
  await client.ended(id)
  const good = { state: 3, results: [42], error: null, reason: null, run_id: started['run_id'] }
  expect((await client.get(`/tasks/${id}`)).body).toMatchObject(good)
  const { body: page } = await client.get('/tasks?order=created_at&dir=desc&limit=1')
  expect((page['tasks'] as object[])[0]).toMatchObject({ id, ...good })
  const failing = await client.task('endless', { timeout: '200ms' })
  await client.post(`/tasks/${failing}/start`)
  await client.ended(failing)
  expect((await client.get(`/tasks/${failing}`)).body).toMatchObject({
    state: 4,
    results: null,
    reason: 'timeout',
    error: expect.stringContaining('200') as string,
  })
  await client.put(`/tasks/${id}`, { inputs: [1, 1] })
  expect((await client.get(`/tasks/${id}`)).body).toMatchObject({ state: 0, results: null })
})

test('the upload shows what the module exports and imports', async () => {
  const { body } = await client.post('/tasks', { name: 'add' })
  const uploaded = await client.upload(String(body['id']), exampleModule('add'))
  expect(uploaded.body['module']).toMatchObject({
    kind: 'core',
    exports: [{ name: 'add', kind: 'function', params: ['i32', 'i32'], results: ['i32'] }],
  })
})

test('invoke starts and waits in one call and does not change the state of the task', async () => {
  const id = await client.task('fibonacci')
  const { status, body } = await client.post(`/tasks/${id}/invoke`, { inputs: [20] })
  expect(status).toBe(200)
  expect(body).toMatchObject({ results: [6765], worker_id: worker.id, state: 3, reason: null })
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(0)
})

test('any number of invocations run concurrently, each as its own run', async () => {
  const id = await client.task('add')
  const sums = await Promise.all(
    Array.from({ length: 100 }, (_, index) => client.post(`/tasks/${id}/invoke`, { inputs: [index, 1] })),
  )
  expect(sums.map(({ body }) => body['results'])).toEqual(Array.from({ length: 100 }, (_, index) => [index + 1]))
  expect((await client.get(`/tasks/${id}/runs?limit=1`)).body['total']).toBe(100)
})

test('a command gets its arguments and answers with exit code and output', async () => {
  const id = await client.task('hello', { cli_args: ['world'] })
  const { body } = await client.post(`/tasks/${id}/invoke`)
  expect(body).toMatchObject({
    state: 3,
    results: { exit_code: 0, stdout: expect.stringContaining('world') as string },
  })
  await client.post(`/tasks/${id}/start`)
  await client.ended(id)
  const logs = await until(
    'the output',
    () => client.get(`/tasks/${id}/logs`),
    ({ body: { text } }) => String(text).includes('world'),
  )
  expect(String(logs.headers['content-type'])).toContain('text/plain')
})

/** Writes 2 MiB to its standard output. */
const TALKATIVE = `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start") (local $count i32)
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 65536))
    (memory.fill (i32.const 16) (i32.const 120) (i32.const 65536))
    (loop $again
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $count) (i32.const 32))))))`
const MIB = 1_048_576

test.each([
  [1024, 1024],
  [null, MIB],
  [4 * MIB, 2 * MIB],
])(
  'with max_output_bytes of %s a run that writes 2 MiB keeps %i bytes, and reports that the rest was cut',
  async (bound, kept) => {
    const created = await client.post('/tasks', { name: 'talkative', max_output_bytes: bound })
    const id = String(created.body['id'])
    expect(created.body['max_output_bytes']).toBe(bound ?? MIB)
    await client.upload(id, Buffer.from(await moduleFromText(TALKATIVE)))
    await client.post(`/tasks/${id}/start`)
    const { results } = await client.ended(id)
    const { body } = await client.get(`/tasks/${id}/runs?limit=1`)
    const isTruncated = kept < 2 * MIB
    expect((body['runs'] as unknown[])[0]).toMatchObject({ output_truncated: isTruncated })
    const { stdout } = results as { stdout: string }
    const mark = isTruncated ? `\n[truncated: ${2 * MIB - kept} more bytes]\n` : ''
    expect(stdout === 'x'.repeat(kept) + mark).toBe(true)
    const end = isTruncated ? `x\n[truncated at ${kept} bytes]\n` : 'x'
    await until(
      'the end of the output',
      () => client.get(`/tasks/${id}/logs`),
      ({ body: { text } }) => String(text).length === kept - 1 + end.length && String(text).endsWith(end),
    )
  },
)

test('the largest max_output_bytes works: a run that prints as much ends with what fits into a result', async () => {
  const created = await client.post('/tasks', { name: 'talkative', max_output_bytes: 16 * MIB })
  const id = String(created.body['id'])
  await client.upload(id, Buffer.from(await moduleFromText(TALKATIVE.replace('i32.const 32)', 'i32.const 256)'))))
  await client.post(`/tasks/${id}/start`)
  expect((await client.ended(id))['state']).toBe(3)
  const { body } = await client.get(`/tasks/${id}/runs?limit=1`)
  // The JSON of the result has a few bytes more than the output.
  expect((body['runs'] as unknown[])[0]).toMatchObject({ state: 3, reason: null, output_truncated: true })
  const { stdout } = (await client.results(id))['results'] as { stdout: string }
  expect(stdout.length).toBeGreaterThan(16 * MIB - 1024)
  expect(stdout.endsWith(`x\n[truncated: a result has at most ${16 * MIB} bytes]\n`)).toBe(true)
})

test.each([1023, 16 * MIB + 1, 'much'])('a max_output_bytes of %s is 400', async (bound) => {
  expect((await client.post('/tasks', { name: 'add', max_output_bytes: bound })).status).toBe(400)
})

/** Writes what it reads, and then ends as the trap says. */
const cat = (end: string) => `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $n i32)
    (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 1000))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 12))) ${end}))`

test('an invocation takes standard input, and a failure shows the last lines of stderr and the stack', async () => {
  const [echo, fail] = await Promise.all(
    ['', 'unreachable'].map(async (end) => {
      const { body } = await client.post('/tasks', { name: 'cat' })
      await client.upload(String(body['id']), Buffer.from(await moduleFromText(cat(end))))
      return String(body['id'])
    }),
  )
  expect((await client.post(`/tasks/${echo}/invoke`, { stdin: 'größe' })).body['results']).toMatchObject({
    stderr: 'größe',
  })
  const binary = await client.post(`/tasks/${echo}/invoke`, { stdin: { base64: '/wBj' } })
  expect(binary.body['results']).toMatchObject({ stderr: { base64: '/wBj' } })
  await until(
    'the bytes of the output',
    () => client.get(`/tasks/${echo}/logs?stream=stderr`),
    ({ headers }) => headers['content-type'] === 'application/octet-stream',
  )
  expect((await client.post(`/tasks/${echo}/invoke`, { stdin: { base64: 'A?' } })).status).toBe(400)
  const { body } = await client.post(`/tasks/${fail}/invoke`, { stdin: 'panicked at line 3' })
  const failure = {
    reason: 'trap',
    error: 'unreachable\npanicked at line 3',
    frames: [expect.stringMatching(/function 2\)?$/) as string],
  }
  expect(body).toMatchObject(failure)
  expect((await client.get(`/tasks/${fail}/runs/${String(body['run_id'])}`)).body).toMatchObject(failure)
})

test('logs show the newest run, including an invoked one', async () => {
  const id = await client.task('hello')
  expect((await client.get(`/tasks/${id}/logs?follow=true`)).status).toBe(404)
  await client.post(`/tasks/${id}/invoke`, { cli_args: ['invoked'] })
  await until(
    'the output of the invocation',
    () => client.get(`/tasks/${id}/logs`),
    ({ body }) => String(body['text']).includes('invoked'),
  )
})

test('an endless loop ends as failed with the reason timeout', async () => {
  const id = await client.task('endless', { timeout: '200ms' })
  await client.post(`/tasks/${id}/start`)
  expect(await client.ended(id)).toMatchObject({ state: 4, reason: 'timeout', results: null })
})

test('an active task is not started again, edited, deleted or given another module', async () => {
  const id = await client.task('endless', { timeout: '30s' })
  await client.post(`/tasks/${id}/start`)
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  expect((await client.post(`/tasks/${id}/start`)).body).toMatchObject({ error: 'invalid_state' })
  expect((await client.put(`/tasks/${id}`, { name: 'other' })).status).toBe(409)
  expect((await client.delete(`/tasks/${id}`)).status).toBe(409)
  expect((await client.upload(id, exampleModule('add'))).status).toBe(409)
  expect(await client.post(`/tasks/${id}/stop`)).toMatchObject({ status: 200, body: { stopped: true } })
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(6)
  expect((await client.delete(`/tasks/${id}`)).status).toBe(204)
  expect((await client.get(`/tasks/${id}`)).status).toBe(404)
})

test('deletion with force stops a running task first', async () => {
  const id = await client.task('endless', { timeout: '30s' })
  await client.post(`/tasks/${id}/start`)
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
  )
  expect((await client.delete(`/tasks/${id}?force=true`)).status).toBe(204)
})

test('stopping an inactive task changes nothing', async () => {
  const id = await client.task('add', { inputs: [1, 1] })
  expect((await client.post(`/tasks/${id}/stop`)).status).toBe(200)
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(0)
})

test.each([
  ['too few inputs', { inputs: [1] }, 'add takes 2 inputs (i32, i32), not 1'],
  ['an input out of range', { inputs: [1, 2 ** 40] }, 'input 1 must be an integer'],
  ['a fraction for an integer', { inputs: [1, 0.5] }, 'input 1 must be an integer'],
])('a start with %s is 422 with the inputs of the function', async (_name, body, message) => {
  const id = await client.task('add')
  const answer = await client.post(`/tasks/${id}/start`, body)
  expect(answer.status).toBe(422)
  expect(String(answer.body['message'])).toContain(message)
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(0)
})

test('a start without a module, or of a function that is not exported, is 422', async () => {
  const { body } = await client.post('/tasks', { name: 'empty' })
  expect((await client.post(`/tasks/${String(body['id'])}/start`)).status).toBe(422)
  const id = await client.task('add', { function: 'subtract' })
  const answer = await client.post(`/tasks/${id}/start`, { inputs: [1, 2] })
  expect(answer.body).toMatchObject({
    error: 'unprocessable',
    message: 'the module exports no function subtract; it exports add',
  })
})

test('an upload of garbage is 400, of an unknown task 404, in the wrong field 400, without a form 415', async () => {
  const { body } = await client.post('/tasks', { name: 'x' })
  const id = String(body['id'])
  expect(await client.upload(id, Buffer.from('not a module'))).toMatchObject({
    status: 400,
    body: { error: 'malformed' },
  })
  expect(await client.upload(id, exampleModule('add').subarray(0, 20))).toMatchObject({ status: 400 })
  const emptyComponent = Buffer.from('0061736d0d000100', 'hex')
  expect(await client.upload(id, emptyComponent)).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('the component exports no function') as string },
  })
  expect(await client.upload(id, exampleModule('add'), 'module')).toMatchObject({ status: 400 })
  expect(await client.upload('00000000-0000-4000-8000-000000000000', exampleModule('add'))).toMatchObject({
    status: 404,
  })
  expect(await client.put(`/tasks/${id}/upload`, { file: 'x' })).toMatchObject({ status: 415 })
})

test('fields of a workflow are refused by name outside of one, and unknown ones are ignored', async () => {
  expect(await client.post('/tasks', { name: 'x', depends_on: ['y'] })).toMatchObject({
    status: 422,
    body: { error: 'unprocessable' },
  })
  expect(await client.post('/tasks', { name: 'x', broadcast: false, colour: 'red' })).toMatchObject({ status: 201 })
})

test.each([
  ['no name', {}],
  ['inputs that are no list', { name: 'x', inputs: 3 }],
  ['an input that only a workflow has', { name: 'x', inputs: [{ from: 'y', result: 0 }] }],
  ['a schedule that is none', { name: 'x', schedule: 'sometimes' }],
  ['a time zone that is none', { name: 'x', schedule: '* * * * *', timezone: 'Mars' }],
  ['an unknown catch_up', { name: 'x', catch_up: 'twice' }],
  ['a priority out of range', { name: 'x', priority: 101 }],
  ['a timeout that is no duration', { name: 'x', timeout: 'soon' }],
  ['a memory limit of nothing', { name: 'x', memory_limit: 0 }],
  ['an unknown on_lost', { name: 'x', on_lost: 'shrug' }],
  ['an environment with a name that would end early', { name: 'x', env: { 'A=B': 'x' } }],
  ['an environment without a name', { name: 'x', env: { '': 'x' } }],
  ['an environment of no text, whatever its name', { name: 'x', env: { 'A\nB': { no: 'text' } } }],
  ['a label without a name', { name: 'x', labels: { '': 'x' } }],
  ['a worker id that is none', { name: 'x', worker_id: 'w1' }],
])('a task with %s is 400', async (_name, body) => {
  expect(await client.post('/tasks', body)).toMatchObject({ status: 400, body: { error: 'malformed' } })
})

test('a repeated Idempotency-Key starts once, and with another body it is 422', async () => {
  const id = await client.task('add', { inputs: [1, 2] })
  const headers = { 'idempotency-key': 'k1' }
  const [first, second] = await Promise.all([
    client.post(`/tasks/${id}/start`, {}, headers),
    client.post(`/tasks/${id}/start`, {}, headers),
  ])
  expect(first.body).toEqual(second.body)
  await client.ended(id)
  expect((await client.post(`/tasks/${id}/start`, {}, headers)).body).toEqual(first.body)
  expect((await client.post(`/tasks/${id}/start`, { inputs: [3, 4] }, headers)).status).toBe(422)
  expect((await client.get(`/tasks/${id}/runs`)).body['total']).toBe(1)
})

test('an edit of an ended task makes it pending again, and absent fields stay', async () => {
  const id = await client.task('add', { inputs: [1, 2], metadata: { a: 1 } })
  await client.post(`/tasks/${id}/start`)
  await client.ended(id)
  const { body } = await client.put(`/tasks/${id}`, { inputs: [5, 5] })
  expect(body).toMatchObject({
    state: 0,
    inputs: [5, 5],
    metadata: { a: 1 },
    name: 'add',
    finish_time: '0001-01-01T00:00:00Z',
  })
  expect(await client.results(id)).toMatchObject({ state: 0, results: null, run_id: null })
})

test('an invocation sees every edit of its task that was answered before, and its deletion', async () => {
  const id = await client.task('add', { inputs: [0, 1] })
  for (const value of [1, 2, 3, 4]) {
    // The second one finds the task remembered.
    await client.post(`/tasks/${id}/invoke`)
    await client.put(`/tasks/${id}`, { inputs: [value, 1] })
    expect((await client.post(`/tasks/${id}/invoke`)).body['results']).toEqual([value + 1])
  }
  const both = await Promise.all([
    client.post(`/tasks/${id}/start`),
    ...Array.from({ length: 10 }, () => client.post(`/tasks/${id}/invoke`)),
  ])
  expect(both.map(({ status }) => status)).toEqual(both.map(() => 200))
  await client.ended(id)
  expect((await client.delete(`/tasks/${id}`)).status).toBe(204)
  expect((await client.post(`/tasks/${id}/invoke`)).status).toBe(404)
})

test('a listing filters by state, name and metadata, and gives total and page', async () => {
  const marker = `listing-${Date.now()}`
  for (const index of [1, 2, 3])
    await client.post('/tasks', { name: `${marker}-${index}`, metadata: { marker, index } })
  const page = await client.get(`/tasks?name=${marker}&limit=2&order=name&dir=desc`)
  expect(page.body).toMatchObject({
    total: 3,
    limit: 2,
    offset: 0,
    tasks: [{ name: `${marker}-3` }, { name: `${marker}-2` }],
  })
  const filtered = await client.get(
    `/tasks?metadata=${encodeURIComponent(JSON.stringify({ marker, index: 2 }))}&state=0`,
  )
  expect(filtered.body).toMatchObject({ total: 1, tasks: [{ name: `${marker}-2` }] })
  expect((await client.get('/tasks?limit=101')).status).toBe(400)
})

test('the worker is listed alive with its slots and its heartbeats', async () => {
  const { body } = await client.get('/workers')
  expect(body).toMatchObject({
    total: 1,
    offset: 0,
    limit: 100,
    workers: [
      {
        id: worker.id,
        alive: true,
        slots: 2,
        state: 'alive',
        runtimes: ['core', 'wasi-preview1', 'component', 'state', 'http'],
      },
    ],
  })
  const beats = await until(
    'ten beats',
    () => client.get(`/workers/${worker.id}`),
    ({ body: seen }) => (seen['alive_history'] as string[]).length === 10,
  )
  expect((beats.body['alive_history'] as string[]).toSorted((left, right) => (left < right ? -1 : 1))).toEqual(
    beats.body['alive_history'],
  )
  expect((await client.get('/workers/00000000-0000-4000-8000-000000000000')).status).toBe(404)
})

test('a task without a suitable worker stays scheduled, and its placement reports why', async () => {
  const id = await client.task('add', { inputs: [1, 2], labels: { zone: 'moon' } })
  await client.post(`/tasks/${id}/start`)
  const { body } = await client.get(`/tasks/${id}/placement`)
  expect(body).toMatchObject({
    reason: 'no worker fits',
    workers: [{ worker_id: worker.id, chosen: false, reason: 'its label zone is not set, not moon' }],
  })
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(1)
  await client.post(`/tasks/${id}/stop`)
  expect((await client.get(`/tasks/${id}`)).body['state']).toBe(6)
})

test('GET with wait returns when the run has ended, and at the deadline with the current task', async () => {
  const id = await client.task('add', { inputs: [1, 2] })
  // Nothing runs: the answer comes at once.
  expect(await client.get(`/tasks/${id}?wait=60s`)).toMatchObject({ status: 200, body: { state: 0 } })
  for (let run = 0; run < 3; run++) {
    await client.post(`/tasks/${id}/start`)
    expect(await client.get(`/tasks/${id}?wait=60s`)).toMatchObject({ body: { state: 3, results: [3] } })
  }
  const endless = await client.task('endless', { timeout: '1h' })
  await client.post(`/tasks/${endless}/start`)
  const state = (await client.get(`/tasks/${endless}?wait=50ms`)).body['state']
  expect([1, 2]).toContain(state)
  const waiting = client.get(`/tasks/${endless}?wait=60s`)
  await client.post(`/tasks/${endless}/stop`)
  expect((await waiting).body['state']).toBe(6)
  for (const wait of ['61s', 'soon', '-1s'])
    expect(await client.get(`/tasks/${id}?wait=${wait}`)).toMatchObject({ status: 400 })
})
