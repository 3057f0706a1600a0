// contract 1.3: invitations of both generations; decisions 24, 40, 45
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { ZERO_TIME, grantRole, newTenant, statusesOf } from './support.ts'
import type { Tenant } from './support.ts'

const api = useWorld(() => startTestApi())

type Invitation = {
  invited_by: string
  user_id: string
  invitee_user_id: string
  domain_id: string
  domain_name: string
  relation: string
  role_id?: string
  role_name?: string
  actions?: string[]
  created_at: string
  updated_at: string
  confirmed_at: string
  rejected_at: string
}
type Page = { total: number; offset: number; limit: number; invitations: Invitation[] }

/** A role of the tenant's domain with these actions. */
async function newRole(tenant: Tenant, name: string, actions: readonly string[]): Promise<string> {
  const made = await tenant.call('POST', `/domains/${tenant.domainId}/roles`, {
    role_name: name,
    optional_actions: actions,
  })
  expect(made.status, made.text).toBe(201)
  return made.json<{ id: string }>().id
}

const invite = (tenant: Tenant, user: TestUser, roleId: string, more: Record<string, unknown> = {}) =>
  tenant.call('POST', `/domains/${tenant.domainId}/invitations`, {
    invitee_user_id: user.id,
    role_id: roleId,
    ...more,
  })
const inviteAs = (tenant: Tenant, user: TestUser, relation: string, more: Record<string, unknown> = {}) =>
  tenant.call('POST', '/invitations', { user_id: user.id, domain_id: tenant.domainId, relation, ...more })
const accept = (user: TestUser, domainId: string) => user.call('POST', '/invitations/accept', { domain_id: domainId })
const reject = (user: TestUser, domainId: string) => user.call('POST', '/invitations/reject', { domain_id: domainId })
const view = async (tenant: Tenant, user: TestUser) =>
  (await tenant.call('GET', `/domains/${tenant.domainId}/invitations/${user.id}`)).json<Invitation>()
const received = async (user: TestUser, query = '') =>
  (await user.call('GET', `/invitations${query}`)).json<Page>().invitations

/** Makes an invitation older than its lifetime. */
async function expire(user: TestUser): Promise<void> {
  await sql`UPDATE invitations SET created_at = created_at - interval '169 hours', expires_at = expires_at - interval '169 hours'
    WHERE user_key = (SELECT key FROM users WHERE id = ${user.id})`.execute(api.database.db)
}

