// decision 0114: bulk requests of a domain run one at a time, and those of other domains beside it
import { beforeAll, expect, test } from 'vitest'
import { startTestApi } from '../harness/api.ts'
import type { TestUser } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())
const MANY = 150

let owner: TestUser
let domainId: string
let other: string
const ids: Record<'clients' | 'channels', string[]> = { clients: [], channels: [] }

beforeAll(async () => {
  owner = await api.newUser()
  ;[domainId, other] = [await newDomain('busy'), await newDomain('neighbour')]
  for (const type of ['clients', 'channels'] as const) {
    const items = Array.from({ length: 11 }, (_, index) => ({ name: `${type} ${index}` }))
    const made = await owner.call('POST', `/${domainId}/${type}/bulk`, items)
    ids[type] = (made.json<Record<string, { id: string }[]>>()[type] ?? []).map(({ id }) => id)
  }
})

async function newDomain(name: string): Promise<string> {
  return (await owner.call('POST', '/domains', { name })).json<{ id: string }>().id
}

const names = (count: number) => Array.from({ length: count }, (_, index) => `name ${index}`)
const items = (count: number) => names(count).map((name) => ({ name }))
const csv = { 'content-type': 'text/csv' }
const pairs = () => ({ client_ids: ids.clients, channel_ids: ids.channels })
const lines = () => ids.clients.flatMap((client) => ids.channels.map((channel) => `${client},${channel}`)).join('\n')

/** Requests for many rows, of every kind. */
const BULK: Record<string, () => [path: string, body: unknown, headers?: Record<string, string>]> = {
  'an import of clients': () => ['clients/import', names(MANY).join('\n'), csv],
  'a dry run of an import': () => ['channels/import?dry_run=true', names(MANY).join('\n'), csv],
  'an import of JSON': () => ['channels/import', items(MANY)],
  'an import of connections': () => ['connections/import', lines(), csv],
  'a bulk creation of clients': () => ['clients/bulk', items(MANY)],
  'a bulk creation of channels': () => ['channels/bulk', items(MANY)],
  'a connect of many pairs': () => ['channels/connect', pairs()],
  'a disconnect of many pairs': () => ['channels/disconnect', pairs()],
}

test.each(Object.entries(BULK))('%s waits for the turn of its domain', async (_what, request) => {
  const { slots } = api.api.devices.bulk
  const release = await slots.take(domainId)
  const [path, body, headers] = request()
  const answer = owner.call('POST', `/${domainId}/${path}`, body, headers)
  await until(() => slots.waiting === 1, 'it waits')
  // Small requests of the domain, and any of its neighbour, do not.
  expect((await owner.call('POST', `/${domainId}/clients/bulk`, items(3))).status).toBe(200)
  expect((await owner.call('POST', `/${other}/clients/import`, names(MANY).join('\n'), csv)).status).toBe(201)
  release()
  expect((await answer).status).toBeLessThan(300)
  expect([slots.taken, slots.waiting]).toEqual([0, 0])
})

test('a connect of the channel of the path, and one without a domain, have turns too', async () => {
  const { slots } = api.api.devices.bulk
  const user = await slots.take(`user ${owner.id}`)
  const domain = await slots.take(domainId)
  const many = Array.from({ length: 10 }, () => ids.clients).flat()
  const answers = [
    owner.call('POST', `/${domainId}/channels/${ids.channels[0]}/connect`, { client_ids: many }),
    owner.call('POST', '/channels/connect', pairs()),
  ]
  await until(() => slots.waiting === 2, 'both wait')
  user()
  domain()
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([201, 201])
})

test('a caller without access to a domain takes no share of it', async () => {
  const { slots } = api.api.devices.bulk
  const stranger = await api.newUser()
  const release = await slots.take(domainId)
  const answer = await stranger.call('POST', `/${domainId}/clients/bulk`, items(MANY))
  expect([answer.status, slots.waiting]).toEqual([403, 0])
  release()
})
