/**
 * Profiles are rights of their own (decision 78): a user who decides what a template renders decides who receives the
 * secrets of the clients that it can render.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { grantRole, newTenant } from '../api/support.ts'
import type { Client, Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestUser } from '../harness/api.ts'

const PROFILE_ACTIONS = ['profile_create', 'profile_read', 'profile_update', 'profile_delete']
const HARMLESS = '{"id":"{{.Bindings.device.Snapshot.id}}"}'
const STEALING = '{"id":"{{.Bindings.device.Secret.secret}}"}'

let api: TestApi
let tenant: Tenant

beforeAll(async () => {
  api = await startTestApi()
  tenant = await newTenant(api)
})
afterAll(() => api[Symbol.asyncDispose]())

const at = (path = '') => `/${tenant.domainId}/clients/bootstrap/profiles${path}`
const enrolmentAt = (path: string) => `/${tenant.domainId}/clients/bootstrap/enrollments/${path}`
const configsAt = () => `/${tenant.domainId}/clients/configs`

/** A member of the domain with these actions, and with `update` on these clients. */
async function memberWith(actions: readonly string[], clients: readonly string[] = []): Promise<TestUser> {
  const user = await api.newUser()
  await grantRole(api, user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId }, [
    'read',
    ...actions,
  ])
  for (const id of clients)
    await grantRole(api, user.id, { type: 'client', domainId: tenant.domainId, id }, ['read', 'update'])
  return user
}

async function newProfile(fields: object = {}): Promise<string> {
  const body = { name: 'agent', content_format: 'json', content_template: HARMLESS, ...fields }
  const made = await tenant.call('POST', at(), body)
  expect(made.status, made.text).toBe(201)
  return made.json<{ id: string }>().id
}

/** An enrolment of a client of its own, with another client bound to its slot. */
async function enrol(profileId: string): Promise<{ enrolled: Client; bound: Client; key: string; externalId: string }> {
  const [enrolled, bound] = [await tenant.newClient(), await tenant.newClient()]
  const [externalId, key] = [newId(), newId()]
  const made = await tenant.call('POST', configsAt(), {
    client_id: enrolled.id,
    external_id: externalId,
    external_key: key,
    profile_id: profileId,
    bindings: [{ slot: 'device', type: 'client', resource_id: bound.id }],
  })
  expect(made.status, made.text).toBe(201)
  return { enrolled, bound, key, externalId }
}

const contentOf = async (externalId: string, key: string) =>
  (await api.as(`Client ${key}`)('GET', `/clients/bootstrap/${externalId}`)).json<{ content: string }>().content

/** Each call of profiles, and the action that it takes. */
const callsOf = (id: string) =>
  [
    ['POST', at(), { name: 'p' }, 'profile_create'],
    ['POST', at('/upload'), { name: 'p' }, 'profile_create'],
    ['GET', at(), undefined, 'profile_read'],
    ['GET', at(`/${id}`), undefined, 'profile_read'],
    ['GET', at(`/${id}/slots`), undefined, 'profile_read'],
    ['POST', at(`/${id}/render-preview`), { bindings: [{ slot: 'device', type: 'client' }] }, 'profile_read'],
    ['PATCH', at(`/${id}`), { name: 'changed' }, 'profile_update'],
    ['DELETE', at(`/${id}`), undefined, 'profile_delete'],
  ] as const

describe('a call of profiles', () => {
  it('is refused to a member with every other action of the domain, client_create included', async () => {
    const everything = (await tenant.call('GET', '/domains/roles/available-actions')).json<{
      available_actions: string[]
    }>().available_actions
    expect(everything).toEqual(expect.arrayContaining(['client_create', 'client_update', ...PROFILE_ACTIONS]))
    const member = await memberWith(everything.filter((action) => !action.startsWith('profile_')))
    const profileId = await newProfile()
    for (const [method, url, body] of callsOf(profileId))
      expect((await member.call(method, url, body)).status, `${method} ${url}`).toBe(403)
    // Nor by a way around: an enrolment shows what its profile renders.
    const external = { external_id: newId(), external_key: newId() }
    for (const known of [profileId, newId()]) {
      const created = await member.call('POST', configsAt(), { ...external, profile_id: known })
      expect(created.status, created.text).toBe(403)
    }
    const { enrolled } = await enrol(await newProfile())
    const assigned = await member.call('PATCH', enrolmentAt(`${enrolled.id}/profile`), { profile_id: profileId })
    expect(assigned.status).toBe(403)
  })

  it('requires the one action of its subject, and none of the other three permits it', async () => {
    for (const action of PROFILE_ACTIONS) {
      const member = await memberWith([action])
      for (const [method, url, body, needed] of callsOf(await newProfile())) {
        const { status, text } = await member.call(method, url, body)
        if (needed === action) expect(status, `${action} ${method} ${url} ${text}`).toBeLessThan(300)
        else expect(status, `${action} ${method} ${url}`).toBe(403)
      }
    }
  })

  it('names one of the four actions, whichever call it is', () => {
    const table = readFileSync(join(import.meta.dirname, '../matrix/access-matrix.txt'), 'utf8')
    const calls = table.split('\n').filter((line) => line.includes('/clients/bootstrap/profiles'))
    expect(calls.length).toBeGreaterThanOrEqual(8)
    for (const line of calls) expect(line).toMatch(/ profile_(create|read|update|delete) /)
  })

  it('is open to an editor of the domain, and closed to a contributor', async () => {
    for (const relation of ['editor', 'contributor']) {
      const user = await api.newUser()
      const body = { relation, user_ids: [user.id] }
      const assigned = await tenant.call('POST', `/domains/${tenant.domainId}/users/assign`, body)
      expect(assigned.status, assigned.text).toBeLessThan(300)
      for (const [method, url, sent] of callsOf(await newProfile())) {
        const { status } = await user.call(method, url, sent)
        if (relation === 'editor') expect(status, `${method} ${url}`).toBeLessThan(300)
        else expect(status, `${method} ${url}`).toBe(403)
      }
    }
  })
})

