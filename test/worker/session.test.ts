/** A worker against the protocol of task-manager.md section 3: what it says, when, and what it keeps. */
import { spawnSync } from 'node:child_process'
import { X509Certificate, createHash } from 'node:crypto'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { FailureReason, OnLost, RejectReason, WireTaskState } from '#proto/index.ts'
import { WORKER_SETTINGS, startWorker } from '#worker/index.ts'
import type { Worker } from '#worker/index.ts'
import { reachableFolder } from '#worker/isolation/index.ts'
import { until } from './pool.ts'
import { JOIN_TOKEN, ScriptedManager, TICKET, runRef } from './scripted-manager.ts'
import type { SaidOf } from './scripted-manager.ts'

const logger = createLogger({ name: 'test', level: 'fatal' })
let folder: string
let manager: ScriptedManager
let workers: Worker[]

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-worker-'))
  // Runners have users of their own where the tests run as root.
  chmodSync(folder, 0o755)
  manager = await ScriptedManager.start()
  workers = []
})
afterEach(async () => {
  await Promise.all(workers.map((worker) => worker.stop()))
  await manager[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true })
})

async function joinManager(environment: Record<string, string> = {}): Promise<Worker> {
  const config = readConfig(WORKER_SETTINGS, {
    SKEIN_DATA_DIR: folder,
    SKEIN_WORKER_MANAGER: manager.address,
    SKEIN_WORKER_TOKEN: JOIN_TOKEN,
    SKEIN_WORKER_SLOTS: '2',
    SKEIN_WORKER_DRAIN: '50ms',
    ...environment,
  })
  const timing = { reconnectMinMs: 10, reconnectMaxMs: 50, leaseCheckMs: 10 }
  const worker = await startWorker({ config, logger, readiness: new Readiness(), version: '0.1.0', timing })
  workers.push(worker)
  return worker
}

/** Breaks the stream, and gives what the worker says first in the session that follows. */
async function nextHello() {
  const before = manager.heard('hello').length
  manager.breakStream()
  await until(() => manager.heard('hello').length > before)
  return manager.heard('hello')[before] as SaidOf<'hello'>
}

describe('joining', () => {
  test('registers with the token, sends Hello first and heartbeats from then on', async () => {
    const worker = await joinManager({ SKEIN_WORKER_NAME: 'edge', SKEIN_WORKER_LABELS: 'zone=north' })
    expect(worker.id).toBe('worker-1')
    expect(manager.registrations[0]).toMatchObject({
      joinToken: JOIN_TOKEN,
      workerId: '',
      name: 'edge',
      labels: { zone: 'north' },
      slots: 2,
      runtimes: ['core', 'wasi-preview1', 'component', 'state', 'http'],
      version: '0.1.0',
    })
    await until(() => manager.heard('heartbeat').length >= 2)
    expect(manager.said[0]).toMatchObject({ case: 'hello', value: { workerId: 'worker-1', sessionEpoch: 1n } })
    expect(
      manager
        .heard('heartbeat')
        .map(({ sequence }) => sequence)
        .slice(0, 2),
    ).toEqual([1n, 2n])
    expect(manager.heard('heartbeat')[0]).toMatchObject({ freeSlots: 2, running: 0 })
  })

  test('rejoins as the same worker with another boot id', async () => {
    await (await joinManager()).stop()
    await joinManager({ SKEIN_WORKER_TOKEN: '' })
    const [first, second] = manager.registrations
    expect(second).toMatchObject({ workerId: 'worker-1', workerSecret: 'secret-1' })
    expect(second?.bootId).not.toBe(first?.bootId)
  })

  test('with an unknown token is refused at once', async () => {
    await expect(joinManager({ SKEIN_WORKER_TOKEN: 'guess' })).rejects.toMatchObject({ kind: 'unauthenticated' })
  })

  test('twice from one folder is refused, with the setting', async () => {
    await joinManager()
    const script = `const { lockWorkerFolder } = await import('#worker/identity/folder-lock.ts'); await lockWorkerFolder(process.argv[1])`
    const other = spawnSync(process.execPath, ['--input-type=module', '-e', script, join(folder, 'worker')], {
      encoding: 'utf8',
    })
    expect(other.stderr).toContain('SKEIN_WORKER_DATA_DIR')
  })

  test('waits for a manager that is not available yet', async () => {
    const { address } = manager
    await manager[Symbol.asyncDispose]()
    const joining = joinManager({ SKEIN_WORKER_MANAGER: address })
    manager = new ScriptedManager()
    await manager.listen(address)
    expect((await joining).id).toBe('worker-1')
  })
})

