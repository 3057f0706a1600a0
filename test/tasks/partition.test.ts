// task-manager.md section 3, rules 3 and 6: workers that stand still, and networks that let nothing through
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { rmSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { startProgram } from './processes.ts'
import {
  SHORT_LEASE,
  clientOf,
  startDatabase,
  startTestManager,
  startTestWorker,
  temporaryFolder,
  until,
} from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

vi.setConfig({ testTimeout: 120_000 })
const DEADLINE_MS = 40_000

let db: TestDatabase
let host: TestManager
let client: ReturnType<typeof clientOf>
const closers: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  db = await startDatabase()
  host = await startTestManager(db.database, { timing: SHORT_LEASE })
  client = clientOf(host.app)
}, 60_000)

afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

afterAll(async () => {
  await host.close()
  await db.close()
})

/** A relay to the manager; while it is cut it drops all bytes without an error, like a firewall. */
async function startRelay() {
  const [name, port] = host.grpcAddress.split(':')
  const sockets = new Set<Socket>()
  let isCut = false
  const server = createServer((near) => {
    const far = connect({ host: name ?? '', port: Number(port) })
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => sockets.delete(socket))
    }
    near.on('data', (data) => far.write(data))
    far.on('data', (data) => near.write(data))
    near.on('end', () => far.end())
    far.on('end', () => near.end())
    if (isCut) for (const socket of [near, far]) socket.pause()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closers.push(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  })
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut() {
      isCut = true
      for (const socket of sockets) socket.pause()
    },
    heal() {
      isCut = false
      for (const socket of sockets) socket.resume()
    },
  }
}

const stateOf = (id: string, state: number) =>
  until(
    `state ${state}`,
    () => client.get(`/tasks/${id}`),
    ({ body }) => body['state'] === state,
    DEADLINE_MS,
  )

const runOf = async (id: string) =>
  ((await client.get(`/tasks/${id}/runs`)).body as { runs: Record<string, unknown>[] }).runs[0] ?? {}

const attemptOf = (id: string, attempt: number) =>
  until(
    `attempt ${attempt}`,
    () => runOf(id),
    (run) => run['attempt'] === attempt && run['state'] === 2,
    DEADLINE_MS,
  )

const aliveWith = (label: string) =>
  until(
    `a worker with ${label}`,
    () => client.get(`/workers?status=alive&label=${encodeURIComponent(label)}`),
    ({ body }) => body['total'] === 1,
    DEADLINE_MS,
  )

/** The worker is of use again: a task that is meant for it alone ends well. */
async function expectOfUse(label: string, value: string): Promise<void> {
  await aliveWith(`${label}=${value}`)
  const id = await client.task('add', { inputs: [1, 2], labels: { [label]: value } })
  await client.post(`/tasks/${id}/start`)
  expect(await client.ended(id, DEADLINE_MS)).toMatchObject({ state: 3, results: [3] })
}

test('a worker that is suspended for longer than its lease loses its task, and its later messages are ignored', async () => {
  const folder = temporaryFolder('skein-still-')
  const still = startProgram('worker', {
    SKEIN_DATA_DIR: folder,
    SKEIN_WORKER_MANAGER: host.grpcAddress,
    SKEIN_WORKER_TOKEN: host.workerToken,
    SKEIN_WORKER_NAME: 'still',
    SKEIN_WORKER_LABELS: 'name=still,pool=standing',
    SKEIN_WORKER_SLOTS: '1',
    SKEIN_WORKER_DRAIN: '100ms',
  })
  closers.push(async () => {
    await still.kill()
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  })
  await aliveWith('name=still')
  const id = await client.task('endless', { timeout: '8s', retry: { backoff: '10ms' }, labels: { pool: 'standing' } })
  await client.post(`/tasks/${id}/start`)
  await stateOf(id, 2)
  still.child.kill('SIGSTOP')
  const heir = await startTestWorker(host, { name: 'heir', labels: 'pool=standing' })
  closers.push(() => heir.close())
  await attemptOf(id, 2)
  // Its guest went on meanwhile, in a process of its own, and passes its timeout: there is an end to tell.
  still.child.kill('SIGCONT')
  expect(await client.ended(id, DEADLINE_MS)).toMatchObject({ state: 4, reason: 'timeout' })
  await expectOfUse('name', 'still')
  const { body } = await client.get(`/tasks/${id}/runs`)
  expect(body).toMatchObject({
    total: 1,
    runs: [{ attempt: 2, worker_id: heir.id, earlier_attempts: [{ attempt: 1, reason: 'worker_lost' }] }],
  })
})

test('a worker behind a blocked network loses its task, and joins again afterwards', async () => {
  const relay = await startRelay()
  const joins = { grpcAddress: relay.address, workerToken: host.workerToken }
  const cut = await startTestWorker(joins, { name: 'cut', labels: 'name=cut,pool=split' })
  closers.push(() => cut.close())
  const id = await client.task('endless', { timeout: '8s', retry: { backoff: '10ms' }, labels: { pool: 'split' } })
  await client.post(`/tasks/${id}/start`)
  await stateOf(id, 2)
  relay.cut()
  const heir = await startTestWorker(host, { name: 'heir', labels: 'pool=split' })
  closers.push(() => heir.close())
  await attemptOf(id, 2)
  relay.heal()
  expect(await client.ended(id, DEADLINE_MS)).toMatchObject({ state: 4, reason: 'timeout' })
  expect(await runOf(id)).toMatchObject({ attempt: 2, worker_id: heir.id })
  await expectOfUse('name', 'cut')
})

test('with on_lost wait the task is unknown during a partition and runs on after it, in the same attempt', async () => {
  const relay = await startRelay()
  const joins = { grpcAddress: relay.address, workerToken: host.workerToken }
  const cut = await startTestWorker(joins, { name: 'waits', labels: 'name=waits' })
  closers.push(() => cut.close())
  const id = await client.task('endless', { timeout: '5m', on_lost: 'wait', labels: { name: 'waits' } })
  await client.post(`/tasks/${id}/start`)
  await stateOf(id, 2)
  const before = await runOf(id)
  relay.cut()
  await stateOf(id, 7)
  relay.heal()
  await stateOf(id, 2)
  expect(await runOf(id)).toMatchObject({ id: before['id'], attempt: 1, worker_id: cut.id })
  await client.post(`/tasks/${id}/stop`)
  await stateOf(id, 6)
})
