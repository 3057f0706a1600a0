/**
 * Notifications of a client are delivered in the order of its messages, at least once and under one id each, whatever the contact does (decision 0119).
 * Retry delays are 3,600 times shorter than those of the product: an hour is a second.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'

/** The product's: 10 s, 1 min, 5 min, 30 min, 2 h. */
const RETRY_SECONDS = [10, 60, 300, 1800, 7200].map((seconds) => seconds / 3600)
const HOUR_MS = 1000
/** Messages of one contact that are delivered at once; the next ones wait for its rate of 30 per minute. */
const BURST = 30
const CLIENTS = 3
const POST_DEADLINE_MS = 1000

type Told = { id: string; publisher: string; value: number }
type Behaviour = (told: Told) => { status?: number; delayMs?: number } | 'breaks'

let api: TestApi
let tenant: Tenant
let channelId: string
let clients: { id: string; credentials: { secret: string } }[]
let server: Server
let port: number
/** Requests that the contact has read, answered or not. */
let requests: Told[]
/** Those of them that it has accepted. */
let accepted: Told[]
let behave: Behaviour

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      const { id, publisher, payload } = JSON.parse(Buffer.concat(chunks).toString()) as {
        id: string
        publisher: string
        payload: string
      }
      const told = { id, publisher, value: (JSON.parse(payload) as [{ v: number }])[0].v }
      requests.push(told)
      const answer = behave(told)
      if (answer === 'breaks') return void request.socket.destroy()
      const { status = 200, delayMs = 0 } = answer
      setTimeout(() => {
        if (status < 300) accepted.push(told)
        response.writeHead(status).end()
      }, delayMs)
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  ;({ port } = server.address() as AddressInfo)
  api = await startTestApi({
    environment: { SKEIN_WEBHOOK_HOSTS: `127.0.0.1:${port}` },
    notificationTimes: { retrySeconds: RETRY_SECONDS, intervalMs: 20, postDeadlineMs: POST_DEADLINE_MS },
  })
  tenant = await newTenant(api)
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  server.closeAllConnections()
  server.close()
})

beforeEach(async () => {
  requests = []
  accepted = []
  behave = () => ({})
  channelId = (await tenant.newChannel()).id
  clients = await Promise.all(Array.from({ length: CLIENTS }, () => tenant.newClient()))
  for (const { id } of clients) await tenant.connect(id, channelId)
})
/** Nothing of a test is delivered in the next one. */
afterEach(async () => {
  const { subscriptions } = (await tenant.call('GET', '/subscriptions?limit=-1')).json<{
    subscriptions: { id: string }[]
  }>()
  for (const { id } of subscriptions) await tenant.call('DELETE', `/subscriptions/${id}`)
})

async function subscribe(): Promise<string> {
  const contact = `http://127.0.0.1:${port}/${newId()}`
  const made = await tenant.call('POST', '/subscriptions', { topic: channelId, contact })
  expect(made.status, made.text).toBe(201)
  return String(made.headers['location'])
}

/** Values from 1 on, those of a client one after the other: client `place` has `place + 1`, `place + 1 + CLIENTS`, … */
async function send(from: number, to: number): Promise<void> {
  for (let value = from; value <= to; value++) {
    const secret = clients[(value - 1) % CLIENTS]?.credentials.secret ?? ''
    const path = `/m/${tenant.domainId}/c/${channelId}`
    const headers = { 'content-type': 'application/senml+json' }
    const sent = await api.as(`Client ${secret}`)('POST', path, JSON.stringify([{ n: 'v', v: value }]), headers)
    expect(sent.status, sent.text).toBe(202)
  }
}

const idOf = (value: number) => clients[(value - 1) % CLIENTS]?.id
const valuesOf = (told: readonly Told[], place: number) =>
  told.filter(({ publisher }) => publisher === clients[place]?.id).map(({ value }) => value)

/** Each value was accepted; the first acceptances of each client are in order; a value and an id belong together. */
function expectWhole(count: number): void {
  const wanted = Array.from({ length: count }, (_, place) => place + 1)
  expect(new Set(accepted.map(({ value }) => value))).toEqual(new Set(wanted))
  for (let place = 0; place < CLIENTS; place++)
    expect([...new Set(valuesOf(accepted, place))], `client ${place}`).toEqual(
      wanted.filter((value) => (value - 1) % CLIENTS === place),
    )
  const ids = new Map(requests.map(({ id, value }) => [id, value]))
  expect(ids.size, 'one id for each message').toBe(count)
  for (const { id, value, publisher } of requests) {
    expect(ids.get(id), id).toBe(value)
    expect(publisher).toBe(idOf(value))
  }
}

const allAccepted = async (count: number) =>
  await until(() => new Set(accepted.map(({ value }) => value)).size === count, `${count} messages`)

