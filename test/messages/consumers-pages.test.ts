// docs/decisions/0130: messages that a step gave together are one row until they are answered otherwise than together
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { expectStatus, newConsumer, send, values } from './consumers-support.ts'
import type { TestConsumer } from './consumers-support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant({ consumerTimes: { checkSeconds: 60, intervalMs: 100 } }))

const SIZE = 12
const ALL = Array.from({ length: SIZE }, (_, value) => value)

/** A consumer of a channel with messages of several devices in turn. */
async function withMessages(fields: Record<string, unknown> = {}, devices = 1) {
  const channel = await plant.newChannel()
  const senders = await Promise.all(Array.from({ length: devices }, () => plant.newDevice()))
  for (const device of senders) await plant.connect(device, channel)
  const publish = async (value: number) => {
    await send(plant, senders[value % devices] as (typeof senders)[number], channel, { value })
  }
  for (const value of ALL) await publish(value)
  return { consumer: await newConsumer(plant, [channel], { ack_wait: '60s', ...fields }), publish }
}

/** Rows of what is in doubt: of pages, and of single messages. */
async function rowsOf(consumer: TestConsumer): Promise<{ pages: number; singles: number }> {
  const { id } = await consumer.show()
  const { rows } = await sql<{ pages: number; singles: number }>`
    SELECT (SELECT count(*) FROM message_consumer_pages p WHERE p.consumer_key = c.key) AS pages,
      (SELECT count(*) FROM message_consumer_deliveries d WHERE d.consumer_key = c.key) AS singles
      FROM message_consumers c WHERE c.id = ${id}`.execute(plant.api.database.db)
  return rows[0] as { pages: number; singles: number }
}

/** Lets what is in doubt become due. */
async function expire(consumer: TestConsumer): Promise<void> {
  const { id } = await consumer.show()
  for (const table of ['pages', 'deliveries'])
    await sql`UPDATE ${sql.raw(`message_consumer_${table}`)} d SET due_at = now() FROM message_consumers c
      WHERE c.id = ${id} AND d.consumer_key = c.key`.execute(plant.api.database.db)
}

test('messages that are acknowledged together are one row, which the acknowledgement deletes', async () => {
  const { consumer } = await withMessages()
  const taken = await consumer.pull()
  expect(values(taken)).toEqual(ALL)
  expect(await rowsOf(consumer)).toEqual({ pages: 1, singles: 0 })
  expect(await consumer.show()).toMatchObject({ in_flight: SIZE })
  expectStatus(200, await consumer.ack(...taken.toReversed()))
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: 0 })
  expect(await consumer.show()).toMatchObject({ in_flight: 0 })
  expect((await consumer.ack(...taken)).json(), 'again').toEqual({ count: SIZE })
  await expire(consumer)
  expect(await consumer.pull()).toEqual([])
})

test('the others of a page whose messages are acknowledged apart stay in doubt', async () => {
  const { consumer } = await withMessages()
  const taken = await consumer.pull()
  expectStatus(200, await consumer.ack(...taken.slice(3, 5)))
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: SIZE - 2 })
  await expire(consumer)
  const again = await consumer.pull()
  expect(values(again)).toEqual(ALL.filter((value) => value !== 3 && value !== 4))
  expect(new Set(again.map(({ attempts }) => attempts))).toEqual(new Set([2]))
  expectStatus(200, await consumer.ack(...taken))
  expect(await consumer.show()).toMatchObject({ in_flight: 0 })
})

test('an acknowledgement that is refused leaves a page as it is', async () => {
  const { consumer } = await withMessages()
  const { consumer: other } = await withMessages()
  const [taken, foreign] = [await consumer.pull(), await other.pull()]
  expect((await consumer.ack(...taken, ...foreign.slice(0, 1))).status).toBe(404)
  expect((await consumer.ack(...taken.slice(1), ...foreign.slice(0, 1))).status).toBe(404)
  expect(await rowsOf(consumer)).toEqual({ pages: 1, singles: 0 })
  expectStatus(200, await consumer.ack(...taken))
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: 0 })
})

test('two pages are acknowledged by one call', async () => {
  const { consumer, publish } = await withMessages({ order: 'none' })
  const first = await consumer.pull()
  for (const value of ALL) await publish(value)
  const second = await consumer.pull()
  expect(await rowsOf(consumer)).toEqual({ pages: 2, singles: 0 })
  expectStatus(200, await consumer.ack(...second, ...first))
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: 0 })
})

