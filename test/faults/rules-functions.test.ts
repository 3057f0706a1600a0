/**
 * Kills processes and PostgreSQL while a function decides for a rule about what clients publish: each acknowledged message is evaluated once, and what it
 * causes is published once. SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { decidingModule } from '../tasks/deciding-guest.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 2)
const PUBLISHERS = 3
/** Messages that are sent and acknowledged between two kills, at least. */
const BETWEEN = 30
const DEADLINE_MS = 180_000
/** The function decides by the first digit: those from 5 on hold. */
const DIGITS = [1, 6, 9, 2, 5]
const valueOf = (number: number) => (DIGITS[number % DIGITS.length] ?? 0) * 1_000_000 + number
const holds = (number: number) => valueOf(number) >= 5_000_000

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type Client = { id: string; secret: string }
type Setup = { token: string; domainId: string; channelId: string; clients: Client[]; ruleId: string }

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const credentials = { identity: 'admin', secret: 'the-first-admin' }
  const login = await json<{ access_token: string }>('/users/tokens/issue', credentials)
  const token = `Bearer ${login.access_token}`
  const made = async (path: string, body: unknown) => (await json<{ id: string }>(path, body, token)).id
  const domainId = await made('/domains', { name: 'functions' })
  const channelId = await made(`/${domainId}/channels`, { name: 'values' })
  const target = await made(`/${domainId}/channels`, { name: 'found' })
  const file = await decidingModule()
  const taskId = await made('/tasks', { name: 'decides', domain_id: domainId, retry: { max_attempts: 20 }, file })
  const clients: Client[] = []
  for (let count = 0; count < PUBLISHERS; count++) {
    const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, token)
    await json(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [channelId] }, token)
    clients.push({ id: client.id, secret: client.credentials.secret })
  }
  const ruleId = await made(`/${domainId}/rules`, {
    name: 'publishes what the function says',
    source: { type: 'messages', channels: [channelId] },
    condition_task: taskId,
    actions: [
      {
        type: 'publish',
        channel: target,
        payload: '{"client": "{{ client.id }}", "value": "{{ value }}"}',
        on: ['raise', 'repeat'],
      },
      { type: 'alarm' },
    ],
  })
  const consumer = { name: 'found', channels: [target], max_in_flight: 10_000, ack_wait: '1h', order: 'none' }
  await json(`/${domainId}/consumers`, consumer, token)
  return { token, domainId, channelId, clients, ruleId }
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
          body: [{ n: 'value', v: valueOf(number) }],
          authorization: `Client ${secret}`,
          headers: { 'idempotency-key': `${id} ${number}` },
        })
        if ((await answer.catch(() => undefined))?.status === 202) break
        await pause(20)
      }
      sent.push({ client: id, number })
      await pause(10)
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

type Rule = { seen: number; matched: number; raised: number; acted: number; unmatchable: number; paused?: object }

test(
  'each message is evaluated once by a rule that a function decides for',
  { timeout: DEADLINE_MS * 2 + KILLS * 30_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const { domainId, token: authorization, ruleId } = setup
    const get = async <T>(path: string): Promise<T | undefined> => {
      const answer = await whole.call('GET', `/${domainId}/${path}`, { authorization }).catch(() => undefined)
      return answer?.status === 200 ? answer.json<T>() : undefined
    }
    const seen = async () => (await get<Rule>(`rules/${ruleId}`))?.seen ?? 0
    const published = publish(() => whole, setup)
    stack.defer(async () => await published.stop())
    for (let turn = 0; turn < KILLS; turn++) {
      const [sent, before] = [published.sent.length + BETWEEN, await seen()]
      await until(
        async () => published.sent.length >= sent && (await seen()) > before,
        () => `messages between two kills: ${published.sent.length} sent`,
        DEADLINE_MS,
      )
      whole = await strike(installation, whole, turn)
    }
    await published.stop()
    const all = published.sent
    await until(async () => (await seen()) >= all.length, `all ${all.length} messages are evaluated`, DEADLINE_MS)
    const found = all.filter(({ number }) => holds(number))
    /** By position: what is delivered again is the same message. */
    const byPosition = new Map<string, { client: string; value: number }>()
    await until(
      async () => {
        type Page = { messages: { position: string; payload: { client: string; value: number } }[] }
        const page = await get<Page>('consumers/found/messages?limit=1000&wait=1s')
        for (const { position, payload } of page?.messages ?? []) byPosition.set(position, payload)
        return byPosition.size >= found.length && page?.messages.length === 0
      },
      () => `what the function found is published: ${byPosition.size} of ${found.length}`,
      DEADLINE_MS,
    )
    expect([...byPosition.values()].map(({ client, value }) => `${client} ${value}`).toSorted()).toEqual(
      found.map(({ client, number }) => `${client} ${valueOf(number)}`).toSorted(),
    )
    const rule = await get<Rule>(`rules/${ruleId}`)
    const counts = { seen: all.length, matched: found.length, unmatchable: 0, acted: found.length }
    expect(rule).toMatchObject(counts)
    expect(rule).not.toHaveProperty('paused')
    const alarms = await get<{ total: number }>(`alarms?rule=${ruleId}&limit=1`)
    expect(alarms?.total).toBe(rule?.raised)
  },
)
