/**
 * A runner that a guest has taken over says what it likes to the worker (task-manager.md section 4): the worker survives every
 * message, kills that runner alone, and believes nothing about runs of others.
 */
import { copyFileSync, mkdirSync, mkdtempSync, chmodSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { stageCode } from '#worker/isolation/index.ts'
import { FRAME, encodeFrame, encodeMessages } from '#worker/runner/frames.ts'
import type { GuestCall, RunOutcome } from '#worker/runner/index.ts'
import { startPool, until } from '../../worker/pool.ts'
import type { TestPool } from '../../worker/pool.ts'

let folder: string
let codeFolder: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-hostile-'))
  chmodSync(folder, 0o755)
  codeFolder = await stageCode(join(folder, 'code'), {
    entries: ['test/security/guests/hostile-runner.ts'],
    packages: [],
  })
  const entry = join(codeFolder, 'worker/runner/entry.js')
  mkdirSync(dirname(entry), { recursive: true })
  copyFileSync(join(codeFolder, 'test/security/guests/hostile-runner.js'), entry)
})
afterAll(() => rmSync(folder, { recursive: true }))

const json = (text: string) => encodeFrame(FRAME.messages, Buffer.from(text))
const messages = (...list: unknown[]) => encodeMessages(list)
const ended = {
  type: 'ended',
  thread: 0,
  sequence: 'SEQUENCE',
  durationMs: 1,
  cpuMs: 1,
  memoryBytes: 0,
  isStreamed: false,
}
const call = {
  type: 'guest_call',
  thread: 0,
  sequence: 'SEQUENCE',
  callId: 1,
  call: { kind: 'publish', topic: '', payload: '' },
}
const stateEntry = { bucket: 'task', key: 'k', version: 1, value: 'AA==' }
const output = { type: 'output', thread: 0, sequence: 'SEQUENCE', output: 'stdout' }