describe('a change of a profile', () => {
  it('requires update on each client that is enrolled with it, and on each that is bound', async () => {
    const profileId = await newProfile()
    const { enrolled, bound, key, externalId } = await enrol(profileId)
    const before = await contentOf(externalId, key)
    for (const [clients, what] of [
      [[], 'neither'],
      [[enrolled.id], 'the enrolled one alone'],
      [[bound.id], 'the bound one alone'],
    ] as const) {
      const member = await memberWith(PROFILE_ACTIONS, clients)
      const refused = await member.call('PATCH', at(`/${profileId}`), { content_template: STEALING })
      expect(refused.status, what).toBe(403)
      expect(refused.text).not.toContain(bound.id)
      expect(refused.text).not.toContain(enrolled.id)
    }
    expect(await contentOf(externalId, key)).toBe(before)
    const both = await memberWith(PROFILE_ACTIONS, [enrolled.id, bound.id])
    expect((await both.call('PATCH', at(`/${profileId}`), { content_template: STEALING })).status).toBe(200)
    const byDomain = await memberWith([...PROFILE_ACTIONS, 'client_read', 'client_update'])
    expect((await byDomain.call('PATCH', at(`/${profileId}`), { content_template: HARMLESS })).status).toBe(200)
  })

  it('applies to all of its enrolments: a missing right on one client refuses it', async () => {
    const profileId = await newProfile()
    const enrolments = await Promise.all([enrol(profileId), enrol(profileId), enrol(profileId)])
    const all = enrolments.flatMap(({ enrolled, bound }) => [enrolled.id, bound.id])
    const change = async (clients: readonly string[]) =>
      (await (await memberWith(PROFILE_ACTIONS, clients)).call('PATCH', at(`/${profileId}`), { defaults: { a: 1 } }))
        .status
    expect(await change(all.slice(1))).toBe(403)
    expect(await change(all.slice(0, -1))).toBe(403)
    expect(await change(all)).toBe(200)
  })

  it('cannot be avoided by another profile: assigning one requires update on the bound clients', async () => {
    const { enrolled, bound, key, externalId } = await enrol(await newProfile())
    const thief = await memberWith(PROFILE_ACTIONS, [enrolled.id])
    const own = await thief.call('POST', at(), { name: 'own', content_format: 'json', content_template: STEALING })
    const assign = (by: TestUser) =>
      by.call('PATCH', enrolmentAt(`${enrolled.id}/profile`), { profile_id: own.json<{ id: string }>().id })
    expect((await assign(thief)).status).toBe(403)
    expect(await contentOf(externalId, key)).not.toContain(bound.credentials.secret)
    expect((await assign(await memberWith(PROFILE_ACTIONS, [enrolled.id, bound.id]))).status).toBe(204)
  })

  it('by a personal access token requires the scope on all clients of the domain', async () => {
    const profileId = await newProfile()
    const { enrolled, bound } = await enrol(profileId)
    const tokenFor = async (entityIds: readonly string[]) => {
      const pat = await tenant.call('POST', '/pats', { name: newId(), duration: '1h' })
      expect(pat.status, pat.text).toBe(201)
      const { id, secret } = pat.json<{ id: string; secret: string }>()
      for (const entity of entityIds) {
        const scopes = ['update', 'read'].map((operation) => ({
          domain_id: tenant.domainId,
          entity_type: 'clients',
          entity_id: entity,
          operation,
        }))
        expect((await tenant.call('PATCH', `/pats/${id}/scope/add`, { scopes })).status).toBeLessThan(300)
      }
      return api.as(`Bearer ${secret}`)
    }
    const change = async (call: TestUser['call']) =>
      (await call('PATCH', at(`/${profileId}`), { defaults: { a: 2 } })).status
    expect(await change(await tokenFor([enrolled.id, bound.id]))).toBe(403)
    expect(await change(await tokenFor(['*']))).toBe(200)
  })
})
