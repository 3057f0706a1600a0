/**
 * Kills processes while messages start runs: each acknowledged value starts one run of a task, and is in one batch of another, whose guest
 * publishes it. What both publish is stored once. Of the batches some values are poison. Webhooks receive some of the values, at least once and
 * under one id each. SKEIN_TEST_KILLS sets the number of kills. SKEIN_TEST_EFFECTS_RECORD names a file to which a line of figures is added
 * (`npm run bench -- effects`).
 */
import { appendFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { relayModule } from '../harness/relay-guest.ts'
import { until } from '../harness/until.ts'
import { commandOf, createInstallation, familyOf, isWorkerCommand, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { WebhookReceiver } from '../harness/webhook-receiver.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 20)
const PUBLISHERS = 8
/** Values that are sent between two kills, at least: enough that the trigger falls behind now and then. */
const BETWEEN = 150
const SETTLE_DEADLINE_MS = 120_000
/** Clients whose values a webhook receives, each at a contact of its own: a contact gets 30 notifications per minute. */
const TELLERS = 12
const TELLER_PAUSE_MS = 2_500
/** Above all other values. */
const FIRST_TOLD = 1_000_000
/** Values of one teller. */
const TOLD_RANGE = 1_000_000
/**
 * The kills leave thousands of runs in the queue of a worker with two slots, which a busy machine takes long for: what counts is that it goes on.
 * A delivery of a process that was killed is taken up when its lease of two minutes has ended.
 */
const STALL_MS = 240_000
const SETTLE_MS_OF_KILL = 30_000
const COUNT_MS = 500
const MAX_SHOWN_CHARS = 20_000
const RUN_STATES = [0, 1, 2, 3, 4, 5, 6, 7]
/** The guest of the batches traps at a negative value. */
const valueOf = (number: number) => (number % 250 === 249 ? -number : number)

let installation: Installation
let receiver: WebhookReceiver
beforeEach(async () => {
  receiver = await WebhookReceiver.start({ isOrdered: true })
  installation = await createInstallation({ SKEIN_WEBHOOK_HOSTS: receiver.host })
})
afterEach(async () => {
  installation[Symbol.dispose]()
  await receiver[Symbol.asyncDispose]()
})

type Setup = {
  token: string
  domainId: string
  from: string
  secret: string
  /** Secrets of the clients whose values a webhook receives; each has a subtopic. */
  tellers: string[]
  add: Effect
  relay: Effect
}
/** A task, and the channel of its publications. */
type Effect = { taskId: string; to: string }

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const login = await json<{ access_token: string }>('/users/tokens/issue', {
    identity: 'admin',
    secret: 'the-first-admin',
  })
  const token = `Bearer ${login.access_token}`
  const { id: domainId } = await json<{ id: string }>('/domains', { name: 'effects' }, token)
  const newClient = async (name: string) =>
    await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, { name }, token)
  const client = await newClient('device')
  const [from = '', to = '', relayed = ''] = await Promise.all(
    ['from', 'to', 'relayed'].map(
      async (name) => (await json<{ id: string }>(`/${domainId}/channels`, { name }, token)).id,
    ),
  )
  const telling = await Promise.all(Array.from({ length: TELLERS }, (_, place) => newClient(`teller ${place}`)))
  const connected = [client, ...telling].map(({ id }) => id)
  await json(`/${domainId}/channels/connect`, { client_ids: connected, channel_ids: [from] }, token)
  for (let place = 0; place < TELLERS; place++)
    await json('/subscriptions', { topic: `${from}.told.${place}`, contact: `http://${receiver.host}/${place}` }, token)
  const newTask = async (fields: object, module: Uint8Array<ArrayBuffer>): Promise<string> => {
    const { id: taskId } = await json<{ id: string }>('/tasks', { domain_id: domainId, ...fields }, token)
    const file = new FormData()
    file.append('file', new Blob([module]), 'module.wasm')
    const uploaded = await whole.call('PUT', `/tasks/${taskId}/upload`, { body: file, authorization: token })
    expect(uploaded.status, uploaded.text).toBe(200)
    return taskId
  }
  const add = await newTask(
    { name: 'add', inputs: [0], trigger: { channel_id: from }, publish_result: { channel_id: to } },
    readFileSync(join(import.meta.dirname, '../../examples/add/add.wasm')),
  )
  const relay = await newTask(
    {
      name: 'relay',
      trigger: { channel_id: from, batch: 50 },
      grants: [{ kind: 'publish', channel_id: relayed }],
    },
    new Uint8Array(await relayModule()),
  )
  const { secret } = client.credentials
  const tellers = telling.map(({ credentials }) => credentials.secret)
  return { token, domainId, from, secret, tellers, add: { taskId: add, to }, relay: { taskId: relay, to: relayed } }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Publishes each value until it is acknowledged, so that the sent ones are the stored ones. */
function publish(whole: () => Whole, { domainId, from, secret, tellers }: Setup) {
  const acknowledged: number[] = []
  const told: number[] = []
  let next = 0
  let isOver = false
  async function send(value: number, { secret: by, subtopic }: { secret: string; subtopic: string }): Promise<void> {
    for (;;) {
      const sent = whole().call('POST', `/m/${domainId}/c/${from}${subtopic}`, {
        body: [{ n: 'v', v: value }],
        authorization: `Client ${by}`,
        headers: { 'content-type': 'application/senml+json', 'idempotency-key': `value-${value}` },
      })
      if ((await sent.catch(() => undefined))?.status === 202) return
      await pause(20)
    }
  }
  async function publisher(): Promise<void> {
    while (!isOver) {
      const value = next++
      await send(valueOf(value), { secret, subtopic: '' })
      acknowledged.push(value)
    }
  }
  async function teller(by: string, place: number): Promise<void> {
    for (let value = FIRST_TOLD + place * TOLD_RANGE; !isOver; value++) {
      await send(value, { secret: by, subtopic: `/told/${place}` })
      told.push(value)
      await pause(TELLER_PAUSE_MS)
    }
  }
  const loops = [...Array.from({ length: PUBLISHERS }, publisher), ...tellers.map(teller)]
  return {
    acknowledged,
    told,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

async function countOf(whole: Whole, { domainId, token }: Setup, { to }: Effect): Promise<number> {
  const answer = await whole
    .call('GET', `/${domainId}/channels/${to}/messages?only_total=true`, { authorization: token })
    .catch(() => undefined)
  return answer?.status === 200 ? answer.json<{ total: number }>().total : 0
}

async function valuesOf(whole: Whole, { domainId, token }: Setup, { to }: Effect): Promise<number[]> {
  const values: number[] = []
  for (;;) {
    const path = `/${domainId}/channels/${to}/messages?limit=1000&offset=${values.length}&dir=asc`
    const page = await whole.call('GET', path, { authorization: token })
    const { messages } = page.json<{ messages: { value: number }[] }>()
    values.push(...messages.map(({ value }) => value))
    if (messages.length < 1000) return values.toSorted((one, other) => one - other)
  }
}

/** Waits until there are as many, or none has come for too long. */
async function untilCounted(count: () => number | Promise<number>, wanted: number): Promise<void> {
  let [last, lastMs] = [-1, performance.now()]
  for (;;) {
    const found = await count()
    if (found >= wanted || performance.now() - lastMs > STALL_MS) return
    if (found > last) [last, lastMs] = [found, performance.now()]
    await pause(COUNT_MS)
  }
}

/** Why results are missing: runs that failed or wait, and dead letters. */
async function refusedOf(whole: Whole, { token }: Setup, { taskId }: Effect): Promise<unknown> {
  const read = async (path: string) => (await whole.call('GET', path, { authorization: token })).json<object>()
  const totals: Record<string, number> = {}
  for (const state of RUN_STATES)
    totals[state] = ((await read(`/runs?task_id=${taskId}&state=${state}&limit=1`)) as { total: number }).total
  const runs = await read(`/runs?task_id=${taskId}&state=1,2,4,6,7&limit=20`)
  return {
    totals,
    workers: await read('/workers'),
    runs,
    letters: await read(`/tasks/${taskId}/dead-letters?limit=100`),
  }
}

/** What is killed, in turn. `node`: the program that serves and schedules, alone; the rest ends by itself. `everything`: all processes at once. */
const STRIKES = [
  'worker',
  'PostgreSQL',
  'worker',
  'everything',
  'runner',
  'worker',
  'node',
  'worker',
  'runner',
  'everything',
] as const
type Struck = (typeof STRIKES)[number]

/** Returns what was killed, if it was there. The installation is started again if it ended by that. */
async function strike(whole: Whole, turn: number): Promise<{ whole: Whole; struck: Struck | undefined }> {
  const members = familyOf(whole.pid)
  const find = (isMeant: (command: string) => boolean) => members.find((pid) => isMeant(commandOf(pid)))
  const kill = (pid: number | undefined) => {
    try {
      return pid !== undefined && process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended already.
      return false
    }
  }
  const struck = STRIKES[turn % STRIKES.length] as Struck
  const answer = (wasKilled: boolean) => ({ whole, struck: wasKilled ? struck : undefined })
  switch (struck) {
    case 'worker':
      return answer(kill(find(isWorkerCommand)))
    case 'runner':
      return answer(kill(find((command) => command.includes('runner/entry'))))
    case 'PostgreSQL':
      return answer(kill(find((command) => command.includes(`-D ${installation.dataDir}`))))
    case 'node':
    case 'everything':
      for (const pid of struck === 'node' ? [whole.pid] : members.toReversed()) kill(pid)
      await whole.ended
      return { whole: await startWhole(installation), struck }
  }
}

const sumOf = (values: Iterable<number>) => [...values].reduce((sum, value) => sum + value, 0)

test(
  'each acknowledged message has its effect once',
  { timeout: 3 * STALL_MS + SETTLE_DEADLINE_MS + KILLS * (15_000 + SETTLE_MS_OF_KILL) },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    let isProved = false
    stack.defer(() => {
      if (!isProved) console.log(`the installation printed: ${whole.output().slice(-MAX_SHOWN_CHARS)}`)
    })
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const load = publish(() => whole, setup)
    stack.defer(() => load.stop())
    const kills: Partial<Record<Struck, number>> = {}
    for (let turn = 0; turn < KILLS; turn++) {
      const before = load.acknowledged.length
      await until(() => load.acknowledged.length >= before + BETWEEN, 'values between two kills', SETTLE_DEADLINE_MS)
      const hit = await strike(whole, turn)
      ;({ whole } = hit)
      if (hit.struck !== undefined) kills[hit.struck] = (kills[hit.struck] ?? 0) + 1
    }
    await load.stop()
    const { told } = load
    const untold = Array.from({ length: load.acknowledged.length }, (_, number) => valueOf(number))
    const values = [...untold, ...told].toSorted((one, other) => one - other)
    const sent = values.length
    const poison = values.filter((value) => value < 0)
    const wholesome = values.slice(poison.length)
    const { add, relay } = setup
    const sums: number[] = []
    for (const [effect, wanted] of [
      [add, values],
      [relay, wholesome],
    ] as const) {
      // Which are missing is said by the comparison.
      await untilCounted(() => countOf(whole, setup, effect), wanted.length)
      const given = await valuesOf(whole, setup, effect)
      if (given.length !== wanted.length) {
        console.log(JSON.stringify(await refusedOf(whole, setup, effect)))
      }
      expect(given).toEqual(wanted)
      sums.push(sumOf(given))
    }
    await untilCounted(() => receiver.told.size, told.length)
    expect(receiver.told).toEqual(new Set(told))
    expect(receiver.faults).toEqual([])
    expect(receiver.messages, 'an id for each message').toBe(told.length)
    const read = async <T>(path: string) =>
      (await whole.call('GET', `/tasks/${path}`, { authorization: setup.token })).json<T>()
    await until(
      async () => (await read<{ total: number }>(`${relay.taskId}/dead-letters?source=message`)).total >= poison.length,
      () => `${poison.length} dead letters`,
      SETTLE_DEADLINE_MS,
    )
    const given: number[] = []
    for (let isLast = false; !isLast;) {
      const page = `dead-letters?source=message&limit=100&offset=${given.length}`
      const { dead_letters: letters } = await read<{ dead_letters: { records: { v: number }[] }[] }>(
        `${relay.taskId}/${page}`,
      )
      given.push(...letters.flatMap(({ records }) => records.map(({ v }) => v)))
      isLast = letters.length < 100
    }
    expect(given.toSorted((one, other) => one - other)).toEqual(poison)
    expect(await read(add.taskId)).toMatchObject({ trigger_status: { matched: sent, dropped: 0, expired: 0 } })
    expect(await read(relay.taskId)).toMatchObject({ trigger_status: { matched: sent, expired: 0 } })
    isProved = true
    const figures = {
      kills,
      values: { acknowledged: sent, poison: poison.length, told: told.length },
      sums: {
        acknowledged: sumOf(values),
        results: sums[0],
        published_and_poison: sumOf([sums[1] ?? 0, ...poison]),
        told: sumOf(told),
        delivered: sumOf(receiver.told),
      },
      repeated_deliveries: receiver.requests - receiver.messages,
    }
    expect(Object.values(kills).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(KILLS / 2)
    const record = process.env['SKEIN_TEST_EFFECTS_RECORD']
    if (record !== undefined) appendFileSync(record, `${JSON.stringify(figures)}\n`)
    console.log(
      `${sent} messages, each had its effect once, ${poison.length} became dead letters, ${told.length} were notified: ${JSON.stringify(figures)}`,
    )
  },
)
