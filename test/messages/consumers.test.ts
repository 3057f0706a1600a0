// contract decision 100; docs/guides/consumers.md
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { warnOfExpiry } from '#api/consumers/maintenance.ts'
import { checkStep } from '#api/consumers/reading.ts'
import { sql } from '#core/sql.ts'
import { newMember, newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { beginOlderTransaction } from '../harness/older-transaction.ts'
import { until } from '../harness/until.ts'
import { consumerOf, expectStatus, newConsumer, send, untilSettled, values } from './consumers-support.ts'
import type { ConsumerBody, Taken } from './consumers-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

let plant: Plant
let device: Device
let other: Device

beforeAll(async () => {
  plant = await startPlant({ consumerTimes: { checkSeconds: 0, intervalMs: 20 } })
  ;[device, other] = [await plant.newDevice(), await plant.newDevice()]
})
afterAll(() => plant[Symbol.asyncDispose]())

async function newChannel(): Promise<string> {
  const channelId = await plant.newChannel()
  await plant.connect(device, channelId)
  await plant.connect(other, channelId)
  return channelId
}

const sendValues = async (channelId: string, from: number, to: number, by = device) => {
  for (let value = from; value <= to; value++) await send(plant, by, channelId, { value })
}

const tenant = () => ({ user: plant.owner, call: plant.owner.call, domainId: plant.domainId }) as unknown as Tenant

describe('a named consumer', () => {
  test('is created, listed, found by name and by id, changed and deleted', async () => {
    const channel = await newChannel()
    const { call } = plant.owner
    const base = `/${plant.domainId}/consumers`
    const body = {
      name: 'readings.v1',
      channels: [channel],
      filter: { subtopic: 'a/+/#', publisher: device.id, protocol: 'http' },
      order: 'channel',
      max_in_flight: 7,
      ack_wait: '1m30s',
      max_deliver: 3,
    }
    const response = expectStatus(201, await call('POST', base, body))
    const made = response.json<ConsumerBody>()
    expect(response.headers['location']).toBe(`${base}/${made.id}`)
    expect(made).toMatchObject({
      name: 'readings.v1',
      domain_id: plant.domainId,
      channels: [channel],
      filter: { subtopic: 'a.*.>', publisher: device.id, protocol: 'http' },
      order: 'channel',
      max_in_flight: 7,
      ack_wait: '1m30s',
      max_deliver: 3,
      in_flight: 0,
      held: 0,
      dead_letters: 0,
      expired: 0,
      lag_seconds: 0,
      created_by: plant.owner.id,
      updated_at: '0001-01-01T00:00:00Z',
    })
    for (const name of ['readings.v1', made.id])
      expect((await call('GET', `${base}/${name}`)).json()).toMatchObject({ id: made.id })
    const listed = await call('GET', `${base}?name=READ&channel=${channel}&limit=1`)
    expect(listed.json()).toMatchObject({ total: 1, offset: 0, limit: 1, consumers: [{ id: made.id }] })
    expect((await call('GET', `${base}?channel=${await newChannel()}`)).json()).toMatchObject({ total: 0 })
    const second = await newChannel()
    const changes = { name: 'renamed', channels: [second], filter: {}, ack_wait: '5s' }
    const changed = await call('PATCH', `${base}/readings.v1`, changes)
    expect(changed.json()).toMatchObject({
      id: made.id,
      name: 'renamed',
      channels: [second],
      filter: {},
      order: 'channel',
    })
    expect(changed.json()).toMatchObject({ ack_wait: '5s', max_deliver: 3, updated_by: plant.owner.id })
    expect((await call('DELETE', `${base}/renamed`)).status).toBe(204)
    expect((await call('GET', `${base}/renamed`)).status).toBe(404)
    expect((await call('DELETE', `${base}/renamed`)).status).toBe(404)
  })

  test('is recorded in the journal of its domain', async () => {
    const consumer = await newConsumer(plant, [await newChannel()])
    const { id } = await consumer.show()
    await consumer.post('seek', { from: 'latest' })
    await plant.owner.call('DELETE', consumer.path)
    const { rows } = await sql<{ operation: string }>`SELECT operation FROM journal
      WHERE attributes ->> 'id' = ${id} ORDER BY xid, seq`.execute(plant.api.database.db)
    expect(rows.map(({ operation }) => operation)).toEqual(['consumer.create', 'consumer.seek', 'consumer.remove'])
  })

  test('refuses a name that is in use with the field in details', async () => {
    const channels = [await newChannel()]
    const { name } = await newConsumer(plant, channels)
    const again = await plant.owner.call('POST', `/${plant.domainId}/consumers`, { name, channels })
    expect(again.status).toBe(409)
    expect(again.json()).toMatchObject({ error: 'conflict', details: [{ path: '/name' }] })
    const third = await newConsumer(plant, channels)
    const renamed = await plant.owner.call('PATCH', third.path, { name })
    expect(renamed.json()).toMatchObject({ error: 'conflict', details: [{ path: '/name' }] })
  })

  test('refuses what is malformed, and names the field', async () => {
    const channels = [await newChannel()]
    const refused: [string, Record<string, unknown>][] = [
      ['/name', { name: '' }],
      ['/name', { name: 'a b' }],
      ['/name', { name: '9f0e2b9e-3f53-4c3b-a3a6-0d2ec0a1a001' }],
      ['/channels', { channels: [] }],
      ['/filter/subtopic', { filter: { subtopic: '#/a' } }],
      ['/filter/publisher', { filter: { publisher: 'pump' } }],
      ['/filter/protocol', { filter: { protocol: 'smtp' } }],
      ['/order', { order: 'random' }],
      ['/from', { from: 'yesterday' }],
      ['/from', { from: '2026-02-31' }],
      ['/from', { from: '1-2' }],
      ['/from', { from: '99999999999999999999-1-1' }],
      ['/from', { from: '18446744073709551615-1-1' }],
      ['/max_in_flight', { max_in_flight: 0 }],
      ['/ack_wait', { ack_wait: '1ms' }],
      ['/ack_wait', { ack_wait: '25h' }],
      ['/max_deliver', { max_deliver: 0 }],
    ]
    for (const [path, fields] of refused) {
      const body = { name: 'odd', channels, ...fields }
      const response = await plant.owner.call('POST', `/${plant.domainId}/consumers`, body)
      expect(response.status, JSON.stringify(fields)).toBe(400)
      const [detail] = response.json<{ details: { path: string; message: string }[] }>().details
      expect(detail?.path, JSON.stringify(fields)).toBe(path)
      if (path === '/from')
        expect(detail?.message).toMatch(/^must (be earliest, latest, a time .* or the position|not be after)/)
    }
  })

  test('is limited to the quota of its domain', async () => {
    const user = await plant.api.newUser()
    const domain = (await user.call('POST', '/domains', { name: 'small' })).json<{ id: string }>()
    const channel = (await user.call('POST', `/${domain.id}/channels`, { name: 'one' })).json<{ id: string }>()
    await plant.api.admin('PUT', `/domains/${domain.id}/quotas`, { own: { consumers: 1 } })
    await plant.api.api.identity.quotas.settled()
    const create = (name: string) => user.call('POST', `/${domain.id}/consumers`, { name, channels: [channel.id] })
    await until(
      async () => (await user.call('GET', `/domains/${domain.id}/usage`)).text.includes('"consumers":{"limit":1'),
      'the quota is in force',
    )
    expectStatus(201, await create('first'))
    const refused = await create('second')
    expect(refused.status).toBe(422)
    expect(refused.json()).toMatchObject({ error: 'quota_exceeded' })
    const usage = await user.call('GET', `/domains/${domain.id}/usage`)
    expect(usage.json()).toMatchObject({ quotas: { consumers: { limit: 1, used: 1 } } })
  })

  test('of a thousand in one domain, asked for together, a hundred are created', async () => {
    const user = await plant.api.newUser()
    const domain = (await user.call('POST', '/domains', { name: 'many' })).json<{ id: string }>()
    const channel = (await user.call('POST', `/${domain.id}/channels`, { name: 'one' })).json<{ id: string }>()
    const statuses: number[] = []
    let next = 0
    // Beside each other, so that several read the count before one is created.
    await Promise.all(
      Array.from({ length: 20 }, async () => {
        while (next < 1000) {
          const body = { name: `consumer-${next++}`, channels: [channel.id] }
          statuses.push((await user.call('POST', `/${domain.id}/consumers`, body)).status)
        }
      }),
    )
    expect(statuses.filter((status) => status === 201)).toHaveLength(100)
    expect(statuses.filter((status) => status === 422)).toHaveLength(900)
    const { total } = (await user.call('GET', `/${domain.id}/consumers?limit=1`)).json<{ total: number }>()
    expect(total).toBe(100)
  })
})

describe('pulling', () => {
  test('gives each message once in order, until it is acknowledged', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 3)
    const consumer = await newConsumer(plant, [channel], { order: 'none' })
    const first = await consumer.pull(2)
    expect(values(first)).toEqual([1, 2])
    expect(first[0]).toMatchObject({
      attempts: 1,
      channel,
      subtopic: '',
      publisher: device.id,
      protocol: 'http',
      content_type: 'application/json',
    })
    expect(await consumer.show()).toMatchObject({ in_flight: 2 })
    expect((await consumer.show()).behind_since).toBeDefined()
    const second = await consumer.pull()
    expect(values(second)).toEqual([3])
    expect(await consumer.pull()).toEqual([])
    expect((await consumer.ack(...first, ...second)).json()).toEqual({ count: 3 })
    const shown = await consumer.show()
    expect(shown).toMatchObject({ in_flight: 0, lag_seconds: 0 })
    expect(shown.behind_since).toBeUndefined()
  })

  test('keeps the digits of numbers', async () => {
    const channel = await newChannel()
    const url = `/http/m/${plant.domainId}/c/${channel}`
    const json = { 'content-type': 'application/json' }
    await plant.api.as(`Client ${device.secret}`)('POST', url, '{"n":12345678901234567890.10}', json)
    await untilSettled(plant)
    const consumer = await newConsumer(plant, [channel])
    const { text } = await plant.owner.call('GET', `${consumer.path}/messages`)
    expect(text).toContain('"payload":{"n":12345678901234567890.10}')
  })

  test('delivers messages of several channels by its filter', async () => {
    const [one, two] = [await newChannel(), await newChannel()]
    await send(plant, device, one, { value: 1 }, 'a/b')
    await send(plant, device, two, { value: 2 }, 'a/c')
    await send(plant, other, two, { value: 3 }, 'a/c')
    await send(plant, device, two, { value: 4 }, 'b')
    const consumer = await newConsumer(plant, [one, two], { filter: { subtopic: 'a/+', publisher: device.id } })
    expect(values(await consumer.pull())).toEqual([1, 2])
    const none = await newConsumer(plant, [one, two], { filter: { protocol: 'coap' } })
    expect(await none.pull()).toEqual([])
  })

  test('waits for the first message, and answers nothing after the wait', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    expect(await consumer.pull(10, '50ms')).toEqual([])
    const waiting = consumer.pull(10, '60s')
    await sendValues(channel, 5, 5)
    const taken = await waiting
    expect(values(taken)).toEqual([5])
    await consumer.ack(...taken)
  })

  test('of a caller that waits ends when the consumer is deleted', async () => {
    const consumer = await newConsumer(plant, [await newChannel()])
    const path = `${consumer.path}/messages?wait=60s`
    const waiting = plant.owner.call('GET', path).then(({ status }) => ({ status, atMs: performance.now() }))
    // So that the caller waits, which nothing shows.
    await new Promise((resolve) => setTimeout(resolve, 300))
    const deletedMs = performance.now()
    expect((await plant.owner.call('DELETE', consumer.path)).status).toBe(204)
    const { status, atMs } = await waiting
    expect(status).toBe(404)
    // Without being told, it looks again after 30 s.
    expect(atMs - deletedMs).toBeLessThan(15_000)
  })

  test('of a caller that waits gets what another one puts back', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel])
    const taken = await consumer.pull()
    const waiting = consumer.pull(10, '60s')
    expect((await consumer.nack(taken)).status).toBe(200)
    const again = await waiting
    expect(values(again)).toEqual([1])
    expect(again[0]).toMatchObject({ attempts: 2, position: taken[0]?.position })
  })

  test('refuses waits and limits out of bounds', async () => {
    const consumer = await newConsumer(plant, [await newChannel()])
    for (const query of ['wait=61s', 'wait=soon', 'wait=-1s', 'limit=0', 'limit=1001'])
      expect((await plant.owner.call('GET', `${consumer.path}/messages?${query}`)).status, query).toBe(400)
  })

  test('that begins at the latest message gets none that was acknowledged before, however late its order is final', async () => {
    const channel = await newChannel()
    const publish = async (value: number) => {
      const url = `/http/m/${plant.domainId}/c/${channel}`
      const headers = { 'content-type': 'application/json' }
      expectStatus(202, await plant.api.as(`Client ${device.secret}`)('POST', url, JSON.stringify({ value }), headers))
    }
    let consumer
    {
      await using _older = await beginOlderTransaction(plant.api.database)
      await publish(1)
      consumer = await newConsumer(plant, [channel], { from: 'latest' })
      // It may go back to the position that it has.
      const { position } = await consumer.show()
      await publish(2)
      expectStatus(200, await consumer.post('seek', { from: position }))
    }
    await untilSettled(plant)
    expect(values(await consumer.pull())).toEqual([2])
  })

  test('begins at the earliest message, the latest, a time or a position', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 2)
    const [, second] = await (await newConsumer(plant, [channel])).pull()
    const middle = new Date().toISOString()
    await sendValues(channel, 3, 3)
    const begun = async (from: string) => values(await (await newConsumer(plant, [channel], { from })).pull())
    expect(await begun('earliest')).toEqual([1, 2, 3])
    expect(await begun('latest')).toEqual([])
    expect(await begun(middle)).toEqual([3])
    expect(await begun('2020-01-01T00:00:00Z')).toEqual([1, 2, 3])
    expect(await begun('2100-01-01T00:00:00Z')).toEqual([])
    expect(await begun((second as Taken).position)).toEqual([2, 3])
  })

  test('from a position before retention is 410 with the earliest one', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const body = { name: 'early', channels: [channel], from: '1-1-0' }
    const refused = await plant.owner.call('POST', `/${plant.domainId}/consumers`, body)
    expect(refused.status).toBe(410)
    const { error, details } = refused.json<{ error: string; details: { path: string; message: string }[] }>()
    expect(error).toBe('gone')
    expect(details[0]?.path).toBe('/from')
    const earliest = /(\d+-\d+-\d+)$/.exec(details[0]?.message ?? '')?.[1]
    expectStatus(201, await plant.owner.call('POST', `/${plant.domainId}/consumers`, { ...body, from: earliest }))
    const early = consumerOf(plant.owner.call, plant.domainId, 'early')
    expect((await early.post('seek', { from: '1-1-0' })).status).toBe(410)
  })

  test('is bounded by max_in_flight', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 4)
    const consumer = await newConsumer(plant, [channel], { max_in_flight: 3, order: 'none' })
    const taken = await consumer.pull()
    expect(values(taken)).toEqual([1, 2, 3])
    expect(await consumer.pull()).toEqual([])
    const waiting = consumer.pull(10, '60s')
    await consumer.ack(taken[1] as Taken)
    expect(values(await waiting)).toEqual([4])
  })

  test('gives everything in pages, also over many batches', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    await Promise.all(Array.from({ length: 60 }, (_, value) => send(plant, device, channel, { value })))
    const all: number[] = []
    for (let page = await consumer.pull(7); page.length > 0; page = await consumer.pull(7)) {
      all.push(...values(page))
      await consumer.ack(...page)
    }
    expect(all.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, value) => value))
  })
})

