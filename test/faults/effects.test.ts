/**
 * Kills processes while messages start runs: each acknowledged value starts one run of a task, and is in one batch of another, whose guest
 * publishes it. What both publish is stored once. Of the batches some values are poison. SKEIN_TEST_KILLS sets the number of kills.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { relayModule } from '../harness/relay-guest.ts'
import { until } from '../harness/until.ts'
import { commandOf, createInstallation, familyOf, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 20)
const PUBLISHERS = 8
/** Values that are sent between two kills, at least: enough that the trigger falls behind now and then. */
const BETWEEN = 150
const SETTLE_DEADLINE_MS = 120_000
/** The kills leave thousands of runs in the queue of a worker with two slots. */
const EFFECTS_DEADLINE_MS = 400_000
/** The guest of the batches traps at a negative value. */
const valueOf = (number: number) => (number % 250 === 249 ? -number : number)

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type Setup = { token: string; domainId: string; from: string; secret: string; add: Effect; relay: Effect }
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
  const client = await json<{ id: string; credentials: { secret: string } }>(
    `/${domainId}/clients`,
    { name: 'device' },
    token,
  )
  const [from = '', to = '', relayed = ''] = await Promise.all(
    ['from', 'to', 'relayed'].map(
      async (name) => (await json<{ id: string }>(`/${domainId}/channels`, { name }, token)).id,
    ),
  )
  await json(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [from] }, token)
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
  return { token, domainId, from, secret, add: { taskId: add, to }, relay: { taskId: relay, to: relayed } }
}

/** Publishes each value until it is acknowledged, so that the sent ones are the stored ones. */
function publish(whole: () => Whole, { domainId, from, secret }: Setup) {
  const acknowledged: number[] = []
  let next = 0
  let isOver = false
  async function publisher(): Promise<void> {
    while (!isOver) {
      const value = next++
      for (;;) {
        const sent = whole().call('POST', `/m/${domainId}/c/${from}`, {
          body: [{ n: 'v', v: valueOf(value) }],
          authorization: `Client ${secret}`,
          headers: { 'content-type': 'application/senml+json', 'idempotency-key': `value-${value}` },
        })
        if ((await sent.catch(() => undefined))?.status === 202) break
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      acknowledged.push(value)
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

/** Why results are missing: runs that failed or wait, and dead letters. */
async function refusedOf(whole: Whole, { token }: Setup, { taskId }: Effect): Promise<unknown> {
  const read = async (path: string) => (await whole.call('GET', path, { authorization: token })).json<object>()
  const runs = await read(`/runs?task_id=${taskId}&state=1,2,4,6,7&limit=20`)
  return { runs, letters: await read(`/tasks/${taskId}/dead-letters?limit=100`) }
}

/** Kills one of the processes, in turn; the installation is started again if it ended by that. */
async function strike(whole: Whole, turn: number): Promise<Whole> {
  const members = familyOf(whole.pid)
  const find = (isMeant: (command: string) => boolean) => members.find((pid) => isMeant(commandOf(pid)))
  const kill = (pid: number | undefined) => {
    try {
      if (pid !== undefined) process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended already.
    }
  }
  switch (turn % 4) {
    case 0:
    case 2:
      kill(find((command) => command.includes('programs/worker.ts')))
      return whole
    case 1:
      kill(find((command) => command.includes(`-D ${installation.dataDir}`)))
      return whole
    default:
      for (const pid of members.toReversed()) kill(pid)
      await whole.ended
      return await startWhole(installation)
  }
}

test(
  'each acknowledged message has its effect once',
  { timeout: 2 * EFFECTS_DEADLINE_MS + KILLS * 15_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const load = publish(() => whole, setup)
    stack.defer(() => load.stop())
    for (let turn = 0; turn < KILLS; turn++) {
      const before = load.acknowledged.length
      await until(() => load.acknowledged.length >= before + BETWEEN, 'values between two kills', SETTLE_DEADLINE_MS)
      whole = await strike(whole, turn)
    }
    await load.stop()
    const sent = load.acknowledged.length
    const values = Array.from({ length: sent }, (_, number) => valueOf(number)).toSorted((one, other) => one - other)
    const poison = values.filter((value) => value < 0)
    const wholesome = values.slice(poison.length)
    const { add, relay } = setup
    for (const [effect, wanted] of [
      [add, values],
      [relay, wholesome],
    ] as const) {
      const isWhole = async () => (await countOf(whole, setup, effect)) >= wanted.length
      // Which are missing is said by the comparison.
      await until(isWhole, `${wanted.length} results`, EFFECTS_DEADLINE_MS).catch(() => undefined)
      const given = await valuesOf(whole, setup, effect)
      if (given.length !== wanted.length) console.log(JSON.stringify(await refusedOf(whole, setup, effect)))
      expect(given).toEqual(wanted)
    }
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
    console.log(`${sent} messages, ${KILLS} kills: each had its effect once, and ${poison.length} became dead letters`)
  },
)
