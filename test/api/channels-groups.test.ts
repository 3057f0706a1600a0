// contract section 4.3: the groups of a channel in the words of the older generations
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Channel, Page } from './support.ts'
import { grantRole, newGroup, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type GroupPage = Page<'groups', { id: string }>
const pathsOf = (channelId: string) => [`/${tenant.domainId}/channels/${channelId}`, `/channels/${channelId}`]

test('assigning a channel to a group sets its parent and only group, and unassigning removes it', async () => {
  for (const place of [0, 1]) {
    const [channel, group, other] = [
      await tenant.newChannel(),
      await newGroup(api, tenant.domainId),
      await newGroup(api, tenant.domainId),
    ]
    const at = pathsOf(channel.id)[place] ?? ''
    const groups = async () => (await tenant.call('GET', `${at}/groups`)).json<GroupPage>()
    expect(await groups()).toEqual({ total: 0, offset: 0, limit: 10, groups: [] })
    const assigned = await tenant.call('POST', `${at}/groups/assign`, { group_ids: [group] })
    expect([assigned.status, assigned.text]).toEqual([201, ''])
    expect((await groups()).groups.map((one) => one.id)).toEqual([group])
    expect((await tenant.call('GET', at)).json<Channel & { parent_group_id: string }>().parent_group_id).toBe(group)
    expect((await tenant.call('POST', `${at}/groups/assign`, { group_ids: [group, group] })).status).toBe(201)
    expect((await tenant.call('POST', `${at}/groups/assign`, { group_ids: [other] })).status).toBe(409)
    expect((await tenant.call('POST', `${at}/groups/unassign`, { group_ids: [other] })).status).toBe(204)
    expect((await groups()).total).toBe(1)
    const parted = await tenant.call('POST', `${at}/groups/unassign`, { group_ids: [group] })
    expect([parted.status, parted.text]).toEqual([204, ''])
    expect((await groups()).total).toBe(0)
  }
})

test('several groups are 422, none and invalid lists 400, unknown ones 422, an unknown channel 404', async () => {
  const [channel, group] = [await tenant.newChannel(), await newGroup(api, tenant.domainId)]
  for (const at of pathsOf(channel.id)) {
    for (const [status, body] of [
      [422, { group_ids: [group, newId()] }],
      [422, { group_ids: [newId()] }],
      [400, { group_ids: [] }],
      [400, {}],
    ] as const)
      expect((await tenant.call('POST', `${at}/groups/assign`, body)).status, JSON.stringify(body)).toBe(status)
  }
  for (const at of pathsOf(newId())) {
    expect((await tenant.call('POST', `${at}/groups/assign`, { group_ids: [group] })).status).toBe(404)
    expect((await tenant.call('POST', `${at}/groups/unassign`, { group_ids: [group] })).status).toBe(404)
    expect((await tenant.call('GET', `${at}/groups`)).status).toBe(404)
  }
})

test('the error for several groups counts each once', async () => {
  const [channel, group] = [await tenant.newChannel(), await newGroup(api, tenant.domainId)]
  const refused = await tenant.call('POST', `/channels/${channel.id}/groups/assign`, {
    group_ids: [group, group, newId()],
  })
  expect(refused.json()).toMatchObject({ message: 'a channel has one parent group: got 2 groups' })
})

test('an unreadable parent is not in the list of groups', async () => {
  const [channel, group] = [await tenant.newChannel(), await newGroup(api, tenant.domainId)]
  await tenant.call('POST', `/channels/${channel.id}/groups/assign`, { group_ids: [group] })
  const reader = await api.newUser()
  await grantRole(api, reader.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['channel_read'])
  for (const at of pathsOf(channel.id))
    expect((await reader.call('GET', `${at}/groups`)).json()).toMatchObject({ total: 0 })
  await grantRole(api, reader.id, { type: 'group', domainId: tenant.domainId, id: group }, ['read'])
  for (const at of pathsOf(channel.id))
    expect((await reader.call('GET', `${at}/groups`)).json()).toMatchObject({ total: 1 })
})