describe('acknowledging', () => {
  test('out of order leaves the others in doubt, and again has no effect', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 3)
    const consumer = await newConsumer(plant, [channel], { ack_wait: '100ms', max_deliver: 100 })
    const [first, second, third] = (await consumer.pull()) as [Taken, Taken, Taken]
    expect((await consumer.ack(third, first)).json()).toEqual({ count: 2 })
    expect((await consumer.ack(third, first)).json()).toEqual({ count: 2 })
    const again = await until(async () => {
      const found = await consumer.pull()
      return found.length > 0 ? found : undefined
    }, 'the message is delivered again')
    expect(again).toMatchObject([{ position: second.position, attempts: 2 }])
  })

  test('positions that the consumer was not given are 404, and nothing is acknowledged', async () => {
    const [channel, foreign] = [await newChannel(), await newChannel()]
    await sendValues(foreign, 1, 1)
    await sendValues(channel, 1, 2)
    const consumer = await newConsumer(plant, [channel], { max_in_flight: 1 })
    const [mine] = (await consumer.pull()) as [Taken]
    const [strange] = (await (await newConsumer(plant, [foreign])).pull()) as [Taken]
    const [, later] = (await (await newConsumer(plant, [channel])).pull()) as [Taken, Taken]
    const huge = '9007199254740991-9007199254740991-999999999'
    for (const position of [strange.position, later.position, '1-1-1', huge, mine.position.replace(/\d+$/, '999')]) {
      const refused = await consumer.post('ack', { positions: [mine.position, position] })
      expect(refused.status, position).toBe(404)
      expect(refused.json()).toMatchObject({ error: 'not_found', details: [{ path: '/positions/1' }] })
      expect((await consumer.post('nack', { positions: [mine.position, position] })).status, position).toBe(404)
    }
    expect(await consumer.show()).toMatchObject({ in_flight: 1 })
    const beyond = [
      '99999999999999999999-1-1',
      '1-99999999999999999999-1',
      '1-1-99999999999',
      '-1-1-1',
      '1-1-1.5',
      7,
      null,
    ]
    for (const positions of [[], ['x'], ['1-1'], 'x', ...beyond.map((one) => [one])])
      expect((await consumer.post('ack', { positions })).status).toBe(400)
    expect((await consumer.ack(mine)).status).toBe(200)
  })

  test('nack delivers again after the delay', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel])
    const [one] = (await consumer.pull()) as [Taken]
    expect((await consumer.nack([one], { delay: '1h' })).status).toBe(200)
    expect(await consumer.pull()).toEqual([])
    expect((await consumer.nack([one])).status).toBe(200)
    expect(await consumer.pull()).toMatchObject([{ attempts: 2 }])
    expect((await consumer.nack([one], { delay: '25h' })).status).toBe(400)
  })
})