describe('TLS', () => {
  const pem = (name: string) => readFileSync(fileURLToPath(new URL(`./fixtures/${name}.pem`, import.meta.url)))
  const fingerprint = new X509Certificate(pem('server-cert')).fingerprint256.replaceAll(':', '').toLowerCase()

  beforeEach(async () => {
    await manager[Symbol.asyncDispose]()
    manager = new ScriptedManager()
    await manager.listen('127.0.0.1:0', { cert: pem('server-cert'), key: pem('server-key') })
  })

  test('trusts exactly the certificate of the join token, for any subject', async () => {
    const worker = await joinManager({ SKEIN_WORKER_TOKEN: `${fingerprint}.${JOIN_TOKEN}` })
    expect(manager.registrations[0]?.joinToken).toBe(JOIN_TOKEN)
    manager.assign('add', 'run-1', { inputsJson: '[5,3]' })
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[8]' })
    await worker.stop()
    await joinManager({ SKEIN_WORKER_TOKEN: '' })
    expect(manager.registrations.at(-1)).toMatchObject({ workerSecret: 'secret-1' })
  })

  test('sends the token to no server with another certificate', async () => {
    const token = `${'0'.repeat(64)}.${JOIN_TOKEN}`
    await expect(joinManager({ SKEIN_WORKER_TOKEN: token })).rejects.toMatchObject({ kind: 'forbidden' })
    expect(manager.registrations).toEqual([])
  })
})

describe('a data folder below an inaccessible one', () => {
  test('is usable for runners, which run from another folder', async () => {
    chmodSync(folder, 0o700)
    await joinManager()
    manager.assign('add', 'run-1', { inputsJson: '[5,3]' })
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[8]' })
    if (process.getuid?.() === 0) rmSync(await reachableFolder(join(folder, 'worker')), { recursive: true })
  })
})

