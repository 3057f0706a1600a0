// task-manager.md section 3, rules 3 to 6, with processes that are killed
import { rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { runProxy } from '../proxy/running-proxy.ts'
import { freePort } from '../harness/ports.ts'
import { startProgram, untilHealthy, type TestProcess } from './processes.ts'
import {
  SHORT_LEASE,
  clientOf,
  exampleModule,
  masterKey,
  startDatabase,
  startTestManager,
  leaveWorker,
  startTestWorker,
  temporaryFolder,
  until,
} from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

let db: TestDatabase
const closers: (() => Promise<unknown>)[] = []
const folders: string[] = []

beforeAll(async () => {
  db = await startDatabase()
}, 60_000)

afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

afterAll(async () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  await db.close()
})

async function manager(): Promise<TestManager> {
  const started = await startTestManager(db.database, { timing: SHORT_LEASE })
  closers.push(() => started.close())
  return started
}

function workerProcess(
  joins: { grpcAddress: string; workerToken: string },
  name: string,
  folder = temporaryFolder('skein-killed-'),
): TestProcess {
  folders.push(folder)
  const started = startProgram('worker', {
    SKEIN_DATA_DIR: folder,
    SKEIN_WORKER_MANAGER: joins.grpcAddress,
    SKEIN_WORKER_TOKEN: joins.workerToken,
    SKEIN_WORKER_NAME: name,
    SKEIN_WORKER_LABELS: `name=${name}`,
    SKEIN_WORKER_SLOTS: '1',
    SKEIN_WORKER_DRAIN: '100ms',
  })
  closers.push(() => started.kill())
  return started
}

/** A manager to be killed and started again, on the same ports and database. */
async function managerProcess() {
  const [httpPort, grpcPort] = [await freePort(), await freePort()]
  const address = db.address as { host: string; user: string; password: string; database: string; port: number }
  const folder = temporaryFolder('skein-manager-')
  folders.push(folder)
  const joins = { grpcAddress: `127.0.0.1:${grpcPort}`, workerToken: 'token-of-the-test' }
  const environment = {
    SKEIN_DATA_DIR: folder,
    SKEIN_DATABASE_URL: `postgres://${address.user}:${encodeURIComponent(address.password)}@localhost:${address.port}/${address.database}?host=${encodeURIComponent(address.host)}`,
    SKEIN_DATABASE_UNSAFE: 'true',
    SKEIN_SECRET_KEY: masterKey.toString('base64'),
    SKEIN_MANAGER_HTTP_PORT: String(httpPort),
    SKEIN_MANAGER_GRPC_PORT: String(grpcPort),
    SKEIN_WORKER_TOKEN: joins.workerToken,
    SKEIN_WORKER_HEARTBEAT: '250ms',
    SKEIN_WORKER_LEASE: '20s',
    SKEIN_MANAGER_AUTH: 'off',
    SKEIN_LOG_LEVEL: 'debug',
  }
  const base = `http://127.0.0.1:${httpPort}`
  const proxy = await runProxy({ environment: { SKEIN_PROXY_MANAGER_URL: base } })
  closers.push(async () => await proxy[Symbol.asyncDispose]())
  const ofProxy = proxy.managerEnvironment
  return {
    base,
    joins,
    async start(): Promise<TestProcess> {
      const program = startProgram('manager', { ...environment, ...ofProxy })
      closers.push(() => program.kill())
      await untilHealthy(base, program)
      return program
    },
  }
}

async function aliveWorker(client: ReturnType<typeof clientOf>, name: string): Promise<string> {
  const { body } = await until(
    `worker ${name}`,
    () => client.get(`/workers?status=alive&label=${encodeURIComponent(`name=${name}`)}`),
    ({ body: page }) => page['total'] === 1,
    60_000,
  )
  return String((body['workers'] as { id: string }[])[0]?.id)
}