describe('order', () => {
  test('of clients: a message in doubt holds back its own client alone', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    await sendValues(channel, 1, 1)
    const [first] = (await consumer.pull()) as [Taken]
    await sendValues(channel, 2, 2)
    await sendValues(channel, 11, 11, other)
    expect(values(await consumer.pull())).toEqual([11])
    expect(await consumer.show()).toMatchObject({ in_flight: 2, held: 1 })
    await sendValues(channel, 3, 3)
    expect(await consumer.pull()).toEqual([])
    await consumer.ack(first)
    expect(values(await consumer.pull())).toEqual([2, 3])
  })

  test('of the channel: a message in doubt holds back all of it; of none: nothing', async () => {
    const channel = await newChannel()
    const [whole, free] = [
      await newConsumer(plant, [channel], { from: 'latest', order: 'channel' }),
      await newConsumer(plant, [channel], { from: 'latest', order: 'none' }),
    ]
    await sendValues(channel, 1, 1)
    expect(values(await whole.pull())).toEqual([1])
    expect(values(await free.pull())).toEqual([1])
    await sendValues(channel, 2, 2, other)
    expect(await whole.pull()).toEqual([])
    expect(values(await free.pull())).toEqual([2])
  })

  test('of clients holds between callers that share a consumer', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    const seen = new Map<string, number[]>()
    const busy = new Set<string>()
    const count = 40
    let done = 0
    async function member(): Promise<void> {
      while (done < count) {
        const taken = await consumer.pull(3, '200ms')
        const mine = new Set(taken.map(({ publisher }) => publisher))
        for (const publisher of mine) {
          expect(busy.has(publisher)).toBe(false)
          busy.add(publisher)
        }
        for (const [index, one] of taken.entries()) {
          seen.set(one.publisher, [...(seen.get(one.publisher) ?? []), ...values([one])])
          if (taken.slice(index + 1).every(({ publisher }) => publisher !== one.publisher)) busy.delete(one.publisher)
          await consumer.ack(one)
          done++
        }
      }
    }
    const members = [member(), member(), member(), member()]
    await Promise.all([sendValues(channel, 1, count / 2), sendValues(channel, 1, count / 2, other)])
    await Promise.all(members)
    const expected = Array.from({ length: count / 2 }, (_, index) => index + 1)
    expect(seen.get(device.id)).toEqual(expected)
    expect(seen.get(other.id)).toEqual(expected)
    expect(done).toBe(count)
  })
})