describe('a run', () => {
  test('is reported as ended, with its module fetched from the proxy', async () => {
    await joinManager()
    manager.assign('add', 'run-1', { inputsJson: '[5,3]' })
    const result = await manager.result('run-1')
    expect(result).toMatchObject({ state: WireTaskState.COMPLETED, resultsJson: '[8]', run: runRef('run-1') })
    expect(manager.bearers).toEqual([`Bearer ${TICKET}`])
  })

  test('that takes long is reported as running, and one that waits for others as accepted', async () => {
    await joinManager({ SKEIN_WORKER_SLOTS: '1' })
    manager.assign('endless', 'run-1')
    await manager.running('run-1')
    manager.assign('endless', 'run-2')
    await until(() => manager.heard('accept').some(({ runs }) => runs.some(({ runId }) => runId === 'run-2')))
    expect(manager.results()).toEqual([])
  })

  test('that is assigned again is not run again, and its reports are repeated', async () => {
    manager.acknowledges = false
    await joinManager()
    const told = () => manager.heard('stateUpdate').flatMap(({ running }) => running).length
    manager.assign('endless', 'run-1')
    await manager.running('run-1')
    const before = told()
    manager.assign('endless', 'run-1')
    await until(() => told() > before)
    manager.assign('add', 'run-2', { inputsJson: '[1,2]' })
    await manager.result('run-2')
    const results = manager.results().length
    manager.assign('add', 'run-2', { inputsJson: '[1,2]' })
    await until(() => manager.results().length > results)
    manager.tell({ case: 'cancel', value: { runs: [runRef('run-1')] } })
    await manager.result('run-1')
    await until(() => manager.heard('heartbeat').at(-1)?.running === 0)
  })

  test('without an acknowledged result is reported again in the same session', async () => {
    manager.acknowledges = false
    manager.heartbeatIntervalMs = 200
    await joinManager()
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    // Each session begins with the results that are open; one more than there are sessions was repeated.
    await until(() => manager.results().length > manager.sessions + 1)
    manager.acknowledge(manager.results().slice(0, 1), true)
    manager.breakStream()
    await until(() => manager.heard('hello').at(-1)?.spooled.length === 0)
  })

  test('sees TASK_ID, RUN_ID and ATTEMPT, and its output is sent as log and as result', async () => {
    await joinManager()
    manager.assign('hello', 'run-1', { cliArgs: ['a b'] })
    const result = await manager.result('run-1')
    expect(JSON.parse(result.resultsJson)).toEqual({ exit_code: 0, stdout: 'hello\na b\n', stderr: '' })
    const log = manager.heard('logChunk').map(({ data }) => Buffer.from(data).toString())
    expect(log.join('')).toBe('hello\na b\n')
  })

  test('that fails has its reason', async () => {
    await joinManager()
    manager.assign('hello', 'run-1', { cliArgs: ['--fail'] })
    manager.assign('add', 'run-2')
    const limits = { timeoutMs: 50n, memoryLimitBytes: 65_536n, maxOutputBytes: 1n, maxResultBytes: 1000n }
    manager.assign('endless', 'run-3', { limits })
    expect(await manager.result('run-1')).toMatchObject({ reason: FailureReason.GUEST_ERROR })
    expect(await manager.result('run-2')).toMatchObject({ reason: FailureReason.GUEST_ERROR })
    expect(await manager.result('run-3')).toMatchObject({ reason: FailureReason.TIMEOUT, state: WireTaskState.FAILED })
  })

  test('with a missing module fails with fetch_failed, with another module with module_invalid', async () => {
    await joinManager()
    const digest = `sha256:${'a'.repeat(64)}`
    manager.assign('add', 'run-1', { module: { digest, sizeBytes: 10n, sourceAddress: manager.proxyAddress } })
    expect(await manager.result('run-1')).toMatchObject({ reason: FailureReason.FETCH_FAILED })
    manager.modules.set(digest, new Uint8Array(10))
    manager.assign('add', 'run-2', { module: { digest, sizeBytes: 10n, sourceAddress: manager.proxyAddress } })
    expect(await manager.result('run-2')).toMatchObject({ reason: FailureReason.MODULE_INVALID })
  })

  test('without limits is refused, because zero would mean unlimited', async () => {
    await joinManager()
    manager.assign('add', 'run-1', { limits: { timeoutMs: 0n } })
    expect(await manager.result('run-1')).toMatchObject({ reason: FailureReason.MODULE_INVALID })
  })

  test('with a large result sends it in chunks before their digest', async () => {
    await joinManager()
    const argument = 'x'.repeat(300_000)
    manager.assign('hello', 'run-1', { cliArgs: [argument] })
    const { staged, resultsJson } = await manager.result('run-1')
    const whole = Buffer.concat(manager.heard('resultChunk').map(({ data }) => data))
    expect(resultsJson).toBe('')
    expect(staged).toMatchObject({
      sizeBytes: BigInt(whole.length),
      digest: `sha256:${createHash('sha256').update(whole).digest('hex')}`,
    })
    expect(JSON.parse(whole.toString())).toMatchObject({ stdout: `hello\n${argument}\n` })
  })

  test('whose module arrives slowly keeps no slot that others need, and runs when the module is there', async () => {
    await joinManager({ SKEIN_WORKER_SLOTS: '1' })
    const over = Promise.withResolvers<void>()
    const add = manager.assignment('add', 'run-1').module?.digest ?? ''
    manager.onFetch = (digest, response) => {
      if (digest !== add) return false
      const bytes = manager.modules.get(digest) ?? new Uint8Array()
      response.writeHead(200, { 'content-length': bytes.length })
      response.write(bytes.subarray(0, 1))
      void over.promise.then(() => response.end(bytes.subarray(1)))
      return true
    }
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    await until(() => manager.heard('reject').length === 1)
    expect(manager.heard('reject')[0]).toMatchObject({ run: { runId: 'run-1' }, reason: RejectReason.CROWDED })
    expect(manager.heard('reject')[0]?.message).toContain('still being fetched')
    manager.assign('hello', 'run-2')
    expect(await manager.result('run-2')).toMatchObject({ state: WireTaskState.COMPLETED })
    over.resolve()
    manager.assign('add', 'run-1', { inputsJson: '[1,2]', run: runRef('run-1', 2n) })
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[3]' })
    expect(manager.fetches.filter(({ digest }) => digest === add)).toHaveLength(1)
  })

  test('whose module arrives slowly is kept while a slot is free', async () => {
    await joinManager()
    const over = Promise.withResolvers<void>()
    manager.onFetch = (digest, response) => {
      const bytes = manager.modules.get(digest) ?? new Uint8Array()
      response.writeHead(200, { 'content-length': bytes.length })
      void over.promise.then(() => response.end(bytes))
      return true
    }
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    await new Promise((resolve) => setTimeout(resolve, 2_500))
    expect(manager.heard('reject')).toEqual([])
    over.resolve()
    expect(await manager.result('run-1')).toMatchObject({ resultsJson: '[3]' })
  })

  test('beyond the slots and the backlog is returned with NO_SLOT', async () => {
    await joinManager({ SKEIN_WORKER_SLOTS: '1' })
    const assignments = Array.from({ length: 514 }, (_, n) => manager.assignment('endless', `run-${n}`))
    manager.tell({ case: 'assign', value: { assignments } })
    await until(() => manager.heard('reject').length === 1)
    expect(manager.heard('reject')[0]).toMatchObject({ reason: RejectReason.NO_SLOT, run: { runId: 'run-513' } })
    const accepted = () => new Set(manager.heard('accept').flatMap(({ runs }) => runs.map(({ runId }) => runId)))
    // The first one began and says so.
    await until(() => accepted().size >= 512)
  })
})