describe('an invitation to a role', () => {
  test('makes the invitee a member of it when they accept', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const roleId = await newRole(tenant, 'watcher', ['read', 'client_read'])
    const sent = await invite(tenant, user, roleId)
    expect([sent.status, sent.text]).toEqual([201, ''])

    const [invitation] = await received(user)
    expect(invitation).toMatchObject({
      invited_by: tenant.user.id,
      invitee_user_id: user.id,
      user_id: user.id,
      domain_id: tenant.domainId,
      domain_name: 'plant',
      relation: 'watcher',
      role_id: roleId,
      role_name: 'watcher',
      actions: ['read', 'client_read'],
      updated_at: ZERO_TIME,
      confirmed_at: ZERO_TIME,
      rejected_at: ZERO_TIME,
    })
    expect(JSON.stringify(invitation)).not.toContain('token')
    expect((await user.call('GET', `/domains/${tenant.domainId}`)).status).toBe(403)

    const accepted = await accept(user, tenant.domainId)
    expect([accepted.status, accepted.text]).toEqual([204, ''])
    expect((await user.call('GET', `/${tenant.domainId}/clients`)).status).toBe(200)
    expect((await user.call('POST', `/${tenant.domainId}/clients`, {})).status).toBe(403)
    expect((await view(tenant, user)).confirmed_at).not.toBe(ZERO_TIME)
  })

  test('to the built-in role makes an administrator', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const { roles } = (await tenant.call('GET', `/domains/${tenant.domainId}?roles=true`)).json<{
      roles: { role_id: string }[]
    }>()
    expect((await invite(tenant, user, roles[0]?.role_id ?? '')).status).toBe(201)
    expect(await received(user, `?role_id=${roles[0]?.role_id}`)).toMatchObject([
      { relation: 'administrator', role_name: 'admin' },
    ])
    expect((await accept(user, tenant.domainId)).status).toBe(204)
    expect((await user.call('PATCH', `/domains/${tenant.domainId}`, { name: 'theirs' })).status).toBe(200)
  })

  test('is refused for an unknown role, a role of another domain and an unknown user, and asks for both', async () => {
    const [tenant, other] = [await newTenant(api), await newTenant(api)]
    const user = await api.newUser()
    const roleId = await newRole(tenant, 'watcher', ['read'])
    const foreign = await newRole(other, 'watcher', ['read'])
    const path = `/domains/${tenant.domainId}/invitations`
    expect((await invite(tenant, user, 'domain_unknown')).status).toBe(422)
    expect((await invite(tenant, user, foreign)).status).toBe(422)
    expect((await invite(tenant, { ...user, id: newId() }, roleId)).status).toBe(422)
    expect((await invite(tenant, { ...user, id: 'nobody' }, roleId)).status).toBe(400)
    expect((await tenant.call('POST', path, { role_id: roleId })).status).toBe(400)
    expect((await tenant.call('POST', path, { invitee_user_id: user.id })).status).toBe(400)
    expect((await tenant.call('POST', path, 'role', { 'content-type': 'text/plain' })).status).toBe(415)
    expect(await received(user)).toEqual([])
  })

  test('is refused clearly after its role was deleted, and can be sent again', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const roleId = await newRole(tenant, 'watcher', ['read'])
    await invite(tenant, user, roleId)
    expect((await tenant.call('DELETE', `/domains/${tenant.domainId}/roles/${roleId}`)).status).toBe(204)
    expect((await received(user))[0]).not.toHaveProperty('role_id')
    const refused = await accept(user, tenant.domainId)
    expect(refused.status).toBe(422)
    expect(refused.json()).toMatchObject({
      message: expect.stringContaining('the role of the invitation was deleted'),
    })
    const anew = await newRole(tenant, 'watcher', ['read'])
    expect((await invite(tenant, user, anew, { resend: true })).status).toBe(201)
    expect((await accept(user, tenant.domainId)).status).toBe(204)
  })
})

describe('an invitation by a relation', () => {
  test.each([
    ['Administrator', 'admin', 'administrator'],
    ['EDITOR', 'editor', 'editor'],
    ['contributor', 'contributor', 'contributor'],
    ['member', 'member', 'member'],
    ['Viewer', 'viewer', 'viewer'],
    ['guest', 'guest', 'guest'],
  ])('%s makes a member of the role %s', async (word, role, relation) => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const sent = await inviteAs(tenant, user, word)
    expect([sent.status, sent.text]).toEqual([201, ''])
    const viewed = (await user.call('GET', `/invitations/${user.id}/${tenant.domainId}`)).json<Invitation>()
    expect(viewed).toMatchObject({ relation, role_name: role, user_id: user.id })
    expect((await accept(user, tenant.domainId)).status).toBe(204)
    const { domains } = (await user.call('GET', '/domains')).json<{ domains: unknown[] }>()
    expect(domains).toMatchObject([{ id: tenant.domainId, role_name: role, permission: relation }])
  })

  test('creates its role again after the role was deleted', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    const { role_id: roleId } = await view(tenant, user)
    expect((await tenant.call('DELETE', `/domains/${tenant.domainId}/roles/${roleId}`)).status).toBe(204)
    expect((await received(user))[0]).toMatchObject({ relation: 'viewer' })
    expect((await accept(user, tenant.domainId)).status).toBe(204)
    expect((await user.call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
  })

  test('must name an existing relation, a user and a domain', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    expect((await inviteAs(tenant, user, 'owner')).status).toBe(400)
    expect((await tenant.call('POST', '/invitations', { user_id: user.id, relation: 'viewer' })).status).toBe(400)
    const noUser = { domain_id: tenant.domainId, relation: 'viewer' }
    expect((await tenant.call('POST', '/invitations', noUser)).status).toBe(400)
    expect((await user.call('GET', '/invitations?relation=owner')).status).toBe(400)
  })
})

