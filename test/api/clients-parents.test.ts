// contract sections 2.4, 2.5, 4.1 and 4.2, decisions 45 and 46: the parent group of clients and channels
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { Channel, Client } from './support.ts'
import { grantRole, newGroup, tenantOf, newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Placed = (Client | Channel) & { parent_group_id?: string }

async function disable(groupId: string): Promise<void> {
  await sql`UPDATE groups SET status = 'disabled' WHERE id = ${groupId}`.execute(api.database.db)
}

async function remove(groupId: string): Promise<void> {
  await sql`DELETE FROM groups WHERE id = ${groupId}`.execute(api.database.db)
}

async function lastEntry(): Promise<{ operation: string; attributes: Record<string, unknown>; keys: number }> {
  const { rows } = await sql<{ operation: string; attributes: Record<string, unknown>; keys: number }>`
    SELECT operation, attributes, cardinality(entity_keys) AS keys FROM journal ORDER BY xid DESC, seq DESC LIMIT 1`.execute(
    api.database.db,
  )
  return rows[0] as { operation: string; attributes: Record<string, unknown>; keys: number }
}

describe.each(['client', 'channel'] as const)('the parent of a %s', (type) => {
  const collection = () => `/${tenant.domainId}/${type}s`
  const create = async (fields: object = {}) => (await tenant.call('POST', collection(), fields)).json<Placed>()
  const view = async (id: string) => (await tenant.call('GET', `${collection()}/${id}`)).json<Placed>()
  const setParent = (id: string, body: unknown, call = tenant.call): Promise<TestResponse> =>
    call('POST', `${collection()}/${id}/parent`, body)
  const removeParent = (id: string, call = tenant.call) => call('DELETE', `${collection()}/${id}/parent`)

  test('is set with an empty response, shown in the record, found by the filter and recorded in the journal', async () => {
    const [entity, group] = [await create(), await newGroup(api, tenant.domainId)]
    const set = await setParent(entity.id, { parent_group_id: group })
    expect([set.status, set.text]).toEqual([200, ''])
    const viewed = await view(entity.id)
    expect(viewed).toMatchObject({ parent_group_id: group, updated_by: tenant.user.id })
    expect(await lastEntry()).toEqual({
      operation: `${type}.set_parent`,
      attributes: { id: entity.id, before: { parent_group_id: null }, after: { parent_group_id: group } },
      keys: 2,
    })
    const listed = await tenant.call('GET', `${collection()}?group=${group}`)
    expect(listed.json<Record<string, Placed[]>>()[`${type}s`]?.map((one) => one.id)).toEqual([entity.id])
  })

  test('that is already set stays unchanged; another one is 409 until it is removed', async () => {
    const [entity, group, other] = [
      await create(),
      await newGroup(api, tenant.domainId),
      await newGroup(api, tenant.domainId),
    ]
    await setParent(entity.id, { parent_group_id: group })
    const before = await view(entity.id)
    expect((await setParent(entity.id, { parent_group_id: group })).status).toBe(200)
    expect(await view(entity.id)).toEqual(before)
    const refused = await setParent(entity.id, { parent_group_id: other })
    expect(refused.status).toBe(409)
    expect(refused.json()).toMatchObject({ error: 'conflict' })
    const removed = await removeParent(entity.id)
    expect([removed.status, removed.text]).toEqual([204, ''])
    expect((await view(entity.id)).parent_group_id).toBeUndefined()
    expect((await removeParent(entity.id)).status).toBe(204)
    expect((await setParent(entity.id, { parent_group_id: other })).status).toBe(200)
  })

  test('cannot be an unknown, foreign, unreadable or disabled group: 422', async () => {
    const foreign = await newTenant(api)
    const [entity, disabled, hidden] = [
      await create(),
      await newGroup(api, tenant.domainId),
      await newGroup(api, tenant.domainId),
    ]
    await disable(disabled)
    for (const id of [newId(), await newGroup(api, foreign.domainId), disabled]) {
      const refused = await setParent(entity.id, { parent_group_id: id })
      expect(refused.status).toBe(422)
      expect(refused.json()).toMatchObject({ error: 'unprocessable', message: expect.stringContaining(id) as string })
    }
    const member = await api.newUser()
    const domain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
    await grantRole(api, member.id, domain, [`${type}_read`, `${type}_set_parent_group`])
    const [unreadable, unknown] = [hidden, newId()]
    const answers = [unreadable, unknown].map((id) => setParent(entity.id, { parent_group_id: id }, member.call))
    const [first, second] = await Promise.all(answers)
    expect(first?.status).toBe(422)
    expect(first?.text.replace(unreadable, '')).toBe(second?.text.replace(unknown, ''))
    expect((await view(entity.id)).parent_group_id).toBeUndefined()
  })

  test.each([{}, { parent_group_id: 7 }, { parent_group_id: 'group' }, { parent_group_id: '' }, []])(
    'set by %j is malformed',
    async (body) => {
      const entity = await create()
      expect((await setParent(entity.id, body)).status).toBe(400)
    },
  )

  test('requires set_parent_group on it and set_child on the group, for setting and removing', async () => {
    const [entity, group] = [await create(), await newGroup(api, tenant.domainId)]
    const member = await api.newUser()
    const on = (what: 'domain' | 'group' | 'client' | 'channel', id: string) => ({
      type: what,
      domainId: tenant.domainId,
      id,
    })
    const attempt = async () => [
      (await setParent(entity.id, { parent_group_id: group }, member.call)).status,
      (await removeParent(entity.id, member.call)).status,
    ]
    await setParent(entity.id, { parent_group_id: group })
    expect(await attempt()).toEqual([403, 403])
    await grantRole(api, member.id, on('domain', tenant.domainId), [])
    expect(await attempt()).toEqual([404, 404])
    await grantRole(api, member.id, on(type, entity.id), ['read'])
    expect(await attempt()).toEqual([403, 403])
    await grantRole(api, member.id, on(type, entity.id), ['set_parent_group'])
    expect(await attempt()).toEqual([422, 403])
    await grantRole(api, member.id, on('group', group), ['read'])
    expect(await attempt()).toEqual([403, 403])
    await grantRole(api, member.id, on('group', group), ['set_child'])
    expect(await attempt()).toEqual([200, 204])
  })

  test('of an unknown one and of another domain is the same 404', async () => {
    const foreign = await newTenant(api)
    const group = await newGroup(api, tenant.domainId)
    const theirs = type === 'client' ? await foreign.newClient() : await foreign.newChannel()
    const answers = await Promise.all(
      [newId(), theirs.id, 'nonsense'].map((id) => setParent(id, { parent_group_id: group })),
    )
    expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
    expect(answers[0]?.status).toBe(404)
  })

  test('can be set at creation, alone and in bulk, and grants its members the rights of its roles', async () => {
    const group = await newGroup(api, tenant.domainId)
    const member = await api.newUser()
    await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, [])
    await grantRole(api, member.id, { type: 'group', domainId: tenant.domainId, id: group }, [`${type}_read`])
    const entity = await create({ parent_group_id: group })
    expect(entity.parent_group_id).toBe(group)
    expect((await member.call('GET', `${collection()}/${entity.id}`)).status).toBe(200)
    const bulk = await tenant.call('POST', `${collection()}/bulk`, [
      { parent_group_id: group },
      { parent_group_id: '' },
      {},
    ])
    expect(bulk.json<Record<string, Placed[]>>()[`${type}s`]?.map((one) => one.parent_group_id)).toEqual([
      group,
      undefined,
      undefined,
    ])
    const total = async () => (await tenant.call('GET', `${collection()}?only_total=true`)).json<{ total: number }>()
    const before = await total()
    for (const id of [newId(), 'nonsense', await newGroup(api, (await newTenant(api)).domainId)]) {
      const refused = await tenant.call('POST', `${collection()}/bulk`, [{}, { parent_group_id: id }])
      expect(refused.status).toBe(422)
    }
    expect(await total()).toEqual(before)
  })

  test(`at creation needs ${type}_create, which a role on the group or above it gives for the group alone`, async () => {
    const top = await newGroup(api, tenant.domainId)
    const [group, elsewhere] = [await newGroup(api, tenant.domainId, top), await newGroup(api, tenant.domainId)]
    const within = tenantOf(await api.newUser(), tenant.domainId)
    const above = tenantOf(await api.newUser(), tenant.domainId)
    for (const { user } of [within, above])
      await grantRole(api, user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['group_read'])
    await grantRole(api, within.user.id, { type: 'group', domainId: tenant.domainId, id: group }, [`${type}_create`])
    await grantRole(api, above.user.id, { type: 'group', domainId: tenant.domainId, id: top }, [
      `subgroup_${type}_create`,
    ])
    for (const { call } of [within, above]) {
      const attempt = async (body: unknown) => (await call('POST', collection(), body)).status
      expect(await attempt({})).toBe(403)
      expect(await attempt({ parent_group_id: elsewhere })).toBe(403)
      expect(await attempt({ parent_group_id: group })).toBe(201)
      const mixed = await call('POST', `${collection()}/bulk`, [{ parent_group_id: group }, {}])
      expect(mixed.status).toBe(403)
    }
  })

  test('is lost when the group is deleted', async () => {
    const group = await newGroup(api, tenant.domainId)
    const entity = await create({ parent_group_id: group })
    await remove(group)
    expect(await view(entity.id)).not.toHaveProperty('parent_group_id')
  })
})
