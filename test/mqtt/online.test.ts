/** Lists of clients say who is online: by field, filter, order and count. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ZERO_TIME } from '#core/time.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { aDevice, startNode } from './support.ts'
import type { Node } from './support.ts'

type Listed = { id: string; online: boolean; last_seen: string }
type Page = { total: number; clients: Listed[] }

const plant = useWorld(() => startPlant())
let node: Node
beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

async function list(query: string): Promise<Page> {
  const answer = await plant.owner.call('GET', `/${plant.domainId}/clients?${query}`)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<Page>()
}

const idsOf = ({ clients }: Page) => clients.map(({ id }) => id)

test('a client with an MQTT connection is online until it ends, in every form of the list', async () => {
  const [connected, other, away] = [
    await aDevice(plant, node.port),
    await aDevice(plant, node.port),
    await plant.newDevice(),
  ]
  using peer = await connected.connect({ clientId: 'one', clean: true })
  using _second = await other.connect({ clientId: 'two', clean: true })
  await until(async () => (await list('online=true')).total === 2, 'two clients are online')
  const online = await list('online=true&order=created_at')
  expect(online.clients.map(({ id, online: isOnline }) => [id, isOnline])).toEqual([
    [connected.id, true],
    [other.id, true],
  ])
  expect(online.clients.every(({ last_seen: seen }) => seen > '2020')).toBe(true)
  expect((await list('online=false')).clients).toEqual([
    expect.objectContaining({ id: away.id, online: false, last_seen: ZERO_TIME }),
  ])
  expect(await list('online=true&only_total=true')).toEqual({ total: 2, clients: [] })

  expect(idsOf(await list('order=online&dir=desc'))).toEqual([other.id, connected.id, away.id])
  expect(idsOf(await list('order=online'))).toEqual([away.id, connected.id, other.id])
  // Pages of every size and offset are cut from that order.
  for (const limit of [1, 2, 3])
    for (const offset of [0, 1, 2, 3]) {
      const page = await list(`order=online&dir=desc&limit=${limit}&offset=${offset}`)
      expect(idsOf(page)).toEqual([other.id, connected.id, away.id].slice(offset, offset + limit))
      expect(page.total).toBe(3)
    }
  expect(await list('order=online&online=true&dir=desc&limit=1')).toMatchObject({
    total: 2,
    clients: [{ id: other.id }],
  })

  const one = await plant.owner.call('GET', `/${plant.domainId}/clients/${connected.id}`)
  expect(one.json()).toMatchObject({ online: true })
  peer[Symbol.dispose]()
  await until(async () => (await list('online=true')).total === 1, 'one has left')
  expect(idsOf(await list('online=true'))).toEqual([other.id])
})

test('a value other than true and false is refused', async () => {
  const answer = await plant.owner.call('GET', `/${plant.domainId}/clients?online=perhaps`)
  expect(answer.status).toBe(400)
  expect(answer.text).toContain('online')
})
