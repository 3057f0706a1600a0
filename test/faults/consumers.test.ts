/**
 * Kills processes while several callers take the messages of one named consumer: each acknowledged publish is delivered, what was acknowledged is
 * not delivered again, and what was not is. SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
const PUBLISHERS = 4
const CALLERS = 4
/** Values that are sent and acknowledged between two kills, at least. */
const BETWEEN = 60
const DEADLINE_MS = 120_000
/** Each caller forgets as many answers: it ended between the delivery and its acknowledgement. */
const FORGOTTEN = 0.1

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type Setup = { token: string; domainId: string; channelId: string; secrets: string[] }

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
  const { id: domainId } = await json<{ id: string }>('/domains', { name: 'consumers' }, token)
  const { id: channelId } = await json<{ id: string }>(`/${domainId}/channels`, { name: 'values' }, token)
  const secrets: string[] = []
  for (let count = 0; count < PUBLISHERS; count++) {
    const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, token)
    await json(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [channelId] }, token)
    secrets.push(client.credentials.secret)
  }
  const consumer = { name: 'values', channels: [channelId], from: 'earliest', ack_wait: '2s', max_deliver: 1000 }
  await json(`/${domainId}/consumers`, consumer, token)
  return { token, domainId, channelId, secrets }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Each client publishes its numbers in order, each until it is acknowledged. */
function publish(whole: () => Whole, { domainId, channelId, secrets }: Setup) {
  const sent: string[] = []
  let isOver = false
  async function publisher(secret: string, index: number): Promise<void> {
    for (let number = 0; !isOver; number++) {
      const value = `${index}-${number}`
      for (;;) {
        const answer = whole().call('POST', `/http/m/${domainId}/c/${channelId}`, {
          body: { value },
          authorization: `Client ${secret}`,
          headers: { 'idempotency-key': value },
        })
        if ((await answer.catch(() => undefined))?.status === 202) break
        await pause(20)
      }
      sent.push(value)
    }
  }
  const loops = secrets.map(publisher)
  return {
    sent,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

type Message = { position: string; publisher: string; payload: { value: string } }

/** Callers of one consumer. */
function take(whole: () => Whole, { domainId, token }: Setup) {
  const path = `/${domainId}/consumers/values`
  /** Acknowledged values, with the time at which the answer came. */
  const acknowledged = new Map<string, number>()
  const faults: string[] = []
  /** By client, the highest number whose acknowledgement was sent. */
  const reached = new Map<string, number>()
  let isOver = false

  const numberOf = ({ payload }: Message) => Number(payload.value.split('-')[1])

  /** The messages of one answer: those of a client are in order, without a gap after what was acknowledged. */
  function check(messages: readonly Message[], askedMs: number): void {
    const before = new Map(reached)
    for (const message of messages) {
      const { value } = message.payload
      if ((acknowledged.get(value) ?? Infinity) < askedMs) faults.push(`${value} was delivered again`)
      const last = before.get(message.publisher) ?? -1
      if (numberOf(message) > last + 1) faults.push(`${value} was delivered after ${last}`)
      before.set(message.publisher, Math.max(last, numberOf(message)))
    }
  }

  async function acknowledge(messages: readonly Message[]): Promise<void> {
    for (const message of messages)
      reached.set(message.publisher, Math.max(reached.get(message.publisher) ?? -1, numberOf(message)))
    const body = { positions: messages.map(({ position }) => position) }
    for (;;) {
      const answer = await whole()
        .call('POST', `${path}/ack`, { authorization: token, body })
        .catch(() => undefined)
      if (answer?.status === 200) break
      if (answer !== undefined && answer.status < 500) faults.push(answer.text)
      await pause(20)
    }
    for (const { payload } of messages) acknowledged.set(payload.value, performance.now())
  }

  async function caller(): Promise<void> {
    while (!isOver) {
      const askedMs = performance.now()
      const answer = await whole()
        .call('GET', `${path}/messages?limit=20&wait=1s`, { authorization: token })
        .catch(() => undefined)
      if (answer?.status !== 200) {
        await pause(20)
        continue
      }
      const { messages } = answer.json<{ messages: Message[] }>()
      check(messages, askedMs)
      if (messages.length > 0 && Math.random() >= FORGOTTEN) await acknowledge(messages)
    }
  }
  const loops = Array.from({ length: CALLERS }, caller)
  return {
    acknowledged,
    faults,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

test(
  'each message is acknowledged once, and delivered until then',
  { timeout: DEADLINE_MS + KILLS * 20_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const published = publish(() => whole, setup)
    const taken = take(() => whole, setup)
    stack.defer(async () => {
      await published.stop()
      await taken.stop()
    })
    for (let turn = 0; turn < KILLS; turn++) {
      const [sent, acknowledged] = [published.sent.length + BETWEEN, taken.acknowledged.size + BETWEEN]
      await until(
        () => published.sent.length >= sent && taken.acknowledged.size >= acknowledged,
        () => `values between two kills: ${published.sent.length} sent, ${taken.acknowledged.size} acknowledged`,
        DEADLINE_MS,
      )
      whole = await strike(installation, whole, turn)
    }
    await published.stop()
    await until(
      () => published.sent.every((value) => taken.acknowledged.has(value)),
      () => `every value is acknowledged: ${taken.acknowledged.size} of ${published.sent.length}`,
      DEADLINE_MS,
    )
    await taken.stop()
    expect(taken.faults).toEqual([])
    expect(taken.acknowledged.size).toBe(published.sent.length)
    const shown = await whole.call('GET', `/${setup.domainId}/consumers/values`, { authorization: setup.token })
    expect(shown.json()).toMatchObject({ in_flight: 0, held: 0, dead_letters: 0, expired: 0 })
  },
)