test('kill -9 of the worker of a task: the task goes to another worker, where its timeout ends it', async () => {
  const host = await manager()
  const client = clientOf(host.app)
  const first = workerProcess(host, 'first')
  await aliveWorker(client, 'first')
  // Long enough that the kill comes first, however slow the machine is.
  const id = await client.task('endless', { timeout: '8s', retry: { backoff: '10ms' } })
  await client.post(`/tasks/${id}/start`)
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
    60_000,
  )
  await first.kill()
  const second = await startTestWorker(host, { name: 'second' })
  closers.push(() => second.close())
  expect(await client.ended(id, 60_000)).toMatchObject({ state: 4, reason: 'timeout' })
  const { body } = await client.get(`/tasks/${id}/runs`)
  expect(body).toMatchObject({
    total: 1,
    runs: [{ attempt: 2, worker_id: second.id, earlier_attempts: [{ attempt: 1, reason: 'worker_lost' }] }],
  })
}, 300_000)

test('kill -9 of the only worker of a task that must not run twice: it fails with worker_lost', async () => {
  const host = await manager()
  const client = clientOf(host.app)
  const worker = workerProcess(host, 'only')
  const workerId = await aliveWorker(client, 'only')
  const id = await client.task('endless', { timeout: '1m', on_lost: 'fail', labels: { name: 'only' } })
  await client.post(`/tasks/${id}/start`)
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
    60_000,
  )
  await worker.kill()
  expect(await client.ended(id)).toMatchObject({
    state: 4,
    reason: 'worker_lost',
    error: 'the lease of the worker expired',
  })
  expect((await client.get(`/workers/${workerId}`)).body).toMatchObject({ alive: false, state: 'dead', task_count: 0 })
}, 300_000)

test('a killed worker that starts again is the same worker, and its lost run is repeated at once', async () => {
  const host = await manager()
  const client = clientOf(host.app)
  const folder = temporaryFolder('skein-killed-')
  const before = workerProcess(host, 'phoenix', folder)
  const workerId = await aliveWorker(client, 'phoenix')
  // Nothing but the kill ends the first attempt.
  const id = await client.task('endless', { timeout: '5m', retry: { backoff: '1ms' }, labels: { name: 'phoenix' } })
  await client.post(`/tasks/${id}/start`)
  await until(
    'running',
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === 2,
    60_000,
  )
  await before.kill()
  workerProcess(host, 'phoenix', folder)
  const { body } = await until(
    'the second attempt',
    () => client.get(`/tasks/${id}/runs`),
    ({ body: page }) => {
      const [run] = page['runs'] as { attempt: number; state: number }[]
      return run?.attempt === 2 && run.state === 2
    },
    60_000,
  )
  await client.post(`/tasks/${id}/stop`)
  expect(body).toMatchObject({ runs: [{ worker_id: workerId, earlier_attempts: [{ reason: 'worker_lost' }] }] })
}, 300_000)

/** The same calls against a manager in a process of its own. */
function remote(base: string) {
  return {
    async call(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
      const init =
        body === undefined
          ? { method }
          : { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
      const response = await fetch(`${base}${path}`, { ...init, signal: AbortSignal.timeout(30_000) })
      const text = await response.text()
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
      return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>)
    },
    async task(example: string, fields: Record<string, unknown>): Promise<string> {
      const { id } = await this.call('POST', '/tasks', { name: example, ...fields })
      const form = new FormData()
      form.append('file', new Blob([new Uint8Array(exampleModule(example))]), 'module.wasm')
      const uploaded = await fetch(`${base}/tasks/${String(id)}/upload`, { method: 'PUT', body: form })
      if (!uploaded.ok) throw new Error(await uploaded.text())
      return String(id)
    },
  }
}

test('kill -9 of the manager during tasks: they continue, and each result is recorded once after its return', async () => {
  const { base, joins, start } = await managerProcess()
  const first = await start()
  const workerFolder = temporaryFolder('skein-worker-')
  folders.push(workerFolder)
  const worker: TestWorker = await startTestWorker(joins, { slots: 4, folder: workerFolder })
  closers.push(() => worker.close())
  const api = remote(base)
  const ids: string[] = []
  const runIds: string[] = []
  // Long enough that the kill comes first, however slow the machine is.
  for (let index = 0; index < 3; index++) ids.push(await api.task('endless', { timeout: '8s' }))
  for (const id of ids) {
    const { run_id: runId } = await api.call('POST', `/tasks/${id}/start`)
    runIds.push(String(runId))
  }
  await until(
    'all running',
    () => Promise.all(ids.map((id) => api.call('GET', `/tasks/${id}`))),
    (tasks) => tasks.every((task) => task['state'] === 2),
    60_000,
  )
  await first.kill()
  // They end while nobody listens: their results wait on the worker's disk.
  const spool = join(workerFolder, 'worker', 'spool')
  await until(
    'the spooled results',
    () => readFile(spool, 'latin1'),
    (spooled) => runIds.every((runId) => spooled.includes(runId)),
    60_000,
  )
  await start()
  for (const id of ids) {
    const ended = await until(
      `the end of ${id}`,
      () => api.call('GET', `/tasks/${id}/results`),
      ({ state }) => state === 4,
      60_000,
    )
    expect(ended).toMatchObject({ reason: 'timeout' })
    const runs = await api.call('GET', `/tasks/${id}/runs`)
    expect(runs).toMatchObject({ total: 1, runs: [{ attempt: 1, worker_id: worker.id, earlier_attempts: [] }] })
  }
}, 300_000)