describe('who can', () => {
  test('send: administrators of the domain and of the platform, and no other caller with any actions', async () => {
    const tenant = await newTenant(api)
    const [member, stranger, user] = [await api.newUser(), await api.newUser(), await api.newUser()]
    const onDomain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
    await grantRole(api, member.id, onDomain, ['read', 'add_role_users', 'manage_role'])
    const body = { user_id: user.id, domain_id: tenant.domainId, relation: 'viewer' }
    expect((await member.call('POST', '/invitations', body)).status).toBe(403)
    const foreign = await stranger.call('POST', '/invitations', body)
    const unknown = await stranger.call('POST', '/invitations', { ...body, domain_id: newId() })
    expect([foreign.status, unknown.status, unknown.text]).toEqual([403, 403, foreign.text])
    expect((await api.anonymous('POST', '/invitations', body)).status).toBe(401)
    expect((await api.admin('POST', '/invitations', body)).status).toBe(201)
  })

  test('view: invitee, inviter and administrators; strangers see nothing, and members get no hint of it', async () => {
    const tenant = await newTenant(api)
    const [user, second, member, stranger] = [
      await api.newUser(),
      await api.newUser(),
      await api.newUser(),
      await api.newUser(),
    ]
    const onDomain = { type: 'domain', domainId: tenant.domainId, id: tenant.domainId } as const
    await grantRole(api, second.id, onDomain, 'admin')
    await grantRole(api, member.id, onDomain, ['read', 'view_role_users'])
    await inviteAs(tenant, user, 'viewer')
    for (const path of [
      `/domains/${tenant.domainId}/invitations/${user.id}`,
      `/invitations/${user.id}/${tenant.domainId}`,
    ]) {
      for (const call of [user.call, tenant.call, second.call, api.admin])
        expect((await call('GET', path)).status, path).toBe(200)
      expect((await member.call('GET', path)).status).toBe(403)
      expect((await stranger.call('GET', path)).status).toBe(403)
    }
    const elsewhere = `/domains/${tenant.domainId}/invitations/${newId()}`
    expect((await member.call('GET', elsewhere)).status).toBe(403)
    expect((await tenant.call('GET', elsewhere)).status).toBe(404)
    expect((await stranger.call('GET', `/invitations/${stranger.id}/${tenant.domainId}`)).status).toBe(404)
    expect((await stranger.call('GET', `/invitations/${stranger.id}/${newId()}`)).status).toBe(404)
    expect((await stranger.call('GET', `/invitations/${stranger.id}/nothing`)).status).toBe(404)
  })

  test('accept: the invitee; any other user is refused, and without an invitation there is nothing to accept', async () => {
    const tenant = await newTenant(api)
    const [user, stranger] = [await api.newUser(), await api.newUser()]
    expect((await accept(stranger, tenant.domainId)).status).toBe(404)
    expect((await accept(stranger, newId())).status).toBe(404)
    expect((await accept(stranger, 'nothing')).status).toBe(400)
    expect((await stranger.call('POST', '/invitations/accept', {})).status).toBe(400)
    await inviteAs(tenant, user, 'viewer')
    for (const answer of [accept, reject]) {
      expect((await answer(stranger, tenant.domainId)).status).toBe(403)
      expect((await answer(tenant.user, tenant.domainId)).status).toBe(403)
    }
    expect((await api.anonymous('POST', '/invitations/accept', { domain_id: tenant.domainId })).status).toBe(401)
    expect((await accept(user, tenant.domainId)).status).toBe(204)
  })

  test('accept: not with a token that is bound to another domain', async () => {
    const tenant = await newTenant(api)
    const invited = await newTenant(api)
    await inviteAs(tenant, invited.user, 'viewer')
    const bound = await api.anonymous('POST', '/users/tokens/issue', {
      identity: invited.user.username,
      secret: invited.user.secret,
      domain_id: invited.domainId,
    })
    const call = api.as(`Bearer ${bound.json<{ access_token: string }>().access_token}`)
    expect((await call('POST', '/invitations/accept', { domain_id: tenant.domainId })).status).toBe(403)
    expect((await call('GET', '/invitations')).json()).toMatchObject({ total: 0 })
    expect((await accept(invited.user, tenant.domainId)).status).toBe(204)
  })
})