test('a page that nobody acknowledges is delivered again, and its messages become dead letters one by one', async () => {
  const { consumer } = await withMessages({ max_deliver: 2 })
  const taken = await consumer.pull()
  await expire(consumer)
  const again = await consumer.pull()
  expect(values(again)).toEqual(ALL)
  expect(new Set(again.map(({ attempts }) => attempts))).toEqual(new Set([2]))
  expectStatus(200, await consumer.ack(...taken.slice(1)))
  await expire(consumer)
  await until(async () => (await consumer.show()).dead_letters === 1, 'the first message is a dead letter')
  expect(await consumer.pull()).toEqual([])
})

test('a page of a consumer that delivers each message once becomes dead letters, also if nobody asks again', async () => {
  const { consumer } = await withMessages({ max_deliver: 1 })
  await consumer.pull()
  await expire(consumer)
  await until(async () => (await consumer.show()).dead_letters === SIZE, 'all messages are dead letters')
})

test('a message of a page that is put back is delivered again alone', async () => {
  const { consumer } = await withMessages({ order: 'none' })
  const taken = await consumer.pull()
  expectStatus(200, await consumer.nack(taken.slice(2, 3)))
  expect(values(await consumer.pull())).toEqual([2])
  expect(await consumer.show()).toMatchObject({ in_flight: SIZE })
})

test('a page holds back later messages of its clients, until it is acknowledged', async () => {
  const { consumer, publish } = await withMessages({ order: 'client' }, 2)
  const [one, other] = [await consumer.pull(SIZE - 1), await consumer.pull(1)]
  expect([one.length, other.length], 'the last message waits for the page').toEqual([SIZE - 1, 0])
  await publish(SIZE)
  expect(await consumer.pull()).toEqual([])
  expectStatus(200, await consumer.ack(...one))
  expect(values(await consumer.pull())).toEqual([SIZE - 1, SIZE])
})

test('with another order a page holds back what that order says', async () => {
  const { consumer, publish } = await withMessages({ order: 'none' })
  await consumer.pull()
  await publish(SIZE)
  expectStatus(200, await plant.owner.call('PATCH', consumer.path, { order: 'channel' }))
  expect(await consumer.pull()).toEqual([])
  await expire(consumer)
  expect(values(await consumer.pull())).toEqual([...ALL, SIZE])
})

test('pages count as in flight, and are forgotten by a move', async () => {
  const { consumer } = await withMessages({ order: 'none', max_in_flight: SIZE - 1 })
  expect(await consumer.pull()).toHaveLength(SIZE - 1)
  expect(await consumer.pull()).toEqual([])
  expectStatus(200, await consumer.post('seek', { from: 'earliest' }))
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: 0 })
  const again = await consumer.pull()
  expect(values(again)).toEqual(ALL.slice(0, -1))
  expect(new Set(again.map(({ attempts }) => attempts))).toEqual(new Set([1]))
})

test('beside a node of an earlier build, which does not know pages, each message is a row', async () => {
  const { consumer } = await withMessages()
  const { db } = plant.api.database
  await sql`INSERT INTO nodes (id, kind, version, migration) VALUES ('older', 'api', '0', 1)`.execute(db)
  const taken = await consumer.pull()
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: SIZE })
  await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
  expectStatus(200, await consumer.ack(...taken))
  expect(await rowsOf(consumer)).toEqual({ pages: 0, singles: 0 })
})

test('pages that end within a batch leave out no message and repeat none', async () => {
  const [channel, other] = [await plant.newChannel(), await plant.newChannel()]
  const senders = await Promise.all(Array.from({ length: 8 }, () => plant.newDevice()))
  for (const device of senders) for (const each of [channel, other]) await plant.connect(device, each)
  const consumer = await newConsumer(plant, [channel], { order: 'none' })
  const sent = senders.flatMap((_, sender) => ALL.map((number) => sender * 100 + number))
  // At the same time: several messages share a batch.
  await Promise.all(
    senders.map(async (device, sender) => {
      for (const number of ALL) {
        await Promise.all([
          send(plant, device, channel, { value: sender * 100 + number }),
          send(plant, device, other, { value: -1 }),
        ])
      }
    }),
  )
  const taken: number[] = []
  await until(async () => {
    const page = await consumer.pull(11)
    if (page.length > 0) expectStatus(200, await consumer.ack(...page))
    taken.push(...values(page))
    return page.length === 0
  }, 'all messages were taken')
  expect(taken.toSorted((left, right) => left - right)).toEqual(sent)
  for (const [sender] of senders.entries())
    expect(taken.filter((value) => Math.floor(value / 100) === sender)).toEqual(
      ALL.map((number) => sender * 100 + number),
    )
})