describe('a message that was delivered max_deliver times', () => {
  type Letters = {
    total: number
    dead_letters: { id: string; position: string; attempts: number; error: string; message?: Taken }[]
  }
  const lettersOf = async (path: string) => (await plant.owner.call('GET', `${path}/dead-letters`)).json<Letters>()

  test('becomes a dead letter, and the next ones go on', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 2)
    const consumer = await newConsumer(plant, [channel], { max_deliver: 2 })
    const [first, second] = (await consumer.pull()) as [Taken, Taken]
    await consumer.ack(second)
    await sendValues(channel, 3, 3)
    await consumer.nack([first], { reason: 'no such pump' })
    const again = await consumer.pull()
    expect(values(again)).toEqual([1, 3])
    await consumer.nack([again[0] as Taken], { reason: 'still no such pump', delay: '1h' })
    expect(await consumer.show()).toMatchObject({ dead_letters: 1, in_flight: 1 })
    const { total, dead_letters: letters } = await lettersOf(consumer.path)
    expect(total).toBe(1)
    expect(letters).toMatchObject([
      {
        position: first.position,
        attempts: 2,
        error: 'still no such pump',
        message: { payload: { value: 1 }, channel, publisher: device.id },
      },
    ])
    await consumer.ack(again[1] as Taken)
    expect(await consumer.pull()).toEqual([])
  })

  test('becomes one also if nobody asks for messages any more', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel], { max_deliver: 1, ack_wait: '100ms' })
    await consumer.pull()
    const letters = await until(async () => {
      const found = await lettersOf(consumer.path)
      return found.total === 1 ? found : undefined
    }, 'a dead letter')
    expect(letters.dead_letters).toMatchObject([{ error: 'was not acknowledged in time', attempts: 1 }])
  })

  test('is tried again or discarded by id, time or all, and by nothing it is refused', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 3)
    const consumer = await newConsumer(plant, [channel], { max_deliver: 1 })
    await consumer.nack(await consumer.pull())
    const { dead_letters: letters } = await lettersOf(consumer.path)
    expect(letters).toHaveLength(3)
    for (const action of ['retry', 'discard'])
      for (const body of [{}, { all: false }, { all: true, ids: [letters[0]?.id] }])
        expect((await consumer.post(`dead-letters/${action}`, body)).status).toBe(400)
    const discarded = letters.find(({ message }) => JSON.stringify(message?.payload) === '{"value":2}')
    const byId = await consumer.post('dead-letters/discard', { ids: [discarded?.id] })
    expect(byId.json()).toEqual({ count: 1 })
    expect((await consumer.post('dead-letters/retry', { until: '2020-01-01T00:00:00Z' })).json()).toEqual({ count: 0 })
    expect((await consumer.post('dead-letters/retry', { all: true })).json()).toEqual({ count: 2 })
    const again = await consumer.pull()
    expect(values(again)).toEqual([1, 3])
    expect(again[0]?.attempts).toBe(1)
    await consumer.nack(again)
    expect((await consumer.post('dead-letters/discard', { all: true })).json()).toEqual({ count: 2 })
    expect(await lettersOf(consumer.path)).toMatchObject({ total: 0 })
  })

  test('shows its message to callers with subscribe alone', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel], { max_deliver: 1 })
    await consumer.nack(await consumer.pull())
    const reader = await newMember(plant.api, tenant(), ['read', 'consumer_read', 'channel_read'])
    const letters = (await reader.call('GET', `${consumer.path}/dead-letters`)).json<Letters>()
    expect(letters.total).toBe(1)
    expect(letters.dead_letters[0]).not.toHaveProperty('message')
    const taker = await newMember(plant.api, tenant(), ['read', 'consumer_read', 'channel_read', 'channel_subscribe'])
    const shown = (await taker.call('GET', `${consumer.path}/dead-letters`)).json<Letters>()
    expect(shown.dead_letters[0]?.message?.payload).toEqual({ value: 1 })
  })
})