it('an hour without the contact loses nothing, and each client is in order', async () => {
  behave = () => 'breaks'
  const path = await subscribe()
  const began = performance.now()
  // Some before, and some while the contact is away.
  for (let from = 1; from <= 21; from += 3) {
    await send(from, from + 2)
    await pause(HOUR_MS / 10)
  }
  await pause(Math.max(0, HOUR_MS - (performance.now() - began)))
  // The contact is away for an hour at least: a busy machine may need longer for the attempts of an hour.
  await until(() => requests.length > CLIENTS, 'attempts while the contact is away')
  behave = () => ({})
  await send(22, 24)
  await allAccepted(24)
  expectWhole(24)
  await until(
    async () => (await tenant.call('GET', path)).json<{ pending: number; missed: number }>().pending === 0,
    'nothing waits',
  )
  const letters = (await tenant.call('GET', `${path}/dead-letters`)).json<{ total: number }>()
  expect(letters.total).toBe(0)
})

it('a contact that answers 500 to every third request gets each message, in order', async () => {
  let count = 0
  behave = () => ({ status: count++ % 3 === 0 ? 500 : 200 })
  await subscribe()
  await send(1, 18)
  await allAccepted(18)
  expectWhole(18)
})

it('a message that fails holds back the later ones of its client alone, which lose no attempt', async () => {
  behave = ({ value }) => ({ status: value === 1 ? 500 : 200 })
  const path = await subscribe()
  await send(1, 9)
  await until(() => accepted.length === 6, 'those of the other clients')
  expect(valuesOf(accepted, 0)).toEqual([])
  // Its six attempts take 2.6 hours.
  await until(() => valuesOf(accepted, 0).length === 2, 'the others follow when it is given up')
  expect(valuesOf(requests, 0)).toEqual([1, 1, 1, 1, 1, 1, 4, 7])
  const { dead_letters: letters } = (await tenant.call('GET', `${path}/dead-letters`)).json<{
    dead_letters: { id: string; attempts: number }[]
  }>()
  const [letter] = letters
  expect(letters).toMatchObject([{ attempts: 6, id: requests.find(({ value }) => value === 1)?.id }])
  // A retried dead letter keeps its id, so that the receiver can tell.
  behave = () => ({})
  await tenant.call('POST', `${path}/dead-letters/retry`, { ids: [letter?.id] })
  await until(() => accepted.some(({ value }) => value === 1), 'it is delivered')
  expect(accepted.at(-1)).toEqual({ id: letter?.id, publisher: idOf(1), value: 1 })
})

it('a contact that answers slowly for ever gets each message once, in order', async () => {
  behave = () => ({ delayMs: POST_DEADLINE_MS / 4 })
  const path = await subscribe()
  await send(1, 12)
  await allAccepted(12)
  expectWhole(12)
  expect(accepted, 'none twice').toHaveLength(12)
  expect((await tenant.call('GET', path)).json<{ missed: number }>().missed).toBe(0)
})

it('a contact that accepts after the deadline gets messages again under their ids, until it is fast enough', async () => {
  behave = () => ({ delayMs: POST_DEADLINE_MS * 1.2 })
  await subscribe()
  await send(1, 3)
  await until(() => requests.length >= 3, 'the first attempts')
  await until(() => accepted.length > 0, 'an answer that nobody waits for any more')
  behave = () => ({})
  await allAccepted(3)
  expectWhole(3)
  expect(requests.length, 'repeated').toBeGreaterThan(3)
  expect(requests.length).toBeLessThan(BURST)
})

it('what no host answered follows the next message that it accepts; what it refused keeps its turn', async () => {
  behave = ({ value }) => (value === 2 ? { status: 500 } : 'breaks')
  await subscribe()
  const waiting = async () => {
    const { rows } = await api.database.pool.query<{ count: number }>(
      `SELECT count(*) AS count FROM notification_deliveries WHERE next_attempt_at > now() + interval '30 minutes'`,
    )
    return rows[0]?.count
  }
  /** As after some hours: the delays of this test are shorter than the lease of a delivery. One that is under way is changed when it has failed. */
  const failed = async (value: number, count: number) => {
    await send(value, value)
    await until(async () => {
      await api.database.pool.query(
        `UPDATE notification_deliveries SET next_attempt_at = now() + interval '1 hour'
          WHERE last_error IS NOT NULL AND next_attempt_at < now() + interval '1 minute'`,
      )
      return (await waiting()) === count
    }, `the failure of ${value}`)
  }
  await failed(2, 1)
  await failed(1, 2)
  await pause(2 * POST_DEADLINE_MS)
  expect(await waiting(), 'no attempt was under way').toBe(2)
  behave = ({ value }) => ({ status: value === 2 ? 500 : 200 })
  const before = requests.length
  await send(3, 3)
  // Without late answers to requests of the test before.
  const taken = () => accepted.filter((told) => requests.includes(told)).map(({ value }) => value)
  await until(() => taken().length === 2, 'both')
  expect(taken()).toEqual([3, 1])
  expect(requests.slice(before).map(({ value }) => value)).toEqual([3, 1])
  expect(await waiting()).toBe(1)
})