describe('an answer', () => {
  test('is given once', async () => {
    const tenant = await newTenant(api)
    const [yes, no] = [await api.newUser(), await api.newUser()]
    await inviteAs(tenant, yes, 'viewer')
    await inviteAs(tenant, no, 'viewer')
    expect((await accept(yes, tenant.domainId)).status).toBe(204)
    const rejected = await reject(no, tenant.domainId)
    expect([rejected.status, rejected.text]).toEqual([204, ''])
    for (const again of [accept, reject]) {
      const afterYes = await again(yes, tenant.domainId)
      expect(afterYes.status).toBe(409)
      expect(afterYes.json()).toMatchObject({ message: 'the invitation was already accepted' })
      const afterNo = await again(no, tenant.domainId)
      expect(afterNo.status).toBe(409)
      expect(afterNo.json()).toMatchObject({ message: 'the invitation was already rejected' })
    }
    expect((await no.call('GET', `/domains/${tenant.domainId}`)).status).toBe(403)
    expect((await view(tenant, no)).rejected_at).not.toBe(ZERO_TIME)
  })

  test('is counted once when many arrive at the same moment', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    const answers = await Promise.all([
      ...Array.from({ length: 4 }, () => accept(user, tenant.domainId)),
      ...Array.from({ length: 4 }, () => reject(user, tenant.domainId)),
    ])
    expect(statusesOf(answers)).toEqual([204, 409, 409, 409, 409, 409, 409, 409])
    const isMember = (await user.call('GET', `/domains/${tenant.domainId}`)).status === 200
    const invitation = await view(tenant, user)
    expect(isMember).toBe(invitation.confirmed_at !== ZERO_TIME)
    expect(isMember).toBe(invitation.rejected_at === ZERO_TIME)
  })

  test('is accepted for 168 hours; afterwards the invitation is sent again', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    await expire(user)
    const late = await accept(user, tenant.domainId)
    expect(late.status).toBe(409)
    expect(late.json()).toMatchObject({ message: expect.stringContaining('expired') })
    expect((await inviteAs(tenant, user, 'viewer')).status).toBe(201)
    expect((await accept(user, tenant.domainId)).status).toBe(204)
  })

  test('waits while the domain is not enabled', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    await tenant.call('POST', `/domains/${tenant.domainId}/disable`)
    expect((await accept(user, tenant.domainId)).status).toBe(403)
    await tenant.call('POST', `/domains/${tenant.domainId}/enable`)
    expect((await accept(user, tenant.domainId)).status).toBe(204)
  })
})

