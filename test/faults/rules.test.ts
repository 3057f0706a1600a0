/**
 * Kills processes and PostgreSQL while rules evaluate what clients publish: each acknowledged message is evaluated once by each rule, what it
 * causes is published once, and each alarm is raised once. SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
const PUBLISHERS = 3
/** Messages that are sent and acknowledged between two kills, at least. */
const BETWEEN = 60
const DEADLINE_MS = 120_000

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type Client = { id: string; secret: string }
type Setup = {
  token: string
  domainId: string
  channelId: string
  clients: Client[]
  publishing: string
  alarming: string
}

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
  const made = async (path: string, body: unknown) => (await json<{ id: string }>(path, body, token)).id
  const domainId = await made('/domains', { name: 'rules' })
  const channelId = await made(`/${domainId}/channels`, { name: 'values' })
  const target = await made(`/${domainId}/channels`, { name: 'found' })
  const clients: Client[] = []
  for (let count = 0; count < PUBLISHERS; count++) {
    const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, token)
    await json(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [channelId] }, token)
    clients.push({ id: client.id, secret: client.credentials.secret })
  }
  const source = { type: 'messages', channels: [channelId] }
  const publishing = await made(`/${domainId}/rules`, {
    name: 'publishes every number',
    source: { ...source, names: ['number'] },
    condition: 'value >= 0.0',
    actions: [
      {
        type: 'publish',
        channel: target,
        payload: '{"client": "{{ client.id }}", "number": "{{ value }}"}',
        on: ['raise', 'repeat'],
      },
    ],
  })
  const alarming = await made(`/${domainId}/rules`, {
    name: 'raises for odd numbers',
    source: { ...source, names: ['odd'] },
    condition: 'value > 0.5',
  })
  await json(
    `/${domainId}/consumers`,
    { name: 'found', channels: [target], max_in_flight: 10_000, ack_wait: '1h', order: 'none' },
    token,
  )
  return { token, domainId, channelId, clients, publishing, alarming }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Each client publishes its numbers in order, each until it is acknowledged. */
function publish(whole: () => Whole, { domainId, channelId, clients }: Setup) {
  const sent: { client: string; number: number }[] = []
  let isOver = false
  async function publisher({ id, secret }: Client): Promise<void> {
    for (let number = 0; !isOver; number++) {
      for (;;) {
        const answer = whole().call('POST', `/http/m/${domainId}/c/${channelId}`, {
          body: [
            { n: 'number', v: number },
            { n: 'odd', v: number % 2 },
          ],
          authorization: `Client ${secret}`,
          headers: { 'idempotency-key': `${id} ${number}` },
        })
        if ((await answer.catch(() => undefined))?.status === 202) break
        await pause(20)
      }
      sent.push({ client: id, number })
    }
  }
  const loops = clients.map(publisher)
  return {
    sent,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

type Rule = { seen: number; raised: number; acted: number; unmatchable: number; last_error?: unknown }

test(
  'each message is evaluated once by each rule, and each alarm is raised once',
  { timeout: DEADLINE_MS + KILLS * 20_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const { domainId, token: authorization } = setup
    const get = async <T>(path: string): Promise<T | undefined> => {
      const answer = await whole.call('GET', `/${domainId}/${path}`, { authorization }).catch(() => undefined)
      return answer?.status === 200 ? answer.json<T>() : undefined
    }
    const published = publish(() => whole, setup)
    stack.defer(async () => await published.stop())
    for (let turn = 0; turn < KILLS; turn++) {
      const sent = published.sent.length + BETWEEN
      await until(
        async () =>
          published.sent.length >= sent &&
          ((await get<Rule>(`rules/${setup.publishing}`))?.seen ?? 0) >= sent - BETWEEN,
        () => `messages between two kills: ${published.sent.length} sent`,
        DEADLINE_MS,
      )
      whole = await strike(installation, whole, turn)
    }
    await published.stop()
    const all = published.sent
    /** By position: what is delivered again is the same message. */
    const byPosition = new Map<string, { client: string; number: number }>()
    await until(
      async () => {
        type Page = { messages: { position: string; payload: { client: string; number: number } }[] }
        const page = await get<Page>('consumers/found/messages?limit=1000&wait=1s')
        for (const { position, payload } of page?.messages ?? []) byPosition.set(position, payload)
        return byPosition.size >= all.length && page?.messages.length === 0
      },
      () => `every number is published: ${byPosition.size} of ${all.length}`,
      DEADLINE_MS,
    )
    const textOf = ({ client, number }: { client: string; number: number }) => `${client} ${number}`
    expect([...byPosition.values()].map(textOf).toSorted()).toEqual(all.map(textOf).toSorted())
    const odd = all.filter(({ number }) => number % 2 === 1).length
    await until(
      async () => (await get<{ total: number }>(`alarms?rule=${setup.alarming}&limit=1`))?.total === odd,
      'each odd number has raised an alarm',
      DEADLINE_MS,
    )
    const counts = { seen: all.length, unmatchable: 0 }
    expect(await get<Rule>(`rules/${setup.publishing}`)).toMatchObject({
      ...counts,
      acted: all.length,
      raised: PUBLISHERS,
    })
    expect(await get<Rule>(`rules/${setup.alarming}`)).toMatchObject({ ...counts, raised: odd })
    const open = await get<{ total: number }>(`alarms?rule=${setup.alarming}&status=open&limit=1`)
    expect(open?.total).toBeLessThanOrEqual(PUBLISHERS)
  },
)
