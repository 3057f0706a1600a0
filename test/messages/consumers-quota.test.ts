// contract decision 98: what is in doubt at named consumers counts for the quota `queued_bytes`, and a full domain gets nothing new
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { expectStatus, newConsumer, send, values } from './consumers-support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant({ consumerTimes: { checkSeconds: 0, intervalMs: 100 } }))

type Use = { limit: number; used: number }

const usage = async () =>
  expectStatus(200, await plant.owner.call('GET', `/domains/${plant.domainId}/usage`)).json<{
    quotas: { queued_bytes: Use }
  }>().quotas.queued_bytes

async function setLimit(bytes: number): Promise<void> {
  const own = { queued_bytes: bytes }
  expectStatus(200, await plant.api.admin('PUT', `/domains/${plant.domainId}/quotas`, { own }))
  await until(async () => (await usage()).limit === bytes, 'the quota is in force')
}

test('a consumer of a full domain delivers what is in doubt again, takes acknowledgements, and goes on when there is room', async () => {
  const device = await plant.newDevice()
  const channel = await plant.newChannel()
  await plant.connect(device, channel)
  const consumer = await newConsumer(plant, [channel], { order: 'none', max_deliver: 2 })
  const publish = (value: number) => send(plant, device, channel, { value })
  for (const value of [1, 2]) await publish(value)
  expect((await usage()).used).toBe(0)
  expect(values(await consumer.pull())).toEqual([1, 2])
  const { used } = await usage()
  expect(used).toBeGreaterThan(2 * 50)
  expect(used).toBeLessThan(2 * 300)

  await setLimit(1)
  let last = 2
  const taken: number[] = []
  await until(async () => {
    await publish(++last)
    const got = await consumer.pull()
    taken.push(...values(got))
    if (got.length > 0) expectStatus(200, await consumer.ack(...got))
    return got.length === 0
  }, 'nothing new is delivered')
  await until(async () => (await consumer.show()).behind_since !== undefined, 'it says since when')
  expect(await consumer.pull(100, '100ms'), 'a caller that waits').toEqual([])

  // Given up, and asked for again: it is in doubt all the time.
  const letters = async () => (await consumer.show()).dead_letters
  const inDoubt = async () => (await consumer.show()).in_flight
  expect(await inDoubt()).toBe(2)
  expectStatus(200, await consumer.nack(await again()))
  expect(await letters()).toBe(2)
  expect((await usage()).used).toBeGreaterThanOrEqual(used)
  expect(await consumer.pull()).toEqual([])

  expectStatus(200, await consumer.post('dead-letters/discard', { all: true }))
  expect((await usage()).used).toBe(0)
  await until(async () => {
    const got = await consumer.pull(1)
    taken.push(...values(got))
    if (got.length > 0) expectStatus(200, await consumer.ack(...got))
    return taken.length === last - 2
  }, 'the others follow')
  expect(taken).toEqual(Array.from({ length: last - 2 }, (_, index) => index + 3))

  /** Delivered for the second time. */
  async function again() {
    const seen = await plant.api.database.db.query<{ key: number }>({
      text: `UPDATE message_consumer_deliveries SET due_at = now() WHERE attempts = 1 RETURNING consumer_key AS key`,
      values: [],
    })
    expect(seen.rows).toHaveLength(2)
    const got = await consumer.pull()
    expect(values(got)).toEqual([1, 2])
    return got
  }
})

test('a domain has 20 GiB unless its quota says otherwise', async () => {
  expectStatus(200, await plant.api.admin('PUT', `/domains/${plant.domainId}/quotas`, { own: {} }))
  await until(async () => (await usage()).limit === 20 * 1024 ** 3, 'the default is in force')
})
