// Whatever is killed, whenever: each acknowledged message is counted once in the state of the task that it runs.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { commandOf, createInstallation, familyOf, isWorkerCommand, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { moduleFromText } from '../worker/pool.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 20)
/** Values that are acknowledged between two kills, at least. */
const BETWEEN = 8
const PUBLISHERS = 2
/** The worker of a killed machine has a lease, and a busy test machine takes its time. */
const SETTLE_DEADLINE_MS = 240_000

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

/** Adds the value of a record to `sum`, and counts it in `count`; both are decimal numbers of eight digits. */
const SUM = `(module
  (import "skein" "state_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 100) "sum") (data (i32.const 110) "count")
  (func $add (param $key i32) (param $bytes i32) (param $delta i32) (local $at i32) (local $number i32) (local $code i32)
    (memory.fill (i32.const 0) (i32.const 48) (i32.const 8))
    (local.set $code (call $get (i32.const 0) (local.get $key) (local.get $bytes) (i32.const 0) (i32.const 8)))
    (if (i32.and (i32.ne (local.get $code) (i32.const 8)) (i32.ne (local.get $code) (i32.const -3))) (then unreachable))
    (loop $read
      (local.set $number (i32.add (i32.mul (local.get $number) (i32.const 10)) (i32.sub (i32.load8_u (local.get $at)) (i32.const 48))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $read (i32.lt_u (local.get $at) (i32.const 8))))
    (local.set $number (i32.add (local.get $number) (local.get $delta)))
    (loop $write
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
      (local.set $number (i32.div_u (local.get $number) (i32.const 10)))
      (br_if $write (local.get $at)))
    (if (call $set (i32.const 0) (local.get $key) (local.get $bytes) (i32.const 0) (i32.const 8)) (then unreachable)))
  (func (export "sum") (param $value f64) (param $time f64) (result i32)
    (call $add (i32.const 100) (i32.const 3) (i32.trunc_f64_s (local.get $value)))
    (call $add (i32.const 110) (i32.const 5) (i32.const 1))
    (i32.const 0)))`

type Setup = { token: string; domainId: string; channelId: string; secret: string; taskId: string }

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const login = { identity: 'admin', secret: 'the-first-admin' }
  const token = `Bearer ${(await json<{ access_token: string }>('/users/tokens/issue', login)).access_token}`
  const { id: domainId } = await json<{ id: string }>('/domains', { name: 'state' }, token)
  const client = await json<{ id: string; credentials: { secret: string } }>(
    `/${domainId}/clients`,
    { name: 'device' },
    token,
  )
  const { id: channelId } = await json<{ id: string }>(`/${domainId}/channels`, { name: 'values' }, token)
  await json(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [channelId] }, token)
  const trigger = { channel_id: channelId, order: 'channel' }
  const fields = { name: 'sum', domain_id: domainId, trigger, retry: { max_attempts: 100 } }
  const { id: taskId } = await json<{ id: string }>('/tasks', fields, token)
  const file = new FormData()
  file.append('file', new Blob([new Uint8Array(await moduleFromText(SUM))]), 'sum.wasm')
  const uploaded = await whole.call('PUT', `/tasks/${taskId}/upload`, { body: file, authorization: token })
  expect(uploaded.status, uploaded.text).toBe(200)
  return { token, domainId, channelId, secret: client.credentials.secret, taskId }
}

/** Publishes each value until it is acknowledged. */
function publish(whole: () => Whole, { domainId, channelId, secret }: Setup) {
  const acknowledged: number[] = []
  let next = 1
  let isOver = false
  async function publisher(): Promise<void> {
    while (!isOver) {
      const value = next++
      for (let status = 0; status !== 202;) {
        const sent = whole().call('POST', `/m/${domainId}/c/${channelId}`, {
          body: [{ n: 'v', v: value }],
          authorization: `Client ${secret}`,
          headers: { 'idempotency-key': `value-${value}` },
        })
        status = (await sent.catch(() => undefined))?.status ?? 0
        if (status !== 202) await new Promise((resolve) => setTimeout(resolve, 50))
      }
      acknowledged.push(value)
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
  const loops = Array.from({ length: PUBLISHERS }, publisher)
  return {
    acknowledged,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

function kill(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has just ended by itself.
  }
}

/** In turn: everything, a worker, the database. Returns what runs afterwards. */
async function strike(whole: Whole, number: number): Promise<Whole> {
  const family = familyOf(whole.pid)
  if (number % 3 === 1) kill(family.find((pid) => isWorkerCommand(commandOf(pid))))
  else if (number % 3 === 2) kill(family.find((pid) => commandOf(pid).includes(`-D ${installation.dataDir}`)))
  else {
    for (const pid of family.toReversed()) kill(pid)
    await whole.ended
    return await startWhole(installation)
  }
  return whole
}

test(
  `after ${KILLS} kills the state has each acknowledged value once`,
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const load = publish(() => whole, setup)
    stack.defer(() => load.stop())
    for (let number = 0; number < KILLS; number++) {
      const before = load.acknowledged.length
      await until(() => load.acknowledged.length >= before + BETWEEN, 'acknowledged values', SETTLE_DEADLINE_MS)
      whole = await strike(whole, number)
    }
    await load.stop()
    const sum = load.acknowledged.reduce((total, value) => total + value, 0)
    const kept = async (key: string) => {
      const answer = await whole
        .call('GET', `/tasks/${setup.taskId}/state/${key}`, { authorization: setup.token })
        .catch(() => undefined)
      return answer?.status === 200 ? Number(answer.json<{ value: string }>().value) : 0
    }
    await until(
      async () => (await kept('count')) >= load.acknowledged.length,
      'the count of all values',
      SETTLE_DEADLINE_MS,
    )
    expect(await kept('count')).toBe(load.acknowledged.length)
    expect(await kept('sum')).toBe(sum)
  },
  KILLS * 60_000,
)