/** What the worker takes at most in one frame. */
const MAX_FRAME_BYTES = 128 * 1024 * 1024
const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`

const WRONG: [string, Buffer][] = [
  ['bytes that are no frame', Buffer.from('{"cmd":"NODE_HANDLE","type":"nothing"}\n')],
  ['a frame that announces four gigabytes', Buffer.from([FRAME.messages, 255, 255, 255, 255])],
  ['a frame of another kind', encodeFrame(FRAME.module, Buffer.from('x'))],
  ['JSON that is broken off', json('[{"type":')],
  ['JSON that is no list', json('{"type":"ready"}')],
  ['a list of null', json('[null]')],
  ['a message of no kind', messages({ type: 'constructor' })],
  ['to be ready again', messages({ type: 'ready' })],
  ['a thread that was never opened', messages({ type: 'thread_ready', thread: 7 })],
  ['a thread that is no number', messages({ type: 'thread_ready', thread: '__proto__' })],
  ['the end of a thread that was not to end', messages({ type: 'thread_ended', thread: 0 })],
  ['an unknown outcome', messages({ ...ended, outcome: { state: 'stopped' } })],
  [
    'the same key of the state twice',
    messages({ ...ended, stateEntries: [stateEntry, { ...stateEntry, bucket: 'task' }] }),
  ],
  ['a bucket of nobody', messages({ ...ended, stateEntries: [{ ...stateEntry, bucket: '__proto__' }] })],
  ['a key with a NUL', messages({ ...ended, stateEntries: [{ ...stateEntry, key: 'a\0' }] })],
  [
    'a value of the state that is too large',
    messages({ ...ended, stateEntries: [{ ...stateEntry, value: 'A'.repeat(100_000) }] }),
  ],
  ['a version that is no number', messages({ ...ended, stateEntries: [{ ...stateEntry, version: -1 }] })],
  [
    'a read of the state of too many keys',
    messages({
      ...call,
      call: { kind: 'state_get', bucket: 'task', keys: Array.from({ length: 11 }, (_, index) => `k${index}`) },
    }),
  ],
  ['an outcome without results', messages({ ...ended, outcome: { state: 'completed' } })],
  ['an unknown reason', messages({ ...ended, outcome: { state: 'failed', reason: 'fetch_failed', error: '' } })],
  [
    'output that is no text',
    messages({ ...ended, outcome: { state: 'completed', results: [], stdout: { length: 1e9 } } }),
  ],
  [
    'output that is not base64',
    messages({ ...ended, outcome: { state: 'completed', results: [], stdout: { base64: '!' }, stderr: '' } }),
  ],
  ['a duration that is none', messages({ ...ended, durationMs: -1, outcome: { state: 'completed', results: [] } })],
  ['a processor time that is none', messages({ ...ended, cpuMs: -1, outcome: { state: 'completed', results: [] } })],
  [
    'a result that is nested without end',
    json(
      `[${JSON.stringify({ ...ended, outcome: 0 })
        .replace('0', `{"state":"completed","results":${deep}}`)
        .replace('"outcome":{', '"outcome":{')}]`,
    ),
  ],
  [
    'an error of a megabyte',
    messages({ ...ended, outcome: { state: 'failed', reason: 'trap', error: 'x'.repeat(1e6) } }),
  ],
  ['a call of no kind', messages({ ...call, call: { kind: 'exec' } })],
  ['a second call before the answer to the first', messages(call, { ...call, callId: 2 })],
  ['a call out of turn', messages({ ...call, callId: 9 })],
  ['output beyond the bound', messages({ ...output, data: Buffer.alloc(2 * 1024 * 1024).toString('base64') })],
  ['sequences that are no numbers', messages({ type: 'recalled', thread: 0, sequences: [{}] })],
  [
    'more sequences than a thread holds',
    messages({ type: 'recalled', thread: 0, sequences: Array.from({ length: 1000 }, () => 1) }),
  ],
]

describe('a compromised runner', () => {
  let host: TestPool
  beforeAll(async () => {
    host = await startPool({ codeFolder, slots: 4, runners: 1 })
  })
  afterAll(() => host[Symbol.asyncDispose]())

  test.each(WRONG)('is killed alone when it sends %s', async (_, bytes) => {
    const abort = new AbortController()
    // The neighbour is of another domain, and so in another runner; the module is a fresh one, so that none is suspected.
    const neighbour = host.run('add', { domain: 'south', programName: 'patient' }, abort.signal)
    await until(() => host.pool.stats().runners.some(({ underWay }) => underWay === 1))
    const spared = host.pool.stats().runners.find(({ underWay }) => underWay === 1)?.pid
    const calls: GuestCall[] = []
    const outcome = await host.run('hello', {
      programName: 'hostile',
      digest: `sha256:${String(WRONG.findIndex(([name]) => name === _)).padStart(64, '0')}`,
      stdin: bytes.toString('base64'),
      onGuestCall: (__, made) => {
        calls.push(made)
        return new Promise(() => undefined)
      },
    })
    expect(outcome).toMatchObject({
      state: 'requeue',
      cause: expect.stringContaining('the runner process died') as string,
    })
    expect(host.pool.stats().runners.find(({ underWay }) => underWay === 1)?.pid).toBe(spared)
    expect(calls.length).toBeLessThanOrEqual(1)
    abort.abort()
    expect(await neighbour).toMatchObject({ state: 'stopped' })
    expect(await host.run('add', { domain: 'north' })).toMatchObject({ state: 'completed' })
  })

  test('ends no run of another domain and makes no call in its name', async () => {
    const abort = new AbortController()
    const called: GuestCall[] = []
    const onGuestCall = (_: number, made: GuestCall) => {
      called.push(made)
      return Promise.resolve({ ok: true as const, records: '' })
    }
    let victimOutcome: RunOutcome | undefined
    const victim = host.run('add', { domain: 'south', programName: 'patient', onGuestCall }, abort.signal)
    void victim.then((outcome) => (victimOutcome = outcome))
    await until(() => host.pool.stats().runners.some(({ underWay }) => underWay === 1))
    // Every number that a run of another domain may have, then its own end.
    const guesses = Array.from({ length: 200 }, (_, sequence) => [
      { ...ended, sequence, outcome: { state: 'completed', results: ['forged'] } },
      { ...call, sequence },
      { ...output, sequence, data: 'Zm9yZ2Vk' },
    ]).flat()
    const bytes = messages(...guesses, { ...ended, outcome: { state: 'completed', results: [2] } })
    const outcome = await host.run('hello', { programName: 'hostile', stdin: bytes.toString('base64') })
    expect(outcome.state).toMatch(/completed|requeue/)
    expect(victimOutcome).toBeUndefined()
    expect(called).toEqual([])
    abort.abort()
    expect(await victim).toMatchObject({ state: 'stopped' })
  })

  test.each([
    ['empty objects', '{}'],
    ['members of objects', '{"a":0}'],
    ['lists', '[]'],
    ['items', '0'],
  ])('costs the worker little when it sends the largest frame, full of %s', async (_, part) => {
    const neighbour = host.run('add', { domain: 'south' })
    const before = process.memoryUsage()
    let peak = 0
    const watch = setInterval(() => (peak = Math.max(peak, process.memoryUsage().heapUsed)), 1)
    const outcome = await host.run('hello', {
      digest: `sha256:${Buffer.from(_).toString('hex').padStart(64, 'f')}`,
      programName: 'repeat',
      stdin: part,
      inputs: [MAX_FRAME_BYTES],
    })
    clearInterval(watch)
    expect(outcome).toMatchObject({ state: 'requeue', cause: expect.stringContaining('objects and members') as string })
    expect(peak - before.heapUsed).toBeLessThan(64 * 1024 * 1024)
    expect(await neighbour).toMatchObject({ state: 'completed' })
  })

  const FLOODS: [string, string, Buffer][] = [
    [
      'ends of runs that it does not have',
      'flood',
      messages({ ...ended, sequence: 1e9, outcome: { state: 'completed', results: [] } }),
    ],
    ['calls of runs that it does not have', 'flood', messages({ ...call, sequence: 1e9 })],
    ['output of runs that it does not have', 'flood', messages({ ...output, sequence: 1e9, data: '' })],
    ['threads that are ready', 'flood', messages({ type: 'thread_ready', thread: 0 })],
    [
      'threads that are lost and ready',
      'flood',
      messages({ type: 'thread_lost', thread: 1, error: '' }, { type: 'thread_ready', thread: 1 }),
    ],
    ['modules that nobody ordered', 'flood', messages({ type: 'module_ready', moduleKey: 'x' })],
    ['runs that nobody recalled', 'flood', messages({ type: 'recalled', thread: 0, sequences: [] })],
    ['how much memory it takes', 'flood', messages({ type: 'resident', residentBytes: 1 })],
    ['frames without messages', 'flood', json('[]')],
    ['errors', 'flood-errors', Buffer.alloc(64 * 1024, 'x')],
  ]
  test.each(FLOODS)('is killed alone when it keeps sending %s', async (name, programName, bytes) => {
    const abort = new AbortController()
    const neighbour = host.run('add', { domain: 'south', programName: 'patient' }, abort.signal)
    await until(() => host.pool.stats().runners.some(({ underWay }) => underWay === 1))
    const outcome = await host.run('hello', {
      programName,
      digest: `sha256:${Buffer.from(name).toString('hex').slice(0, 64).padStart(64, 'e')}`,
      // As many as one write takes, so that the test is about their number and not about the pipe.
      stdin: Buffer.concat(Array.from({ length: Math.ceil(65_536 / bytes.length) }, () => bytes)).toString('base64'),
    })
    expect(outcome).toMatchObject({
      state: 'requeue',
      cause: expect.stringMatching(/without effect|wrote too much|never opened/) as string,
    })
    abort.abort()
    expect(await neighbour).toMatchObject({ state: 'stopped' })
  })

  test('is killed when it forwards output in more pieces than a thread does', async () => {
    const outcome = await host.run('hello', {
      programName: 'flood',
      digest: `sha256:${'d'.repeat(64)}`,
      stdin: messages(...Array.from({ length: 1_000 }, () => ({ ...output, data: '' }))).toString('base64'),
      onOutput: () => undefined,
    })
    expect(outcome).toMatchObject({
      state: 'requeue',
      cause: expect.stringContaining('more output messages') as string,
    })
  })

  test('cannot affect the same module of another domain by its reports', async () => {
    const digest = `sha256:${'7'.repeat(64)}`
    const request = { digest, memoryLimitBytes: 64 * 1024 * 1024 }
    // Every way in which the worker might call the module.
    const keys = [`${digest} ${request.memoryLimitBytes}`, `south ${digest} ${request.memoryLimitBytes}`]
    const refusals = keys.map((moduleKey) => ({
      type: 'module_ready',
      moduleKey,
      refused: 'forged',
      reason: 'module_invalid',
    }))
    const bytes = messages(...refusals, { ...ended, outcome: { state: 'completed', results: [1] } })
    // A module that kills runners over and over is suspected where it does so, and nowhere else.
    for (let time = 0; time < 4; time++) {
      const abort = new AbortController()
      const isUnderWay = (count: number) => () =>
        host.pool.stats().runners.reduce((sum, { underWay }) => sum + underWay, 0) === count
      const patient = [1, 2, 3].map(() => host.run('add', { domain: 'west', programName: 'patient' }, abort.signal))
      await until(isUnderWay(3))
      // It takes the last slot, so that the runs of the other domain wait while it speaks.
      const forged = host.run('hello', { ...request, programName: 'hostile', stdin: bytes.toString('base64') })
      const victims = Array.from({ length: 4 }, () => host.run('add', { ...request, domain: 'south' }))
      expect((await forged).state).toMatch(/completed|requeue|failed/)
      for (const victim of victims) expect(await victim).toMatchObject({ state: 'completed', results: [1] })
      abort.abort()
      for (const run of patient) expect(await run).toMatchObject({ state: 'stopped' })
    }
  })
})

test('many domains do not evict the runner of one whose module is being loaded', async () => {
  await using host = await startPool({ codeFolder, slots: 4, runners: 1 })
  const abort = new AbortController()
  const victim = host.run('add', { domain: 'victim', digest: `sha256:${'5'.repeat(64)}` }, abort.signal)
  // A spare is started as soon as the first runner is the victim's.
  await until(() => host.pool.stats().runners.length > 1)
  const [first] = host.pool.stats().runners
  // More than the runners that a pool has: the longest idle one leaves for each.
  for (let domain = 0; domain < 24; domain++) {
    expect(await host.run('add', { domain: `domain-${domain}` })).toMatchObject({ state: 'completed' })
  }
  expect(host.pool.stats().runners.map(({ pid }) => pid)).toContain(first?.pid)
  abort.abort()
  expect(await victim).toMatchObject({ state: 'stopped' })
})
