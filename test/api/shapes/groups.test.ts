// contract section 3 "Groups"; specification section 4 "Groups"; decisions 2, 11, 13, 26
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_TIME, A_UUID, NEVER, UNKNOWN_ID, having, holding, page, startRequests } from './requests.ts'

const AT_GROUPS: unknown = expect.stringMatching(/^\/groups\/[-0-9a-f]{36}$/)

let requests: Requests
let ann: Person
let bob: Person
let domainId = ''
let base = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
  domainId = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
  base = `/${domainId}/groups`
})
afterAll(() => requests[Symbol.asyncDispose]())

const newGroup = async (name: string, parentId?: string): Promise<string> =>
  (await ann(`POST ${base} -> 201`, { sends: { name, parent_id: parentId } })).id

describe('one group', () => {
  test('POST /{d}/groups', async () => {
    const { id } = await ann(`POST ${base} -> 201`, {
      sends: { name: 'hall', description: 'the big one', tags: ['warm'], metadata: { floor: 1 } },
      gives: {
        id: A_UUID,
        domain_id: domainId,
        name: 'hall',
        description: 'the big one',
        tags: ['warm'],
        metadata: { floor: 1 },
        status: 'enabled',
        created_at: A_TIME,
        updated_at: NEVER,
      },
      headers: { location: AT_GROUPS },
    })
    await ann(`POST ${base} -> 201`, { sends: { name: 'corner', parent_id: id }, gives: { parent_id: id, level: 2 } })
    await ann(`POST ${base} -> 201`, { sends: { name: 'closed', status: 'disabled' }, gives: { status: 'disabled' } })
    await ann(`POST ${base} -> 400`, { sends: {} })
    await ann(`POST ${base} -> 400`, { sends: { name: 'x'.repeat(1025) } })
    await ann(`POST ${base} -> 400`, { sends: { name: 'x', status: 'all' } })
    await ann(`POST ${base} -> 422`, { sends: { name: 'x', parent_id: UNKNOWN_ID } })
    await bob(`POST ${base} -> 403`, { sends: { name: 'x' } })
  })

  test('GET, PUT and PATCH /{d}/groups/{id}, tags, enable, disable, DELETE', async () => {
    const id = await newGroup('line')
    await ann(`GET ${base}/${id} -> 200`, { gives: { id, name: 'line', level: 1, path: id } })
    await ann(`GET ${base}/${id}?roles=true -> 200`, {
      gives: { id, member_id: ann.id, roles: holding(having({ role_name: 'admin' })) },
    })
    await bob(`GET ${base}/${id} -> 403`)
    await ann(`GET ${base}/${UNKNOWN_ID} -> 404`)
    await ann(`PUT ${base}/${id} -> 200`, {
      sends: { name: 'line 2', description: 'new', metadata: { a: 1 } },
      gives: { name: 'line 2', description: 'new', updated_by: ann.id, updated_at: A_TIME },
    })
    await ann(`PUT ${base}/${id} -> 200`, {
      sends: { description: null },
      gives: { name: 'line 2', metadata: { a: 1 } },
    })
    await ann(`PATCH ${base}/${id} -> 200`, {
      sends: { name: 'line 3' },
      gives: { name: 'line 3', metadata: { a: 1 } },
    })
    await ann(`PUT ${base}/${id} -> 400`, { sends: { name: 'x'.repeat(1025) } })
    await ann(`PUT ${base}/${UNKNOWN_ID} -> 404`, { sends: { name: 'x' } })
    await ann(`PATCH ${base}/${id}/tags -> 200`, { sends: { tags: ['b', 'a'] }, gives: { id, tags: ['b', 'a'] } })
    await ann(`POST ${base}/${id}/disable -> 200`, { gives: { id, status: 'disabled' } })
    await ann(`POST ${base}/${id}/disable -> 200`, { gives: { id, status: 'disabled' } })
    await ann(`POST ${base}/${id}/enable -> 200`, { gives: { id, status: 'enabled' } })
    await ann(`DELETE ${base}/${id} -> 204`, { gives: '' })
    await ann(`GET ${base}/${id} -> 404`)
    await ann(`DELETE ${base}/${id} -> 404`)
  })

  test('GET /{d}/groups', async () => {
    const access = { role_name: 'admin', access_type: 'direct' }
    await ann(`GET ${base}?name=hal -> 200`, { gives: page('groups', [having({ name: 'hall', ...access })]) })
    await ann(`GET ${base}?tag=warm -> 200`, { gives: page('groups', [having({ name: 'hall' })]) })
    await ann(`GET ${base}?status=disabled -> 200`, { gives: page('groups', [having({ name: 'closed' })]) })
    await ann(`GET ${base}?order=name&dir=desc&limit=1 -> 200`, {
      gives: page('groups', [having({ name: 'hall' })], { total: 2, limit: 1 }),
    })
    await ann(`GET ${base}?root_group=true -> 200`, { gives: page('groups', [having({ name: 'hall' })]) })
    await ann(`GET ${base}?tree=true -> 200`, {
      gives: { groups: [having({ name: 'hall', children: [having({ name: 'corner' })] })] },
    })
    await ann(`GET ${base}?access_type=domain -> 200`, { gives: { total: 0, groups: [] } })
    await ann(`GET ${base}?only_total=true -> 200`, { gives: { total: 2 } })
    await ann(`GET ${base}?limit=101 -> 400`)
    await ann('GET /groups?name=hall -> 200', { gives: page('groups', [having({ domain_id: domainId })]) })
  })
})

