// specification section 4 "older connection endpoints"; contract 4.3: what belongs to a channel, a client, a group, a user
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { grantRole, newGroup, setParent, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Listed = { id: string }
type Answer = { total: number; offset: number; limit: number; clients?: Listed[]; channels?: Listed[] }

/** The same list with the domain in the path and without; both must say the same. */
async function listOf(path: string, call: Caller = tenant.call, domainId = tenant.domainId): Promise<Answer> {
  const [scoped, unscoped] = await Promise.all([call('GET', `/${domainId}${path}`), call('GET', path)])
  expect(scoped.status, scoped.text).toBe(200)
  expect(unscoped.json()).toEqual(scoped.json())
  return scoped.json<Answer>()
}

const idsOf = (items: readonly Listed[] | undefined) => items?.map((item) => item.id).toSorted()

test('the clients of a channel and the channels of a client are the connected ones, page by page', async () => {
  const clients = [await tenant.newClient(), await tenant.newClient(), await tenant.newClient()]
  const [channel, other] = [await tenant.newChannel(), await tenant.newChannel()]
  const first = clients.slice(0, 2).map((client) => client.id)
  for (const id of first) await tenant.connect(id, channel.id)
  await tenant.connect(first[0] ?? '', other.id, ['publish'])
  const listed = await listOf(`/channels/${channel.id}/clients`)
  expect(listed).toMatchObject({ total: 2, offset: 0, limit: 10 })
  expect(idsOf(listed.clients)).toEqual(first.toSorted())
  expect((await listOf(`/channels/${channel.id}/clients?limit=1&offset=1`)).clients).toHaveLength(1)
  expect((await listOf(`/channels/${channel.id}/clients?only_total=true`)) as unknown).toEqual({
    total: 2,
    clients: [],
  })
  const channels = await listOf(`/clients/${first[0]}/channels`)
  expect(idsOf(channels.channels)).toEqual([channel.id, other.id].toSorted())
  expect(idsOf((await listOf(`/clients/${first[0]}/channels?connection_type=subscribe`)).channels)).toEqual([
    channel.id,
  ])
  expect((await listOf(`/clients/${clients[2]?.id}/channels`)).channels).toEqual([])
})

test('the clients and channels of a group are its direct members', async () => {
  const group = await newGroup(api, tenant.domainId)
  const below = await newGroup(api, tenant.domainId, group)
  const [client, deeper, channel] = [await tenant.newClient(), await tenant.newClient(), await tenant.newChannel()]
  await setParent(api, tenant.domainId, 'client', client.id, group)
  await setParent(api, tenant.domainId, 'client', deeper.id, below)
  await setParent(api, tenant.domainId, 'channel', channel.id, group)
  expect(idsOf((await listOf(`/groups/${group}/clients`)).clients)).toEqual([client.id])
  expect(idsOf((await listOf(`/groups/${group}/channels`)).channels)).toEqual([channel.id])
  expect((await listOf(`/groups/${below}/channels`)).total).toBe(0)
})

test('listing for an unknown, a foreign or an unreadable entity returns 404', async () => {
  const foreign = await newTenant(api)
  const theirs = {
    channels: (await foreign.newChannel()).id,
    clients: (await foreign.newClient()).id,
    groups: await newGroup(api, foreign.domainId),
  }
  for (const [of, lists] of [
    ['channels', ['clients']],
    ['clients', ['channels']],
    ['groups', ['clients', 'channels']],
  ] as const) {
    for (const list of lists) {
      for (const id of [newId(), theirs[of], 'nonsense']) {
        for (const domain of ['', `/${tenant.domainId}`])
          expect((await tenant.call('GET', `${domain}/${of}/${id}/${list}`)).status, `${domain}/${of}/…/${list}`).toBe(
            404,
          )
      }
      expect((await tenant.call('GET', `/${foreign.domainId}/${of}/${theirs[of]}/${list}`)).status).toBe(403)
    }
  }
})

test('a member sees the connected entities that the member can read', async () => {
  const [shown, hidden, channel] = [await tenant.newClient(), await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(shown.id, channel.id)
  await tenant.connect(hidden.id, channel.id)
  const member = await api.newUser()
  await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['channel_read'])
  await grantRole(api, member.id, { type: 'client', domainId: tenant.domainId, id: shown.id }, ['read'])
  expect(idsOf((await listOf(`/channels/${channel.id}/clients`, member.call)).clients)).toEqual([shown.id])
})

test('the members of a group are the users with a role on it, under both names', async () => {
  const group = await newGroup(api, tenant.domainId)
  const member = await api.newUser()
  await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, [])
  await grantRole(api, member.id, { type: 'group', domainId: tenant.domainId, id: group }, ['read'])
  for (const prefix of ['', `/${tenant.domainId}`]) {
    const listed = await tenant.call('GET', `${prefix}/groups/${group}/members`)
    expect(listed.status).toBe(200)
    const page = listed.json<{ total: number; members: Listed[]; users: Listed[] }>()
    expect(page.total).toBe(1)
    expect(page.members.map((one) => one.id)).toEqual([member.id])
    expect(page.users).toEqual(page.members)
  }
})

test('a list shows secrets to callers with `update`, and no secrets with secrets=false', async () => {
  const secret = `secret-${newId()}`
  const client = await tenant.newClient({ credentials: { secret } })
  type Shown = { clients: { credentials: { secret: string } }[] }
  const secretsOf = async (query: string) =>
    (await tenant.call('GET', `/${tenant.domainId}/clients?id=${client.id}${query}`))
      .json<Shown>()
      .clients.map(({ credentials }) => credentials.secret)
  expect(await secretsOf('')).toEqual([secret])
  expect(await secretsOf('&secrets=true')).toEqual([secret])
  expect(await secretsOf('&secrets=false')).toEqual([''])
  expect((await tenant.call('GET', `/${tenant.domainId}/clients?secrets=no`)).status).toBe(400)
})

test('a list of clients, channels or groups is filtered by several ids, and texts that are not ids select nothing', async () => {
  for (const type of ['clients', 'channels', 'groups'] as const) {
    const ids = await Promise.all(
      ['one', 'two', 'three'].map(async (name) => {
        const made = await tenant.call('POST', `/${tenant.domainId}/${type}`, { name })
        return made.json<{ id: string }>().id
      }),
    )
    const listed = async (id: string) => {
      const answer = await tenant.call('GET', `/${tenant.domainId}/${type}?order=name&dir=asc&id=${id}`)
      expect(answer.status, answer.text).toBe(200)
      const page = answer.json<Record<string, { id: string }[]>>()
      return (page[type] ?? []).map((one) => one.id)
    }
    const [one = '', two = '', three = ''] = ids
    expect(await listed(one)).toEqual([one])
    expect(await listed(`${three},${one},none`)).toEqual([one, three])
    expect(await listed(`,${two}`)).toEqual([two])
    expect(await listed('none')).toEqual([])
    const many = Array.from({ length: 101 }, () => one).join(',')
    expect((await tenant.call('GET', `/${tenant.domainId}/${type}?id=${many}`)).status).toBe(400)
  }
})
