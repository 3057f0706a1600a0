/** A value that another entity has is refused with the field that holds it (contract section 12). */
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
const IN_USE = 'is already in use'

/** What the answer says about fields; each is a 409 with the message that it had before. */
function expectTaken(answer: TestResponse, path: string, fault = IN_USE): void {
  expect(answer.status, answer.text).toBe(409)
  expect(answer.json()).toMatchObject({ error: 'conflict', details: [{ path, message: fault }] })
}

const unique = () => newId().slice(0, 8)
const newPerson = () => {
  const name = unique()
  return {
    first_name: `F${name}`,
    last_name: `L${name}`,
    email: `${name}@example.com`,
    credentials: { username: `user-${name}`, secret: 'correct horse' },
  }
}

describe('users', () => {
  test.each([
    ['/email', (known: ReturnType<typeof newPerson>) => ({ email: known.email.toUpperCase() })],
    [
      '/credentials/username',
      (known: ReturnType<typeof newPerson>) => ({
        credentials: { username: known.credentials.username, secret: 'correct horse' },
      }),
    ],
    ['/first_name', (known: ReturnType<typeof newPerson>) => ({ first_name: known.first_name })],
    ['/last_name', (known: ReturnType<typeof newPerson>) => ({ last_name: known.last_name })],
  ])('at creation: %s', async (path, repeated) => {
    const known = newPerson()
    expect((await api.admin('POST', '/users', known)).status).toBe(201)
    expectTaken(await api.admin('POST', '/users', { ...newPerson(), ...repeated(known) }), path)
  })

  test('in a change: each field of its own route', async () => {
    const known = newPerson()
    await api.admin('POST', '/users', known)
    const { id } = (await api.admin('POST', '/users', newPerson())).json<{ id: string }>()
    const change = (route: string, body: object) => api.admin('PATCH', `/users/${id}${route}`, body)
    expectTaken(await change('/username', { username: known.credentials.username }), '/username')
    expectTaken(await change('/email', { email: known.email }), '/email')
    expectTaken(await change('', { last_name: known.last_name }), '/last_name')
  })
})

test('domains: id and alias', async () => {
  const alias = `plant-${unique()}`
  const made = (await tenant.call('POST', '/domains', { name: 'a', alias })).json<{ id: string }>()
  expectTaken(await tenant.call('POST', '/domains', { name: 'b', id: made.id }), '/id')
  expectTaken(await tenant.call('POST', '/domains', { name: 'b', alias: alias.toUpperCase() }), '/alias')
  expectTaken(await tenant.call('PATCH', `/domains/${tenant.domainId}`, { alias }), '/alias')
})

describe.each(['clients', 'channels'])('%s', (kind) => {
  const at = (end = '') => `/${tenant.domainId}/${kind}${end}`

  test('the id, in a single creation and in a list', async () => {
    const id = newId()
    expect((await tenant.call('POST', at(), { name: 'one', id })).status).toBe(201)
    expectTaken(await tenant.call('POST', at(), { name: 'two', id }), '/id')
    expectTaken(await tenant.call('POST', at('/bulk'), [{ name: 'two', id }]), '/0/id')
    const inUse = 'has the id of an existing entity of the domain'
    expectTaken(await tenant.call('POST', at('/bulk'), [{ name: 'two' }, { name: 'three', id }]), '/1/id', inUse)
  })
})

test('channels: the route, at creation, in a list and in a change', async () => {
  const route = `steam-${unique()}`
  const at = (end = '') => `/${tenant.domainId}/channels${end}`
  await tenant.newChannel({ name: 'one', route })
  const other = await tenant.newChannel({ name: 'two' })
  expectTaken(await tenant.call('POST', at(), { name: 'x', route }), '/route')
  expectTaken(await tenant.call('POST', at('/bulk'), [{ name: 'x', route }]), '/0/route')
  expectTaken(await tenant.call('PATCH', at(`/${other.id}`), { route }), '/route')
})

test('clients: the secret, at creation, in a list and in a change', async () => {
  const secret = `secret-${newId()}`
  const at = (end = '') => `/${tenant.domainId}/clients${end}`
  await tenant.newClient({ credentials: { secret } })
  const other = await tenant.newClient()
  expectTaken(await tenant.call('POST', at(), { credentials: { secret } }), '/credentials/secret')
  expectTaken(await tenant.call('POST', at('/bulk'), [{ credentials: { secret } }]), '/0/credentials/secret')
  expectTaken(await tenant.call('PATCH', at(`/${other.id}/secret`), { secret }), '/secret')
})

test('roles: the name, also that of the built-in role', async () => {
  const roles = `/domains/${tenant.domainId}/roles`
  const newRole = (name: string) => tenant.call('POST', roles, { role_name: name, optional_actions: ['read'] })
  const made = (await newRole('viewer')).json<{ id: string }>()
  await newRole('editor')
  expectTaken(await newRole('editor'), '/role_name')
  expectTaken(await newRole('admin'), '/role_name')
  expectTaken(await tenant.call('PUT', `${roles}/${made.id}`, { role_name: 'editor' }), '/role_name')
})

test('personal access tokens: a scope', async () => {
  const pat = (await tenant.call('POST', '/pats', { name: 'robot', duration: '24h' })).json<{ id: string }>()
  const scopes = [{ entity_type: 'clients', operation: 'create', domain_id: tenant.domainId, entity_id: '*' }]
  const add = () => tenant.call('PATCH', `/pats/${pat.id}/scope/add`, { scopes })
  expect((await add()).status).toBe(200)
  expectTaken(await add(), '/scopes', 'contain one of the token')
})

test('bootstrap configurations: the client and the external id', async () => {
  const configs = `/${tenant.domainId}/clients/configs`
  const [one, other] = [await tenant.newClient(), await tenant.newClient()]
  const external = { external_id: newId(), external_key: newId() }
  const body = {
    client_id: one.id,
    channels: [(await tenant.newChannel()).id],
    name: 'config',
    content: '{}',
    ...external,
  }
  expect((await tenant.call('POST', configs, body)).status).toBe(201)
  const again = { ...body, external_id: newId() }
  expectTaken(await tenant.call('POST', configs, again), '/client_id', 'already has a configuration')
  expectTaken(await tenant.call('POST', configs, { ...body, client_id: other.id }), '/external_id')
})

test('notifications: the contact', async () => {
  const { id: topic } = await tenant.newChannel()
  const body = { topic, contact: 'https://example.com/hook' }
  expect((await tenant.call('POST', '/subscriptions', body)).status).toBe(201)
  expectTaken(await tenant.call('POST', '/subscriptions', body), '/contact')
})

test('invitations: the user, and a role that they have', async () => {
  const roles = `/domains/${tenant.domainId}/roles`
  const role = (await tenant.call('POST', roles, { role_name: 'guest', optional_actions: ['read'] })).json<{
    id: string
  }>()
  const invitee = await api.newUser()
  const invite = (userId: string) =>
    tenant.call('POST', `/domains/${tenant.domainId}/invitations`, { invitee_user_id: userId, role_id: role.id })
  expect((await invite(invitee.id)).status).toBe(201)
  expectTaken(await invite(invitee.id), '/invitee_user_id', 'is already invited')
  const member = await api.newUser()
  await tenant.call('POST', `${roles}/${role.id}/members`, { members: [member.id] })
  expectTaken(await invite(member.id), '/role_id', 'is already a role of the user')
})