describe('moving', () => {
  test('forgets what is in doubt and keeps dead letters', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 3)
    const consumer = await newConsumer(plant, [channel], { max_deliver: 1 })
    const [first, second] = (await consumer.pull()) as [Taken, Taken, Taken]
    await consumer.nack([first])
    const moved = await consumer.post('seek', { from: second.position })
    expect(moved.json()).toMatchObject({ position: second.position, in_flight: 0, dead_letters: 1 })
    expect(values(await consumer.pull())).toEqual([2, 3])
    expect((await consumer.post('seek', { from: 'latest' })).status).toBe(200)
    expect(await consumer.pull()).toEqual([])
    for (const body of [{}, { from: 'x' }]) expect((await consumer.post('seek', body)).status).toBe(400)
  })
})

describe('a consumer that nobody reads', () => {
  test('stands at its first message that waits, and is behind since its arrival', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    expect((await consumer.show()).behind_since).toBeUndefined()
    await sendValues(await newChannel(), 1, 1)
    await sendValues(channel, 1, 2)
    const shown = await until(async () => {
      const found = await consumer.show()
      return found.behind_since === undefined ? undefined : found
    }, 'the consumer is behind')
    expect(shown.lag_seconds).toBeGreaterThan(0)
    const taken = await consumer.pull()
    expect(taken[0]?.position).toBe(shown.position)
  })

  test('with a filter that matches nothing passes all messages, and is never behind', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest', filter: { subtopic: 'no/such/place' } })
    const before = (await consumer.show()).position
    await sendValues(channel, 1, 5)
    // What it has passed is behind it, so that it costs nothing later.
    const passed = await until(async () => {
      const shown = await consumer.show()
      return shown.position === before ? undefined : shown
    }, 'its position passes the messages')
    expect(passed).toMatchObject({ in_flight: 0, held: 0, expired: 0, lag_seconds: 0 })
    expect(passed.behind_since).toBeUndefined()
    expect(await consumer.pull()).toEqual([])
    await send(plant, device, channel, { value: 6 }, 'no/such/place')
    expect(values(await consumer.pull())).toEqual([6])
  })

  test('counts messages that waited for a week, and says so a day before', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    await sendValues(channel, 1, 2)
    const { db } = plant.api.database
    await until(async () => (await consumer.show()).behind_since !== undefined, 'the consumer is behind')
    const { id } = await consumer.show()
    // As if they had arrived 6.5 days ago.
    await sql`UPDATE message_consumers SET behind_since = now() - interval '156 hours' WHERE id = ${id}`.execute(db)
    for (let twice = 0; twice < 2; twice++) await warnOfExpiry(plant.api.api.identity.journal)
    const warnings = await sql<{ reason: string }>`SELECT attributes ->> 'reason' AS reason FROM journal
      WHERE operation = 'consumer.expire_soon' AND attributes ->> 'id' = ${id}`.execute(db)
    expect(warnings.rows).toHaveLength(1)
    expect(warnings.rows[0]?.reason).toContain('expire after 7 days')
    const { rows } = await sql<{ key: number }>`SELECT key FROM message_consumers WHERE id = ${id}`.execute(db)
    // As if eight days had passed.
    const now = Date.now
    Date.now = () => now() + 8 * 86_400_000
    try {
      await plant.api.database.transaction((tx) => checkStep(tx, rows[0]?.key ?? 0))
    } finally {
      Date.now = now
    }
    await sendValues(channel, 3, 3)
    expect(values(await consumer.pull())).toEqual([3])
    expect(await consumer.show()).toMatchObject({ expired: 2, in_flight: 1 })
  })

  test('loses its messages in doubt that were deleted, and counts them', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 2)
    const consumer = await newConsumer(plant, [channel])
    await consumer.nack(await consumer.pull())
    const { domainId, owner } = plant
    expectStatus(204, await owner.call('DELETE', `/${domainId}/channels/${channel}/messages?publisher=${device.id}`))
    expect(await consumer.pull()).toEqual([])
    expect(await consumer.show()).toMatchObject({ expired: 2, in_flight: 0 })
  })
})

