/** The search in a domain finds by name, id and tag what the caller may read, and nothing else. */
import { beforeAll, describe, expect, test } from 'vitest'
import { startTestApi } from '../harness/api.ts'
import type { TestUser } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

type Results = {
  total: number
  totals: Record<string, number>
  results: { type: string; id: string; name: string; tags: string[]; status: string }[]
}

const api = useWorld(() => startTestApi())
let owner: TestUser
let domainId: string
beforeAll(async () => {
  owner = await api.newUser()
  domainId = (await owner.call('POST', '/domains', { name: 'Plant', alias: 'plant' })).json<{ id: string }>().id
  await owner.call('POST', `/${domainId}/clients/bulk`, [
    { name: 'pump 10', tags: ['north'] },
    { name: 'pump 1' },
    { name: 'a pump 1 behind' },
    { name: 'valve', tags: ['pump 1'] },
    { name: 'насос' },
  ])
  await owner.call('POST', `/${domainId}/channels`, { name: 'pump telemetry' })
  await owner.call('POST', `/${domainId}/groups`, { name: 'Pumps' })
  const { rows } = await api.database.pool.query<{ key: number }>('SELECT key FROM domains WHERE id = $1', [domainId])
  const task = `INSERT INTO tasks (id, domain_key, domain_id, name, state, inputs, env, labels, priority, timeout_ms,
    memory_limit_bytes, backoff_ms, on_lost, metadata) VALUES (gen_random_uuid(), $1, $2, $3, 3, '[]', '{}', '{}', 50, 1000, 1000, 0, 'requeue', '{}')`
  for (const name of ['pump watch', 'other']) await api.database.pool.query(task, [rows[0]?.key, domainId, name])
  await api.database.pool.query(
    `INSERT INTO workflows (id, domain_key, domain_id, name, metadata) VALUES (gen_random_uuid(), $1, $2, 'nightly pump', '{}')`,
    [rows[0]?.key, domainId],
  )
})

async function search(user: TestUser, query: Record<string, string>, domain = domainId): Promise<Results> {
  const response = await user.call('GET', `/${domain}/search?${new URLSearchParams(query).toString()}`)
  expect(response.status, response.text).toBe(200)
  return response.json<Results>()
}
const named = ({ results }: Results) => results.map(({ type, name }) => `${type} ${name}`)

describe('a search', () => {
  test('finds entities of every type by a part of the name, in any case', async () => {
    const found = await search(owner, { q: 'PUMP' })
    expect(named(found)).toEqual([
      'client a pump 1 behind',
      'client pump 1',
      'client pump 10',
      'channel pump telemetry',
      'group Pumps',
      'task pump watch',
      'workflow nightly pump',
    ])
    expect(found.totals).toEqual({ client: 3, channel: 1, group: 1, task: 1, workflow: 1 })
    expect(found.total).toBe(7)
    expect(found.results.find(({ type }) => type === 'task')?.status).toBe('completed')
  })

  test('shows exact matches of name and tag first', async () => {
    expect(named(await search(owner, { q: 'pump 1', types: 'client' }))).toEqual([
      'client pump 1',
      'client valve',
      'client a pump 1 behind',
      'client pump 10',
    ])
  })

  test('counts more than it shows', async () => {
    const found = await search(owner, { q: 'pump', types: 'client,channel', limit: '1' })
    expect(named(found)).toEqual(['client a pump 1 behind', 'channel pump telemetry'])
    expect(found.totals).toEqual({ client: 3, channel: 1 })
  })

  test('finds a tag, an id, and names in any alphabet', async () => {
    expect(named(await search(owner, { q: 'north' }))).toEqual(['client pump 10'])
    const [only] = (await search(owner, { q: 'НАСОС' })).results
    expect(only?.name).toBe('насос')
    expect(named(await search(owner, { q: only?.id ?? '' }))).toEqual(['client насос'])
  })

  test('takes wildcards as ordinary characters', async () => {
    for (const q of ['%%', '__', 'pump%', String.raw`pump\ `]) expect((await search(owner, { q })).total).toBe(0)
  })

  test.each([
    [{}, 'q'],
    [{ q: 'p' }, 'q'],
    [{ q: 'x'.repeat(255) }, 'q'],
    [{ q: 'pump', limit: '51' }, 'limit'],
    [{ q: 'pump', limit: '0' }, 'limit'],
    [{ q: 'pump', types: 'client,rule' }, 'types'],
    [{ q: 'pump\0' }, 'q'],
  ])('%j is malformed', async (query, field) => {
    const response = await owner.call(
      'GET',
      `/${domainId}/search?${new URLSearchParams(query as Record<string, string>).toString()}`,
    )
    expect(response.status).toBe(400)
    expect(response.text).toContain(field)
  })
})

describe('a caller', () => {
  test('finds only what they may read', async () => {
    const member = await api.newUser()
    const [first] = (await search(owner, { q: 'pump 10' })).results
    const entered = await owner.call('POST', `/domains/${domainId}/roles`, {
      role_name: 'guest',
      optional_actions: ['read'],
      optional_members: [member.id],
    })
    expect(entered.status, entered.text).toBe(201)
    const role = await owner.call('POST', `/${domainId}/clients/${first?.id}/roles`, {
      role_name: 'reader',
      optional_actions: ['read'],
      optional_members: [member.id],
    })
    expect(role.status, role.text).toBe(201)
    const found = await search(member, { q: 'pump' })
    expect(named(found)).toEqual(['client pump 10'])
    expect(found.totals).toEqual({ client: 1, channel: 0, group: 0, task: 0, workflow: 0 })
  })

  test('of another domain is refused and finds nothing of this one', async () => {
    const stranger = await api.newUser()
    expect((await stranger.call('GET', `/${domainId}/search?q=pump`)).status).toBe(403)
    const own = (await stranger.call('POST', '/domains', { name: 'Other', alias: 'other' })).json<{ id: string }>()
    expect((await search(stranger, { q: 'pump' }, own.id)).total).toBe(0)
  })
})