describe('the hierarchy', () => {
  test('POST and DELETE /{id}/parent', async () => {
    const [top, low, other] = [await newGroup('top'), await newGroup('low'), await newGroup('other')]
    await ann(`POST ${base}/${low}/parent -> 200`, { sends: { parent_id: top }, gives: '' })
    await ann(`GET ${base}/${low} -> 200`, { gives: { parent_id: top, level: 2, path: `${top}.${low}` } })
    await ann(`POST ${base}/${low}/parent -> 409`, { sends: { parent_id: other } })
    await ann(`POST ${base}/${top}/parent -> 422`, { sends: { parent_id: low } })
    await ann(`POST ${base}/${top}/parent -> 400`, { sends: { parent_id: top } })
    await ann(`POST ${base}/${top}/parent -> 400`, { sends: { parent_id: 'up' } })
    await ann(`DELETE ${base}/${low}/parent -> 204`, { gives: '' })
    await ann(`DELETE ${base}/${low}/parent -> 204`, { gives: '' })
  })

  test('POST, DELETE and GET /{id}/children', async () => {
    const [top, one, two, other] = [await newGroup('t'), await newGroup('1'), await newGroup('2'), await newGroup('o')]
    await ann(`POST ${base}/${top}/children -> 200`, { sends: { children_ids: [one, two] }, gives: '' })
    await ann(`POST ${base}/${other}/children -> 409`, { sends: { children_ids: [one] } })
    await ann(`POST ${base}/${one}/children -> 422`, { sends: { children_ids: [top] } })
    await ann(`POST ${base}/${top}/children -> 400`, { sends: { children_ids: [] } })
    await ann(`POST ${base}/${top}/children -> 400`, { sends: { children_ids: ['x'] } })
    await ann(`POST ${base}/${top}/children -> 400`, { sends: { children_ids: [top] } })
    const three = await newGroup('3', one)
    await ann(`GET ${base}/${top}/children -> 200`, {
      gives: page('groups', holding(having({ id: one, level: 1 }), having({ id: two, level: 1 })), { total: 2 }),
    })
    await ann(`GET ${base}/${top}/children?start_level=1&end_level=-1 -> 200`, { gives: { total: 3 } })
    await ann(`GET ${base}/${top}/children?start_level=0&end_level=-1 -> 200`, { gives: { total: 4 } })
    await ann(`GET ${base}/${top}/children?tree=true -> 200`, {
      gives: {
        groups: holding(having({ id: one, children: [having({ id: three, path: `${top}.${one}.${three}` })] })),
      },
    })
    await ann(`GET ${base}/${three}/parents -> 200`, {
      gives: page('groups', [having({ id: one, level: -1 }), having({ id: top, level: -2 })]),
    })
    await ann(`GET ${base}/${top}/hierarchy?level=20 -> 200`, {
      gives: { level: 20, direction: -1, groups: holding(having({ id: three })) },
    })
    await ann(`GET ${base}/${three}/hierarchy?level=20&dir=1&tree=true -> 200`, { gives: { direction: 1 } })
    await ann(`GET ${base}/${top}/hierarchy?level=21 -> 400`)
    await ann(`DELETE ${base}/${other}/children -> 409`, { sends: { children_ids: [one] } })
    await ann(`DELETE ${base}/${top}/children -> 204`, { sends: { children_ids: [one] }, gives: '' })
    await ann(`DELETE ${base}/${top}/children/all -> 204`, { gives: '' })
    await ann(`GET ${base}/${top}/children -> 200`, { gives: page('groups', []) })
  })

  test('twenty levels and no more', async () => {
    let id = await newGroup('level 1')
    for (let level = 2; level <= 20; level++) id = await newGroup(`level ${level}`, id)
    await ann(`POST ${base} -> 422`, { sends: { name: 'level 21', parent_id: id } })
  })

  test('a deleted group leaves its children as roots', async () => {
    const top = await newGroup('top')
    const low = await newGroup('low', top)
    await ann(`DELETE ${base}/${top} -> 204`)
    await ann(`GET ${base}/${low} -> 200`, { gives: { level: 1, path: low } })
  })

  test('a disabled group is no parent', async () => {
    const [closed, low] = [await newGroup('closed'), await newGroup('low')]
    await ann(`POST ${base}/${closed}/disable -> 200`)
    await ann(`POST ${base}/${low}/parent -> 422`, { sends: { parent_id: closed } })
  })
})