describe('cancelling', () => {
  test('stops the run, sends its result and confirms', async () => {
    await joinManager()
    manager.assign('endless', 'run-1')
    await manager.running('run-1')
    manager.tell({ case: 'cancel', value: { runs: [runRef('run-1')] } })
    expect(await manager.result('run-1')).toMatchObject({ state: WireTaskState.STOPPED })
    await until(() => manager.heard('cancelAck').length === 1)
    expect(manager.heard('cancelAck')[0]).toMatchObject({ run: { runId: 'run-1' }, stopped: true })
  })

  test('of an unknown run is answered with stopped=false', async () => {
    await joinManager()
    manager.tell({ case: 'cancel', value: { runs: [runRef('run-9')] } })
    await until(() => manager.heard('cancelAck').length === 1)
    expect(manager.heard('cancelAck')[0]).toMatchObject({ stopped: false })
  })
})

describe('a broken stream', () => {
  test('ends no run: the worker reconnects, claims it, and its result arrives there', async () => {
    await joinManager()
    manager.assign('endless', 'run-1')
    await manager.running('run-1')
    expect((await nextHello()).running).toMatchObject([{ run: runRef('run-1'), state: WireTaskState.RUNNING }])
    manager.tell({ case: 'cancel', value: { runs: [runRef('run-1')] } })
    expect(await manager.result('run-1')).toMatchObject({ state: WireTaskState.STOPPED })
  })

  test('lets Welcome stop a run without a further message', async () => {
    await joinManager()
    manager.assign('endless', 'run-1')
    await manager.running('run-1')
    manager.welcome = ({ running }) => ({ stop: running.flatMap(({ run }) => run ?? []) })
    manager.heartbeatIntervalMs = 20
    manager.breakStream()
    // Such short beats may end the session once more on a busy machine.
    await until(() => manager.heard('heartbeat').at(-1)?.running === 0 && manager.heard('hello').length >= 2)
    expect(manager.results()).toEqual([])
  })

  test('makes the next Hello list unacknowledged results, which are sent again, also after a restart', async () => {
    manager.acknowledges = false
    const worker = await joinManager()
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    await manager.result('run-1')
    expect((await nextHello()).spooled).toMatchObject([runRef('run-1')])
    await worker.stop()
    const before = manager.results().length
    manager.acknowledges = true
    await joinManager()
    await until(() => manager.results().length > before)
    expect(new Set(manager.results().map(({ resultsJson }) => resultsJson))).toEqual(new Set(['[3]']))
    manager.breakStream()
    await until(() => manager.heard('hello').at(-1)?.spooled.length === 0)
  })

  test('a stale result is dropped when the manager says so', async () => {
    manager.acknowledges = false
    await joinManager()
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    manager.acknowledge([await manager.result('run-1')], false)
    manager.tell({ case: 'cancel', value: { runs: [runRef('run-1')] } })
    await until(() => manager.heard('cancelAck').length === 1)
    expect((await nextHello()).spooled).toEqual([])
  })

  test('Goaway is followed by a new session', async () => {
    await joinManager()
    const before = manager.sessions
    manager.tell({ case: 'goaway', value: { reason: 'restart', reconnectAfterMs: 10n } })
    await until(() => manager.sessions > before)
    expect(manager.registrations.length).toBeGreaterThan(before)
  })
})