describe('one user is invited to a domain once', () => {
  test('a second invitation is refused, and resend renews the first', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    expect((await inviteAs(tenant, user, 'editor')).status).toBe(409)
    expect((await inviteAs(tenant, user, 'editor', { resend: true })).status).toBe(201)
    const renewed = await view(tenant, user)
    expect(renewed).toMatchObject({ relation: 'editor', rejected_at: ZERO_TIME })
    expect(renewed.updated_at).not.toBe(ZERO_TIME)
  })

  test('resend clears a rejection; an accepted invitation stays until its member has left', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    await reject(user, tenant.domainId)
    expect((await inviteAs(tenant, user, 'viewer')).status).toBe(409)
    expect((await inviteAs(tenant, user, 'viewer', { resend: true })).status).toBe(201)
    expect((await view(tenant, user)).rejected_at).toBe(ZERO_TIME)
    expect((await accept(user, tenant.domainId)).status).toBe(204)
    expect((await inviteAs(tenant, user, 'editor', { resend: true })).status).toBe(409)
    expect((await inviteAs(tenant, user, 'viewer')).status).toBe(409)

    const left = await tenant.call('DELETE', `/domains/${tenant.domainId}/roles/members`, { member_ids: [user.id] })
    expect(left.status).toBe(204)
    expect((await inviteAs(tenant, user, 'editor')).status).toBe(201)
    expect(await view(tenant, user)).toMatchObject({
      relation: 'editor',
      confirmed_at: ZERO_TIME,
      updated_at: ZERO_TIME,
    })
  })

  test('many concurrent invitations create one', async () => {
    const tenant = await newTenant(api)
    const user = await api.newUser()
    const answers = await Promise.all(Array.from({ length: 6 }, () => inviteAs(tenant, user, 'viewer')))
    expect(statusesOf(answers)).toEqual([201, 409, 409, 409, 409, 409])
  })
})

describe('a list', () => {
  test('of the caller contains the received invitations, filtered by state and other fields', async () => {
    const [first, second, third] = [await newTenant(api), await newTenant(api), await newTenant(api)]
    const user = await api.newUser()
    await inviteAs(first, user, 'viewer')
    await inviteAs(second, user, 'editor')
    await inviteAs(third, user, 'viewer')
    await accept(user, second.domainId)
    await reject(user, third.domainId)
    const domainsOf = async (query: string) => (await received(user, query)).map((one) => one.domain_id)

    const page = (await user.call('GET', '/invitations?limit=2&offset=1')).json<Page>()
    expect(page).toMatchObject({ total: 3, offset: 1, limit: 2 })
    expect(page.invitations.map((one) => one.domain_id)).toEqual([second.domainId, third.domainId])
    expect(await domainsOf('?state=all')).toHaveLength(3)
    expect(await domainsOf('?state=pending')).toEqual([first.domainId])
    expect(await domainsOf('?state=accepted')).toEqual([second.domainId])
    expect(await domainsOf('?state=rejected')).toEqual([third.domainId])
    expect(await domainsOf('?relation=Viewer')).toEqual([first.domainId, third.domainId])
    expect(await domainsOf(`?invited_by=${second.user.id}`)).toEqual([second.domainId])
    expect(await domainsOf(`?domain_id=${first.domainId}`)).toEqual([first.domainId])
    expect(await domainsOf('?domain_id=nothing')).toEqual([])
    const [pending] = await received(user, '?state=pending')
    expect(await domainsOf(`?role_id=${pending?.role_id}`)).toEqual([first.domainId])
    for (const query of ['state=waiting', 'limit=0', 'limit=101'])
      expect((await user.call('GET', `/invitations?${query}`)).status, query).toBe(400)
  })

  test('of the sent invitations contains those of the caller only', async () => {
    const [tenant, other] = [await newTenant(api), await newTenant(api)]
    const user = await api.newUser()
    await inviteAs(tenant, user, 'viewer')
    await inviteAs(other, user, 'viewer')
    const listed = async (call: TestUser['call'], query: string) =>
      (await call('GET', `/invitations?${query}`)).json<Page>().invitations.map((one) => one.domain_id)
    expect(await listed(tenant.call, '')).toEqual([])
    expect(await listed(tenant.call, `invited_by=${tenant.user.id}`)).toEqual([tenant.domainId])
    expect(await listed(tenant.call, `user_id=${user.id}`)).toEqual([tenant.domainId])
    expect(await listed(tenant.call, `invited_by=${other.user.id}`)).toEqual([])
    expect(await listed(api.admin, `user_id=${user.id}`)).toEqual([tenant.domainId, other.domainId])
  })

  test('of a domain requires an administrator of the domain', async () => {
    const tenant = await newTenant(api)
    const [user, member] = [await api.newUser(), await api.newUser()]
    await grantRole(api, member.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, ['read'])
    await inviteAs(tenant, user, 'viewer')
    const path = `/domains/${tenant.domainId}/invitations`
    for (const call of [tenant.call, api.admin]) {
      expect((await call('GET', path)).json()).toMatchObject({ total: 1, invitations: [{ user_id: user.id }] })
      const older = await call('GET', `/invitations?domain_id=${tenant.domainId}`)
      expect(older.json()).toMatchObject({ total: 1, invitations: [{ user_id: user.id }] })
    }
    expect((await tenant.call('GET', `${path}?state=rejected`)).json()).toMatchObject({ total: 0, invitations: [] })
    expect((await member.call('GET', path)).status).toBe(403)
    expect((await user.call('GET', path)).status).toBe(403)
    expect((await member.call('GET', `/invitations?domain_id=${tenant.domainId}`)).json()).toMatchObject({ total: 0 })
  })
})