test('a domain that is removed takes its consumers and what is in doubt with it', async () => {
  const { api } = plant
  const gone = await newTenant(api)
  const [client, channel] = [await gone.newClient(), await gone.newChannel()]
  await gone.connect(client.id, channel.id)
  const path = `/${gone.domainId}/consumers`
  const made = { name: 'gone', channels: [channel.id], from: 'earliest', max_deliver: 1 }
  const { id } = expectStatus(201, await gone.call('POST', path, made)).json<{ id: string }>()
  const theirs = { ...plant, domainId: gone.domainId }
  await send(theirs, { id: client.id, secret: client.credentials.secret }, channel.id, { value: 1 })
  const consumer = consumerOf(gone.call, gone.domainId, 'gone')
  expect(values(await consumer.pull())).toEqual([1])
  const { db } = api.database
  const { rows } = await sql<{ key: number }>`SELECT key FROM message_consumers WHERE id = ${id}`.execute(db)
  const key = rows[0]?.key
  expectStatus(200, await gone.call('POST', `/domains/${gone.domainId}/disable`))
  expectStatus(204, await gone.call('DELETE', `/domains/${gone.domainId}`))
  await sql`UPDATE domains SET deleted_at = now() - interval '1 year' WHERE id = ${gone.domainId}`.execute(db)
  await until(async () => (await api.api.domainPurge.round()).includes(gone.domainId), 'the purge of the domain')
  for (const table of ['message_consumer_deliveries', 'message_consumer_channels']) {
    const left = await sql`SELECT FROM ${sql.table(table)} WHERE consumer_key = ${key}`.execute(db)
    expect(left.rows, table).toEqual([])
  }
  expect((await sql`SELECT FROM message_consumers WHERE key = ${key}`.execute(db)).rows).toEqual([])
})