describe('the lease', () => {
  test('ends runs before it expires, except those with on_lost wait, and Hello reports them as gone', async () => {
    // Three silent intervals end a session, and the next one begins a new lease: this lease ends before.
    manager.leaseTtlMs = 3_000
    manager.heartbeatIntervalMs = 1_200
    await joinManager()
    manager.assign('endless', 'requeued')
    manager.assign('endless', 'waiting', { onLost: OnLost.WAIT })
    await manager.running('requeued')
    await manager.running('waiting')
    const before = manager.heard('hello').length
    manager.answersHeartbeats = false
    await until(() => manager.heard('hello').length > before)
    const claims = manager.heard('hello')[before]?.running.map(({ run }) => run?.runId)
    expect(claims).toContain('waiting')
    await until(() => manager.heard('heartbeat').at(-1)?.running === 1)
    expect(manager.results()).toEqual([])
  })
})

describe('a worker that drains or stops', () => {
  test('accepts nothing while it drains and accepts work again afterwards', async () => {
    await joinManager()
    manager.tell({ case: 'drain', value: { draining: true } })
    await until(() => manager.heard('drainState').length === 1)
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    await until(() => manager.heard('reject').length === 1)
    expect(manager.heard('reject')[0]).toMatchObject({ reason: RejectReason.DRAINING })
    manager.tell({ case: 'drain', value: { draining: false } })
    manager.assign('add', 'run-2', { inputsJson: '[1,2]' })
    expect(await manager.result('run-2')).toMatchObject({ resultsJson: '[3]' })
  })

  test('says that it takes no runs while results fill its spool, before it rejects one, and says when it does again', async () => {
    manager.acknowledges = false
    manager.heartbeatIntervalMs = 200
    await joinManager({ SKEIN_WORKER_SPOOL_BYTES: '16' })
    manager.assign('add', 'run-1', { inputsJson: '[1,2]' })
    const result = await manager.result('run-1')
    manager.assign('add', 'run-2', { inputsJson: '[1,2]' })
    await until(() => manager.heard('reject').length === 1)
    expect(manager.heard('reject')[0]).toMatchObject({ reason: RejectReason.NO_SLOT })
    const said = manager.said.map(({ case: name }) => name)
    expect(said.indexOf('drainState')).toBeGreaterThan(0)
    expect(said.indexOf('drainState')).toBeLessThan(said.indexOf('reject'))
    // A manager that it comes to hears it too, once.
    await nextHello()
    await until(() => manager.heard('drainState').length === 2)
    await until(() => manager.heard('heartbeat').length > 4)
    expect(manager.heard('drainState')).toMatchObject([{ draining: true }, { draining: true }])
    manager.acknowledge([result], true)
    await until(() => manager.heard('drainState').length === 3)
    expect(manager.heard('drainState')[2]).toMatchObject({ draining: false })
    manager.assign('add', 'run-3', { inputsJson: '[1,2]' })
    expect(await manager.result('run-3')).toMatchObject({ resultsJson: '[3]' })
  })

  test('returns the runs that it could not finish', async () => {
    const worker = await joinManager()
    manager.assign('endless', 'run-1')
    await manager.running('run-1')
    await worker.stop()
    await until(() => manager.heard('reject').length > 0)
    expect(manager.heard('drainState')[0]).toMatchObject({ draining: true, running: 1 })
    expect(manager.heard('reject')[0]).toMatchObject({ run: { runId: 'run-1' }, reason: RejectReason.DRAINING })
  })
})
