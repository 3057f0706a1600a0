import { expect, test } from 'vitest'
import type { EventRecord } from './event.ts'
import { MAX_WAITING_RECORDS, Subscriber } from './subscriber.ts'
import type { SubscriberEnd } from './subscriber.ts'

const record = (seq: number, entities = 1): EventRecord => ({
  position: { xid: 1n, seq },
  operation: 'client.update',
  occurredAtUs: 0,
  domainKey: 1,
  domainId: null,
  actorId: null,
  tokenType: null,
  superAdmin: false,
  requestId: null,
  entityKeys: Array.from({ length: entities }, (_, index) => index),
  attributes: {},
})

function newSubscriber() {
  const ends: SubscriberEnd[] = []
  const kept = { bytes: 0 }
  const subscriber = new Subscriber({
    domainKey: 1,
    authorize: () => Promise.resolve(),
    onEnd: (reason) => ends.push(reason),
    keep: (bytes) => (kept.bytes += bytes),
    sparedMs: 20,
  })
  return { subscriber, ends, kept }
}

test('waiting records are delivered in order and once', async () => {
  const { subscriber } = newSubscriber()
  const waiting = subscriber.next()
  subscriber.offer(record(1))
  subscriber.offer(record(2))
  expect(await waiting).toMatchObject({ records: [{ position: { seq: 1 } }, { position: { seq: 2 } }] })
  expect(subscriber.keptBytes).toBeGreaterThan(0)
  void subscriber.next()
  expect(subscriber.keptBytes).toBe(0)
})

test('records up to the start position of the stream are skipped', async () => {
  const { subscriber } = newSubscriber()
  subscriber.after = { xid: 1n, seq: 5 }
  subscriber.offer(record(5))
  subscriber.offer(record(6))
  expect(await subscriber.next()).toMatchObject({ records: [{ position: { seq: 6 } }] })
})

test('one record above the limit ends the stream once, with a reason, and drops the waiting records', async () => {
  const { subscriber, ends } = newSubscriber()
  for (let seq = 0; seq <= MAX_WAITING_RECORDS + 5; seq++) subscriber.offer(record(seq))
  subscriber.end('stopping')
  expect(ends).toEqual(['slow_reader'])
  expect(await subscriber.next()).toEqual({ ended: 'slow_reader' })
})

test('the size of a record counts toward the buffer until the record is written', async () => {
  const { subscriber, ends, kept } = newSubscriber()
  const large = (seq: number) => ({ ...record(seq), attributes: { text: 'x'.repeat(1_000_000) } })
  subscriber.offer(large(1))
  expect(kept.bytes).toBeGreaterThan(1_000_000)
  expect(subscriber.keptBytes).toBe(kept.bytes)
  await subscriber.next()
  expect(kept.bytes).toBeGreaterThan(1_000_000)
  const waiting = subscriber.next()
  expect(kept.bytes).toBe(0)
  for (let seq = 2; seq < 8; seq++) subscriber.offer(large(seq))
  // A burst above the limit is tolerated for a short time.
  expect(await waiting).toMatchObject({ records: { length: 6 } })
  for (let seq = 8; seq < 14; seq++) subscriber.offer(large(seq))
  expect(ends).toEqual([])
  await expect.poll(() => ends).toEqual(['slow_reader'])
  expect(await subscriber.next()).toEqual({ ended: 'slow_reader' })
  expect(kept.bytes).toBe(0)
})

test('a record that several subscribers wait for is accounted once', async () => {
  const [one, other] = [newSubscriber(), newSubscriber()]
  const shared = record(1)
  one.subscriber.offer(shared)
  other.subscriber.offer(shared)
  expect(one.kept.bytes).toBeGreaterThan(0)
  expect(other.kept.bytes).toBe(0)
  one.subscriber.end('closed')
  expect(one.kept.bytes).toBeGreaterThan(0)
  other.subscriber.end('closed')
  expect(one.kept.bytes + other.kept.bytes).toBe(0)
})

test('a few large records also end the stream', async () => {
  const { subscriber, ends } = newSubscriber()
  for (let seq = 1; seq <= 8; seq++) subscriber.offer(record(seq, 10_000))
  await expect.poll(() => ends).toEqual(['slow_reader'])
})

test('the end of a stream resolves a pending read', async () => {
  const { subscriber } = newSubscriber()
  const waiting = subscriber.next()
  subscriber.end('forbidden')
  expect(await waiting).toEqual({ ended: 'forbidden' })
})
