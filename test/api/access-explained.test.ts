// contract 2.4 and 2.5, decision 45: a decision is explained, and what is explained is what is decided
import { beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import type { EntityType } from './support.ts'
import { grantRole, newGroup, setParent, newTenant } from './support.ts'

type Answer = {
  subject: string
  allowed: boolean
  explanation: string
  is_platform_admin: boolean
  subject_status: string
  domain: { id: string; status: string; is_member: boolean; is_admin: boolean }
  missing_actions: string[]
  granted_by: {
    action: string
    needs: string
    access_type: string
    entity_type: string
    entity_id: string
    entity_name: string
    role_name: string
    path: { id: string; name: string }[]
  }[]
  would_be_granted_by: {
    action: string
    needs: string
    access_type: string
    entity_type: string
    entity_id: string
    roles: { role_id: string; role_name: string }[]
  }[]
}

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let top: string
let middle: string
let bottom: string
let clientId: string
beforeAll(async () => {
  top = await newGroup(api, tenant.domainId)
  middle = await newGroup(api, tenant.domainId, top)
  bottom = await newGroup(api, tenant.domainId, middle)
  clientId = (await tenant.newClient()).id
  await setParent(api, tenant.domainId, 'client', clientId, bottom)
})

const on = (type: EntityType, id: string) => ({ type, domainId: tenant.domainId, id })

async function newMember(actions: readonly string[] = []): Promise<TestUser> {
  const user = await api.newUser()
  await grantRole(api, user.id, on('domain', tenant.domainId), actions)
  return user
}

const ask = (call: Caller, entity: string, action: string, subject?: string, domainId = tenant.domainId) =>
  call(
    'GET',
    `/${domainId}/access?entity=${entity}&action=${action}${subject === undefined ? '' : `&subject=${subject}`}`,
  )

async function explain(subject: TestUser, action = 'read', entity = `client:${clientId}`): Promise<Answer> {
  const answer = await ask(tenant.call, entity, action, subject.id)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<Answer>()
}

describe('the explanation of a decision', () => {
  test('names the role and the groups on the way down from it', async () => {
    const member = await newMember()
    await grantRole(api, member.id, on('group', top), ['subgroup_client_read'])
    const answer = await explain(member)
    expect(answer).toMatchObject({
      subject: member.id,
      allowed: true,
      domain: { id: tenant.domainId, status: 'enabled', is_member: true, is_admin: false },
      missing_actions: [],
      would_be_granted_by: [],
    })
    expect(answer.explanation).toContain('subgroup_client_read')
    expect(answer.granted_by).toHaveLength(1)
    expect(answer.granted_by[0]).toMatchObject({
      action: 'read',
      needs: 'subgroup_client_read',
      access_type: 'indirect_group',
      entity_type: 'group',
      entity_id: top,
      path: [top, middle, bottom].map((id) => ({ id, name: 'group' })),
    })
  })

  test('distinguishes the four paths, the nearest first', async () => {
    const member = await newMember(['client_read'])
    await grantRole(api, member.id, on('client', clientId), ['read'])
    await grantRole(api, member.id, on('group', bottom), ['client_read'])
    await grantRole(api, member.id, on('group', middle), 'admin')
    const { granted_by: ways } = await explain(member)
    expect(ways.map((way) => way.access_type)).toEqual(['direct', 'direct_group', 'indirect_group', 'domain'])
    expect(ways.map((way) => way.needs)).toEqual(['read', 'client_read', 'subgroup_client_read', 'client_read'])
    expect(ways[2]).toMatchObject({ role_name: 'admin' })
  })

  test('names every entity where a role would grant the missing action, and its roles that have the action', async () => {
    const member = await newMember()
    const made = await tenant.call('POST', `/domains/${tenant.domainId}/roles`, {
      role_name: `operators ${newId()}`,
      optional_actions: ['client_update'],
    })
    const { role_id: roleId } = made.json<{ role_id: string }>()
    await grantRole(api, member.id, on('client', clientId), ['read'])
    const answer = await explain(member, 'update')
    expect(answer).toMatchObject({ allowed: false, missing_actions: ['update'] })
    expect(answer.would_be_granted_by.map((place) => [place.entity_type, place.entity_id, place.needs])).toEqual([
      ['client', clientId, 'update'],
      ['group', bottom, 'client_update'],
      ['group', middle, 'subgroup_client_update'],
      ['group', top, 'subgroup_client_update'],
      ['domain', tenant.domainId, 'client_update'],
    ])
    for (const place of answer.would_be_granted_by) expect(place.roles.map((role) => role.role_name)).toContain('admin')
    expect(answer.would_be_granted_by[4]?.roles.map((role) => role.role_id)).toContain(roleId)
    // What is promised holds.
    await tenant.call('POST', `/domains/${tenant.domainId}/roles/${roleId}/members`, { members: [member.id] })
    expect(await explain(member, 'update')).toMatchObject({ allowed: true })
    expect((await member.call('PATCH', `/${tenant.domainId}/clients/${clientId}`, { name: 'x' })).status).toBe(200)
  })

  test('reports that read is missing when the caller has only another action', async () => {
    const member = await newMember(['client_update'])
    const answer = await explain(member, 'update')
    expect(answer).toMatchObject({ allowed: false, missing_actions: ['read'] })
    expect((await member.call('PATCH', `/${tenant.domainId}/clients/${clientId}`, { name: 'x' })).status).toBe(404)
  })

  test('reports the state of the user and of the domain: no member, disabled, platform administrator', async () => {
    const own = await newTenant(api)
    const client = await own.newClient()
    const outsider = await api.newUser()
    const about = async (subject: string) =>
      (await ask(api.admin, `client:${client.id}`, 'read', subject, own.domainId)).json<Answer>()
    expect(await about(outsider.id)).toMatchObject({ allowed: false, domain: { is_member: false } })
    const member = await api.newUser()
    await grantRole(api, member.id, { type: 'domain', domainId: own.domainId, id: own.domainId }, ['client_read'])
    expect(await about(member.id)).toMatchObject({ allowed: true })
    await own.call('POST', `/domains/${own.domainId}/disable`)
    expect(await about(member.id)).toMatchObject({ allowed: false, domain: { status: 'disabled' } })
    expect(await about(own.user.id)).toMatchObject({ allowed: true, domain: { is_admin: true } })
    const admin = (await api.admin('GET', '/users/profile')).json<{ id: string }>()
    expect(await about(admin.id)).toMatchObject({ allowed: true, is_platform_admin: true })
    await api.admin('POST', `/users/${member.id}/disable`)
    expect(await about(member.id)).toMatchObject({ allowed: false, subject_status: 'disabled' })
  })

  test('covers the domain itself and groups', async () => {
    const member = await newMember(['update'])
    expect(await explain(member, 'update', `domain:${tenant.domainId}`)).toMatchObject({
      allowed: false,
      missing_actions: ['read'],
    })
    await grantRole(api, member.id, on('group', middle), ['subgroup_read'])
    expect(await explain(member, 'read', `group:${bottom}`)).toMatchObject({ allowed: true })
    expect(await explain(member, 'read', `group:${middle}`)).toMatchObject({ allowed: false })
  })
})

describe('explanations', () => {
  test('of their own access are open to all users, and an unreadable entity is answered like an unknown one', async () => {
    const member = await newMember()
    const hidden = await ask(member.call, `client:${clientId}`, 'read')
    expect(hidden.status).toBe(200)
    expect(hidden.json()).toMatchObject({ subject: member.id, allowed: false, would_be_granted_by: [] })
    const unknownId = newId()
    const unknown = await ask(member.call, `client:${unknownId}`, 'read', member.id)
    expect(unknown.text.replaceAll(unknownId, clientId)).toBe(hidden.text)
    const elsewhere = await ask(member.call, `domain:${newId()}`, 'read')
    expect(elsewhere.json()).toMatchObject({ allowed: false })
  })

  test('of their own access show users unreadable groups as stubs, and no roles of others', async () => {
    const member = await newMember()
    await grantRole(api, member.id, on('group', top), ['subgroup_client_read'])
    const answer = (await ask(member.call, `client:${clientId}`, 'update')).json<Answer>()
    const hidden = { id: 'xxxx-xxxx-xxxx-xxxx', name: '' }
    expect(answer.granted_by[0]?.path).toEqual([hidden, hidden, hidden])
    expect(JSON.stringify(answer)).not.toContain(middle)
    expect(answer.would_be_granted_by.length).toBeGreaterThan(0)
    for (const place of answer.would_be_granted_by) expect(place.roles).toEqual([])
  })

  test('of the access of others require view_role_users on the entity or administration of the domain', async () => {
    const [subject, viewer, reader, stranger] = [
      await newMember(),
      await newMember(),
      await newMember(['client_read']),
      await newMember(),
    ]
    await grantRole(api, viewer.id, on('client', clientId), ['read', 'view_role_users'])
    const about = (call: Caller) => ask(call, `client:${clientId}`, 'read', subject.id)
    expect((await about(tenant.call)).status).toBe(200)
    expect((await about(viewer.call)).status).toBe(200)
    expect((await about(reader.call)).status).toBe(403)
    expect((await about(stranger.call)).status).toBe(404)
    expect((await about((await api.newUser()).call)).status).toBe(403)
    // The domain itself is no secret to its members.
    const aboutDomain = (call: Caller) => ask(call, `domain:${tenant.domainId}`, 'read', subject.id)
    expect((await aboutDomain(stranger.call)).status).toBe(403)
    expect((await ask(stranger.call, `domain:${newId()}`, 'read', subject.id)).status).toBe(404)
    expect((await about(api.anonymous)).status).toBe(401)
    expect((await ask(tenant.call, `client:${clientId}`, 'read', newId())).status).toBe(404)
    expect((await ask(tenant.call, `client:${newId()}`, 'read', subject.id)).status).toBe(404)
  })

  test.each([
    ['thing:1', 'read'],
    ['client', 'read'],
    ['client:1', 'read'],
    [`client:${newId()}`, 'fly'],
    [`client:${newId()}`, 'client_read'],
    [`client:${newId()}`, 'read&subject=1'],
  ])('for %s and %s return 400', async (entity, action) => {
    expect((await ask(tenant.call, entity, action)).status).toBe(400)
  })
})

test('the explanations of many questions in one call equal those of single calls, also for a token with scopes', async () => {
  const member = await newMember(['read'])
  await grantRole(api, member.id, on('group', top), ['subgroup_client_read'])
  const channel = await tenant.newChannel()
  const questions = [
    { entity: `client:${clientId}`, action: 'read' },
    { entity: `client:${clientId}`, action: 'update' },
    { entity: `domain:${tenant.domainId}`, action: 'client_create' },
    { entity: `client:${newId()}`, action: 'read' },
    { entity: 'weather:today', action: 'read' },
    { entity: `client:${clientId}`, action: 'read', subject: tenant.user.id },
    { entity: `channel:${channel.id}`, action: 'update' },
  ]
  const check = (call: Caller, asked: unknown) => call('POST', `/${tenant.domainId}/access/check`, { questions: asked })
  async function answersOf(call: Caller): Promise<boolean[]> {
    const answer = await check(call, questions)
    expect(answer.status, answer.text).toBe(200)
    const { answers } = answer.json<{ answers: (Partial<Answer> & { error?: string; message?: string })[] }>()
    for (const [index, { entity, action, subject }] of questions.entries()) {
      const alone = await ask(call, entity, action, subject as string | undefined)
      const { allowed = false, explanation, missing_actions, error, message } = alone.json<(typeof answers)[number]>()
      expect(answers[index]).toEqual({
        entity,
        action,
        allowed,
        ...(error === undefined ? { explanation, missing_actions } : { error, message }),
      })
    }
    return answers.map(({ allowed }) => allowed === true)
  }
  expect(await answersOf(member.call)).toEqual([true, false, false, false, false, false, false])
  expect(await answersOf(await publisherOn(channel.id))).toEqual(questions.map(() => false))
  for (const wrong of [[], Array.from({ length: 101 }, () => questions[0])])
    expect((await check(member.call, wrong)).status).toBe(400)
  const stranger = await newTenant(api)
  expect((await check(stranger.call, questions)).status).toBe(403)
})

/** Requests of the owner with a token that may only publish on the channel. */
async function publisherOn(channelId: string): Promise<Caller> {
  const made = await tenant.call('POST', '/pats', { name: 'publisher', duration: '1h' })
  const { id, secret } = made.json<{ id: string; secret: string }>()
  const scope = { domain_id: tenant.domainId, entity_type: 'messages', entity_id: channelId, operation: 'publish' }
  const added = await tenant.call('PATCH', `/pats/${id}/scope/add`, { scopes: [scope] })
  expect(added.status, added.text).toBe(200)
  return api.as(`Bearer ${secret}`)
}

test('an explanation agrees with the decision, for any roles', async () => {
  const ACTIONS = ['read', 'update', 'delete', 'set_parent_group'] as const
  const places: [EntityType, string, string][] = [
    ['client', clientId, ''],
    ['group', bottom, 'client_'],
    ['group', middle, 'subgroup_client_'],
    ['group', middle, 'client_'],
    ['group', top, 'subgroup_client_'],
    ['domain', tenant.domainId, 'client_'],
  ]
  for (let round = 0; round < 24; round++) {
    const member = await newMember()
    const [first, second] = [places[round % 6], places[Math.floor(round / 4)]] as [
      [EntityType, string, string],
      [EntityType, string, string],
    ]
    for (const [index, [type, id, prefix]] of [first, second].entries())
      await grantRole(api, member.id, on(type, id), [`${prefix}${ACTIONS[(round + index) % 4]}`])
    const seen = (await member.call('GET', `/${tenant.domainId}/clients/${clientId}`)).status === 200
    expect((await explain(member, 'read')).allowed, `round ${round}`).toBe(seen)
    const changed = await member.call('PATCH', `/${tenant.domainId}/clients/${clientId}`, { name: 'x' })
    expect((await explain(member, 'update')).allowed, `round ${round}`).toBe(changed.status === 200)
  }
})