describe('a deletion', () => {
  const forms: [string, (call: TestUser['call'], domainId: string, userId: string) => ReturnType<TestUser['call']>][] =
    [
      ['path of a domain', (call, domain, user) => call('DELETE', `/domains/${domain}/invitations/${user}`)],
      ['user in the body', (call, domain, user) => call('DELETE', `/domains/${domain}/invitations`, { user_id: user })],
      ['older path', (call, domain, user) => call('DELETE', `/invitations/${user}/${domain}`)],
    ]

  test.each(forms)('withdraws an open invitation: %s', async (_form, remove) => {
    const tenant = await newTenant(api)
    const [user, stranger] = [await api.newUser(), await api.newUser()]
    await inviteAs(tenant, user, 'viewer')
    expect((await remove(stranger.call, tenant.domainId, user.id)).status).toBe(403)
    const removed = await remove(tenant.call, tenant.domainId, user.id)
    expect([removed.status, removed.text]).toEqual([204, ''])
    expect((await remove(tenant.call, tenant.domainId, user.id)).status).toBe(404)
    expect((await accept(user, tenant.domainId)).status).toBe(404)
  })

  test.each(forms)(
    'of an answered invitation is the invitee’s; the older path lets its sender: %s',
    async (form, remove) => {
      const tenant = await newTenant(api)
      const user = await api.newUser()
      await inviteAs(tenant, user, 'viewer')
      await accept(user, tenant.domainId)
      if (form === 'older path') {
        expect((await remove(tenant.call, tenant.domainId, user.id)).status).toBe(204)
      } else {
        expect((await remove(tenant.call, tenant.domainId, user.id)).status).toBe(409)
        expect((await remove(user.call, tenant.domainId, user.id)).status).toBe(204)
      }
      expect((await user.call('GET', `/domains/${tenant.domainId}`)).status).toBe(200)
    },
  )
})

test('the journal records who invited whom to what, and the answer', async () => {
  const tenant = await newTenant(api)
  const user = await api.newUser()
  await inviteAs(tenant, user, 'viewer')
  await accept(user, tenant.domainId)
  await user.call('DELETE', `/invitations/${user.id}/${tenant.domainId}`)
  const { rows } = await sql<{ operation: string; attributes: unknown }>`
    SELECT operation, attributes FROM journal WHERE operation LIKE 'invitation.%'
       AND domain_key = (SELECT key FROM domains WHERE id = ${tenant.domainId}) ORDER BY seq`.execute(api.database.db)
  expect(rows.map((row) => row.operation)).toEqual(['invitation.send', 'invitation.accept', 'invitation.delete'])
  for (const row of rows)
    expect(row.attributes).toMatchObject({ domain_id: tenant.domainId, invitee_user_id: user.id, role_name: 'viewer' })
})