describe('rights', () => {
  const takes = ['read', 'consumer_read', 'consumer_update', 'channel_read', 'channel_subscribe']

  test('of each call', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel])
    const statuses = async (actions: readonly string[]) => {
      const { call } = await newMember(plant.api, tenant(), actions)
      const body = { name: `of-${actions.length}`, channels: [channel] }
      return [
        (await call('GET', consumer.path)).status,
        (await call('GET', `/${plant.domainId}/consumers`)).status,
        (await call('GET', `${consumer.path}/messages`)).status,
        (await call('POST', `${consumer.path}/seek`, { from: 'latest' })).status,
        (await call('POST', `/${plant.domainId}/consumers`, body)).status,
      ]
    }
    expect(await statuses(['read'])).toEqual([403, 403, 403, 403, 403])
    expect(await statuses(['read', 'consumer_read'])).toEqual([200, 200, 403, 403, 403])
    expect(await statuses(['read', 'consumer_read', 'consumer_update', 'channel_read'])).toEqual([
      200, 200, 403, 200, 403,
    ])
    expect(await statuses(takes)).toEqual([200, 200, 200, 200, 403])
    expect(await statuses(['read', 'consumer_create', 'channel_read'])).toEqual([403, 403, 403, 403, 403])
    expect(await statuses(['read', 'consumer_create', 'channel_read', 'channel_subscribe'])).toEqual([
      403, 403, 403, 403, 201,
    ])
  })

  test('of another tenant are none', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel])
    const stranger = await plant.api.newUser()
    const theirs = (await stranger.call('POST', '/domains', { name: 'theirs' })).json<{ id: string }>()
    expect((await stranger.call('GET', consumer.path)).status).toBe(403)
    const { id } = await consumer.show()
    for (const path of ['', '/messages', '/dead-letters'])
      expect((await stranger.call('GET', `/${theirs.id}/consumers/${id}${path}`)).status, path).toBe(404)
    const body = { name: 'steal', channels: [channel] }
    expect((await stranger.call('POST', `/${theirs.id}/consumers`, body)).status).toBe(403)
  })

  test('a revoked subscribe pauses it with the reason, and it goes on at its position', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    await sendValues(channel, 1, 1)
    const { call } = plant.owner
    await call('POST', `/${plant.domainId}/channels/${channel}/disable`)
    expect((await call('GET', `${consumer.path}/messages`)).status).toBe(403)
    expect((await consumer.show()).last_error?.reason).toContain(`requires subscribe on the channel ${channel}`)
    await call('POST', `/${plant.domainId}/channels/${channel}/enable`)
    expect(values(await consumer.pull())).toEqual([1])
    expect((await consumer.show()).last_error).toBeUndefined()
  })

  test('a caller that waits gets nothing after the right is gone', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    const waiting = plant.owner.call('GET', `${consumer.path}/messages?wait=60s`)
    await plant.owner.call('POST', `/${plant.domainId}/channels/${channel}/disable`)
    await sql`SELECT 1`.execute(plant.api.database.db)
    // Something for the consumer that wakes the caller.
    await consumer.post('seek', { from: 'latest' })
    expect((await waiting).status).toBe(403)
  })

  test('a personal access token needs consumers:update and messages:subscribe on the channels', async () => {
    const channel = await newChannel()
    await sendValues(channel, 1, 1)
    const consumer = await newConsumer(plant, [channel])
    const scope = (type: string, operation: string, entity = '*') => ({
      entity_type: type,
      operation,
      domain_id: plant.domainId,
      entity_id: entity,
    })
    const withScopes = async (scopes: readonly object[]) => {
      const { call } = plant.owner
      const pat = (await call('POST', '/pats', { name: 'reader', duration: '1h' })).json<{
        id: string
        secret: string
      }>()
      expectStatus(200, await call('PATCH', `/pats/${pat.id}/scope/add`, { scopes }))
      return plant.api.as(`Bearer ${pat.secret}`)
    }
    const pullWith = async (scopes: readonly object[]) =>
      (await (await withScopes(scopes))('GET', `${consumer.path}/messages`)).status
    expect(await pullWith([scope('messages', 'subscribe', channel)])).toBe(403)
    expect(await pullWith([scope('consumers', 'update')])).toBe(403)
    expect(await pullWith([scope('consumers', 'update'), scope('messages', 'subscribe', channel)])).toBe(200)
    const reader = await withScopes([scope('consumers', 'read')])
    expect((await reader('GET', consumer.path)).status).toBe(200)
    expect((await reader('POST', `${consumer.path}/seek`, { from: 'latest' })).status).toBe(403)
  })

  test('a consumer whose channels were deleted says so', async () => {
    const channel = await newChannel()
    const consumer = await newConsumer(plant, [channel])
    await plant.owner.call('DELETE', `/${plant.domainId}/channels/${channel}`)
    const refused = await plant.owner.call('GET', `${consumer.path}/messages`)
    expect(refused.json()).toMatchObject({ error: 'invalid_state' })
    expect(await consumer.show()).toMatchObject({
      channels: [],
      last_error: { reason: expect.stringContaining('deleted') },
    })
  })
})
