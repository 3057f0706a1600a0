// contract decision 76
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { untilInForce } from '../harness/in-force.ts'
import { newTenant } from './support.ts'

type Shown = { own: Record<string, number>; quotas: Record<string, number | null> }
type Usage = { quotas: Record<string, { limit: number | null; used: number | null }> }

let database: Awaited<ReturnType<typeof createTestDatabase>>
let api: TestApi
beforeAll(async () => {
  database = await createTestDatabase()
  api = await startTestApi({ database, environment: { SKEIN_QUOTA_GROUPS: '2' } })
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

const setQuotas = async (domainId: string, own: Record<string, unknown>) => {
  const response = await api.admin('PUT', `/domains/${domainId}/quotas`, { own })
  expect(response.status, response.text).toBe(200)
  return response.json<Shown>()
}

describe('viewing and setting', () => {
  test('without a value and a setting there is no limit', async () => {
    const tenant = await newTenant(api)
    const shown = (await api.admin('GET', `/domains/${tenant.domainId}/quotas`)).json<Shown>()
    expect(shown).toMatchObject({
      domain_id: tenant.domainId,
      own: {},
      quotas: { clients: null, groups: 2, run_weight: 1, queued_runs: null },
    })
  })

  test('PUT replaces the own values; null and absent ones have the default', async () => {
    const { domainId } = await newTenant(api)
    expect((await setQuotas(domainId, { clients: 5, groups: 9 })).quotas).toMatchObject({
      clients: 5,
      groups: 9,
    })
    const after = await setQuotas(domainId, { clients: null, channels: 0 })
    expect(after).toMatchObject({
      own: { channels: 0 },
      quotas: { clients: null, channels: 0, groups: 2 },
    })
    const stored = (await api.admin('GET', `/domains/${domainId}/quotas`)).json<Shown>()
    expect(stored).toEqual(after)
  })

  test.each([
    [{ own: { clients: -1 } }, 'own/clients'],
    [{ own: { clients: 1.5 } }, 'own/clients'],
    [{ own: { run_weight: 0 } }, 'own/run_weight'],
    [{ own: { run_weight: 101 } }, 'own/run_weight'],
    [{ own: { cliens: 1 } }, 'own'],
    [{ clients: 1 }, 'own'],
  ])('%j is malformed, names the field and changes nothing', async (body, path) => {
    const { domainId } = await newTenant(api)
    const response = await api.admin('PUT', `/domains/${domainId}/quotas`, body)
    expect(response.status, response.text).toBe(400)
    expect(
      response
        .json<{ details: { path: string }[] }>()
        .details.map((detail) => detail.path)
        .join(),
    ).toContain(path)
    expect((await api.admin('GET', `/domains/${domainId}/quotas`)).json<Shown>().own).toEqual({})
  })

  test('only platform administrators view and set quotas; users see those of their domain in its usage', async () => {
    const tenant = await newTenant(api)
    await setQuotas(tenant.domainId, { clients: 7 })
    for (const path of [`/domains/${tenant.domainId}/quotas`, `/users/${tenant.user.id}/quotas`]) {
      expect((await tenant.call('GET', path)).status).toBe(403)
      expect((await tenant.call('PUT', path, { own: {} })).status).toBe(403)
    }
    await tenant.newClient()
    const usage = (await tenant.call('GET', `/domains/${tenant.domainId}/usage`)).json<Usage>()
    expect(usage.quotas).toMatchObject({
      clients: { limit: 7, used: 1 },
      groups: { limit: 2, used: 0 },
      queued_runs: { limit: null, used: 0 },
      run_weight: { limit: 1, used: null },
    })
  })

  test('the journal of the domain records who changed a quota', async () => {
    const tenant = await newTenant(api)
    await setQuotas(tenant.domainId, { clients: 7 })
    const { journals } = (
      await tenant.call(
        'GET',
        `/${tenant.domainId}/journal/domain/${tenant.domainId}?operation=domain.update_quotas&with_attributes=true`,
      )
    ).json<{ journals: { attributes: unknown }[] }>()
    expect(journals.map(({ attributes }) => attributes)).toMatchObject([
      { before: { quotas: {} }, after: { quotas: { clients: 7 } } },
    ])
  })
})

describe('entities', () => {
  test('beyond the quota creation fails with 422 and names the limit; deletion makes room', async () => {
    const tenant = await newTenant(api)
    const { domainId } = tenant
    await setQuotas(domainId, { clients: 2, channels: 1 })
    const first = await tenant.newClient()
    await tenant.newClient()
    const refused = await tenant.call('POST', `/${domainId}/clients`, { name: 'third' })
    expect(refused.status).toBe(422)
    expect(refused.json()).toEqual({
      error: 'quota_exceeded',
      message: 'the quota of the domain is 2 clients; 2 are used, 1 more were requested',
    })
    await tenant.newChannel()
    expect((await tenant.call('POST', `/${domainId}/channels`, { name: 'second' })).status).toBe(422)
    await tenant.call('DELETE', `/${domainId}/clients/${first.id}`)
    expect((await tenant.call('POST', `/${domainId}/clients`, { name: 'third' })).status).toBe(201)
  })

  test('a bulk that exceeds the quota creates nothing', async () => {
    const tenant = await newTenant(api)
    await setQuotas(tenant.domainId, { clients: 2 })
    const bulk = [{ name: 'a' }, { name: 'b' }, { name: 'c' }]
    expect((await tenant.call('POST', `/${tenant.domainId}/clients/bulk`, bulk)).status).toBe(422)
    const { total } = (await tenant.call('GET', `/${tenant.domainId}/clients`)).json<{ total: number }>()
    expect(total).toBe(0)
  })

  test('concurrent creations together stay within the quota', async () => {
    const tenant = await newTenant(api)
    await setQuotas(tenant.domainId, { clients: 3 })
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => tenant.call('POST', `/${tenant.domainId}/clients`, { name: 'one' })),
    )
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(3)
    expect(answers.filter(({ status }) => status === 422)).toHaveLength(7)
  })

  test('the default of the settings applies to every domain', async () => {
    const tenant = await newTenant(api)
    const create = () => tenant.call('POST', `/${tenant.domainId}/groups`, { name: 'floor' })
    expect([(await create()).status, (await create()).status, (await create()).status]).toEqual([201, 201, 422])
  })

  test('the quota of a user limits the domains that they create', async () => {
    const user = await api.newUser()
    const quotas = await api.admin('PUT', `/users/${user.id}/quotas`, { own: { domains: 1 } })
    expect(quotas.json()).toEqual({ user_id: user.id, own: { domains: 1 }, quotas: { domains: 1 } })
    const created = await user.call('POST', '/domains', { name: 'one' })
    expect(created.status).toBe(201)
    expect((await user.call('POST', '/domains', { name: 'two' })).status).toBe(422)
    await user.call('DELETE', `/domains/${created.json<{ id: string }>().id}`)
    expect((await user.call('POST', '/domains', { name: 'two' })).status).toBe(201)
  })

  test('a user sees what is used of their quotas, and nobody else does but platform administrators', async () => {
    const [user, other] = [await api.newUser(), await api.newUser()]
    await api.admin('PUT', `/users/${user.id}/quotas`, { own: { domains: 3 } })
    expect((await user.call('POST', '/domains', { name: 'one' })).status).toBe(201)
    const path = `/users/${user.id}/usage`
    const usage = { user_id: user.id, quotas: { domains: { limit: 3, used: 1 } } }
    expect((await user.call('GET', path)).json()).toEqual(usage)
    expect((await api.admin('GET', path)).json()).toEqual(usage)
    expect((await other.call('GET', path)).status).toBe(403)
    expect((await api.anonymous('GET', path)).status).toBe(401)
  })

  test('a quota that is set at one node is in force at another within a second', async () => {
    const tenant = await newTenant(api)
    const other = await startTestApi({ database })
    try {
      await setQuotas(tenant.domainId, { channels: 0 })
      const call = other.as(`Bearer ${tenant.user.accessToken}`)
      await untilInForce(
        async () => (await call('POST', `/${tenant.domainId}/channels`, { name: 'one' })).status,
        { from: 201, to: 422 },
        'a quota that was set at another node',
      )
    } finally {
      await other[Symbol.asyncDispose]()
    }
  })
})