test('kill -9 of the manager with ten thousand waiting and running runs: each ends and is recorded once', async () => {
  const { base, joins, start } = await managerProcess()
  const first = await start()
  const api = remote(base)
  const id = await api.task('add', { labels: { only: 'here' } })
  await leaveWorker(joins, 'only=here')
  for (let call = 0; call < 10; call++) {
    const inputs = Array.from({ length: 1000 }, (_, index) => [call * 1000 + index, 1])
    const { runs } = await api.call('POST', `/tasks/${id}/invoke-many`, { inputs, timeout: '1ms' })
    expect((runs as { state: number }[]).every(({ state }) => state === 1)).toBe(true)
  }
  const count = async (where: string) => {
    const { rows } = await db.database.pool.query<{ n: number }>(
      `SELECT count(*)::int AS n FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = $1 AND ${where}`,
      [id],
    )
    return rows[0]?.n ?? NaN
  }
  expect(await count('r.state = 1 AND r.queue_seq IS NOT NULL')).toBe(10_000)
  const worker = await startTestWorker(joins, { slots: 4, labels: 'only=here' })
  closers.push(() => worker.close())
  await until(
    'the first ends',
    () => count('r.state = 3'),
    (ended) => ended > 0,
    60_000,
  )
  await first.kill()
  const endedBefore = await count('r.state = 3')
  await start()
  await until(
    'all ends',
    () => count('r.next_check_at IS NULL'),
    (ended) => ended === 10_000,
    120_000,
  )
  expect(endedBefore).toBeLessThan(10_000)
  expect(await count(`r.state = 3 AND r.results->>0 = ((r.spec->'inputs'->>0)::int + 1)::text`)).toBe(10_000)
  const { rows } = await db.database.pool.query(
    `SELECT note->>1 AS run FROM task_events, json_array_elements(events) AS note
     WHERE note->>0 = 'run' AND note->>3 = '3' GROUP BY note->>1 HAVING count(*) > 1`,
  )
  expect(rows).toEqual([])
}, 300_000)

test('no run is lost or doubled while the connection of the run writer is cut again and again', async () => {
  const host = await manager()
  const client = clientOf(host.app)
  const worker = await startTestWorker(host, { slots: 4 })
  closers.push(() => worker.close())
  const id = await client.task('add')
  let isCutting = true
  const cutting = (async () => {
    // More and more rarely: on a busy machine a batch takes longer than the first pauses.
    for (let pauseMs = 100; isCutting; pauseMs *= 1.4) {
      await db.database.pool.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skein-run-writer'",
      )
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
    }
  })()
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, index) => client.post(`/tasks/${id}/invoke`, { inputs: [index, 1] })),
  )
  isCutting = false
  await cutting
  for (const [index, { status, body }] of answers.entries()) {
    if (status === 200) expect(body).toMatchObject({ results: [index + 1] })
    else expect(body).toMatchObject({ error: 'unavailable' })
  }
  expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThan(0)
  await until(
    'every run to end',
    () =>
      db.database.pool.query<{ open: number }>(
        `SELECT count(*) AS open FROM runs r JOIN tasks t ON t.key = r.task_key
         WHERE t.id = $1 AND r.next_check_at IS NOT NULL`,
        [id],
      ),
    ({ rows }) => rows[0]?.open === 0,
    60_000,
  )
}, 300_000)
