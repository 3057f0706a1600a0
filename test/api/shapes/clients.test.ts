// contract 4.1 "Clients"; specification sections 2 and 4 "Clients"; decisions 10, 11, 13, 14, 31, 46
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_TIME, A_UUID, NEVER, UNKNOWN_ID, having, page, startRequests } from './requests.ts'

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
  base = `/${domainId}/clients`
})
afterAll(() => requests[Symbol.asyncDispose]())

const EXTERNAL_ID = '5b1f0a34-2ad1-4f6e-9a58-4d8a0b8b1c22'

describe('4.1 clients', () => {
  test('POST /{d}/clients', async () => {
    await ann(`POST ${base} -> 201`, {
      sends: {
        id: EXTERNAL_ID,
        name: 'pump',
        tags: ['a', 'b'],
        credentials: { identity: 'pump-1', secret: 'external-secret' },
        metadata: { hall: 2 },
        status: 'enabled',
      },
      gives: {
        id: EXTERNAL_ID,
        name: 'pump',
        domain_id: domainId,
        tags: ['a', 'b'],
        credentials: { identity: 'pump-1', secret: 'external-secret' },
        metadata: { hall: 2 },
        status: 'enabled',
        owner: ann.id,
        created_at: A_TIME,
        updated_at: NEVER,
      },
      headers: { location: `/clients/${EXTERNAL_ID}` },
    })
    await ann(`POST ${base} -> 201`, { sends: {}, gives: { id: A_UUID, credentials: { secret: A_UUID } } })
    await ann(`POST ${base} -> 409`, { sends: { id: EXTERNAL_ID }, gives: { error: 'conflict' } })
    await ann(`POST ${base} -> 409`, { sends: { credentials: { secret: 'external-secret' } } })
    await ann(`POST ${base} -> 400`, { sends: { id: 'pump' } })
    await ann(`POST ${base} -> 400`, { sends: { name: 'x'.repeat(1025) } })
    await ann(`POST ${base} -> 400`, { sends: { status: 'all' } })
    await bob(`POST ${base} -> 403`, { sends: {} })
  })

  test('POST /{d}/clients/bulk: all or nothing', async () => {
    await ann(`POST ${base}/bulk -> 200`, {
      sends: [{ name: 'one' }, { name: 'two' }],
      gives: {
        total: 2,
        clients: [having({ name: 'one' }), having({ name: 'two', credentials: having({ secret: A_UUID }) })],
      },
    })
    await ann(`POST ${base}/bulk -> 400`, { sends: [] })
    await ann(`POST ${base}/bulk -> 409`, { sends: [{ name: 'three' }, { id: EXTERNAL_ID }] })
    await ann(`GET ${base}?name=three -> 200`, { gives: page('clients', []) })
  })

  test('GET /{d}/clients: secrets for those who may update', async () => {
    await ann(`GET ${base}?name=pump -> 200`, {
      gives: page('clients', [
        having({
          id: EXTERNAL_ID,
          credentials: { identity: 'pump-1', secret: 'external-secret' },
          role_name: 'admin',
          access_type: 'direct',
          actions: expect.any(Array),
        }),
      ]),
    })
    await ann(`POST /domains/${domainId}/users/assign -> 201`, { sends: { relation: 'viewer', user_ids: [bob.id] } })
    await bob(`GET ${base}?name=pump -> 200`, {
      gives: page('clients', [having({ credentials: { identity: 'pump-1', secret: '' }, access_type: 'domain' })]),
    })
    const found = page('clients', [having({ id: EXTERNAL_ID })])
    const filters = ['tag=a', 'tags=a,b', `id=${EXTERNAL_ID}`, `metadata=${encodeURIComponent('{"hall":2}')}`]
    for (const filter of filters) await ann(`GET ${base}?${filter} -> 200`, { gives: found })
    await ann(`GET ${base}?status=disabled -> 200`, { gives: page('clients', []) })
    await ann(`GET ${base}?status=all&order=name&dir=desc&limit=2&offset=1 -> 200`, {
      gives: { total: 4, offset: 1, limit: 2, clients: [having({}), having({})] },
    })
    await ann(`GET ${base}?actions=update&role_name=admin&access_type=direct -> 200`, { gives: { total: 4 } })
    await ann(`GET ${base}?group= -> 200`, { gives: { total: 4 } })
    await ann(`GET ${base}?user=${ann.id} -> 200`, { gives: { total: 4 } })
    await ann(`GET ${base}?only_total=true -> 200`, { gives: { total: 4 } })
    for (const query of [
      'limit=0',
      'limit=101',
      'tag=a&tag=b',
      'metadata=[]',
      'status=freezed',
      'connection_type=listen',
      'dir=up',
    ])
      await ann(`GET ${base}?${query} -> 400`)
    await ann(`GET /${domainId}/users/${bob.id}/clients -> 200`, { gives: { total: 4 } })
    await ann('GET /clients?name=pump -> 200', { gives: found })
  })

  test('GET, PATCH /{d}/clients/{id}, tags and secret', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: { name: 'valve', metadata: { a: 1 } } })
    await ann(`GET ${base}/${id} -> 200`, { gives: { id, name: 'valve', credentials: { secret: '' } } })
    await ann(`GET ${base}/${id}?roles=true -> 200`, { gives: { id, member_id: ann.id } })
    await ann(`GET ${base}/${UNKNOWN_ID} -> 404`)
    await ann(`PATCH ${base}/${id} -> 200`, {
      sends: { name: 'big valve' },
      gives: { id, name: 'big valve', metadata: { a: 1 }, updated_at: A_TIME, updated_by: ann.id },
    })
    await ann(`PATCH ${base}/${id} -> 200`, { sends: { tags: ['new'] }, gives: { id, tags: ['new'] } })
    await ann(`PATCH ${base}/${id}/tags -> 200`, {
      sends: { tags: ['x'] },
      gives: { id, tags: ['x'], updated_at: A_TIME },
    })
    await ann(`PATCH ${base}/${id}/tags -> 200`, { sends: {}, gives: { tags: [] } })
    await ann(`PATCH ${base}/${id}/secret -> 200`, {
      sends: { secret: 'the-second-secret' },
      gives: { id, status: 'secret updated', updated_at: A_TIME },
    })
    await ann(`PATCH ${base}/${id}/secret -> 200`, { sends: { credentials: { secret: 'the-third-secret' } } })
    await ann(`PATCH ${base}/${id}/secret -> 400`, { sends: {} })
    await ann(`PATCH ${base}/${id}/secret -> 409`, { sends: { secret: 'external-secret' } })
    await requests.nobody('POST /clients/identify -> 401', { with: { authorization: 'Client the-second-secret' } })
    await requests.device('the-third-secret')('POST /clients/identify -> 200', { gives: { id } })
  })

  test('POST /{d}/clients/{id}/enable and /disable', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: { credentials: { secret: 'a-disabled-client' } } })
    await ann(`POST ${base}/${id}/disable -> 200`, { gives: { id, status: 'disabled', updated_at: A_TIME } })
    await ann(`POST ${base}/${id}/disable -> 200`, { gives: { id, status: 'disabled' } })
    await requests.device('a-disabled-client')('POST /clients/identify -> 401')
    await ann(`POST ${base}/${id}/enable -> 200`, { gives: { id, status: 'enabled' } })
  })

  test('POST and DELETE /{d}/clients/{id}/parent', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: {} })
    const group = (await ann(`POST /${domainId}/groups -> 201`, { sends: { name: 'hall' } })).id
    const other = (await ann(`POST /${domainId}/groups -> 201`, { sends: { name: 'yard' } })).id
    await ann(`POST ${base}/${id}/parent -> 200`, { sends: { parent_group_id: group }, gives: '' })
    await ann(`POST ${base}/${id}/parent -> 200`, { sends: { parent_group_id: group }, gives: '' })
    await ann(`POST ${base}/${id}/parent -> 409`, { sends: { parent_group_id: other } })
    await ann(`POST ${base}/${id}/parent -> 400`, { sends: {} })
    await ann(`GET ${base}?group=${group} -> 200`, { gives: page('clients', [having({ id, parent_group_id: group })]) })
    await ann(`GET /${domainId}/groups/${group}/clients -> 200`, { gives: page('clients', [having({ id })]) })
    await ann(`DELETE ${base}/${id}/parent -> 204`, { gives: '' })
    await ann(`DELETE ${base}/${id}/parent -> 204`, { gives: '' })
    await ann(`POST ${base}/${id}/parent -> 422`, { sends: { parent_group_id: UNKNOWN_ID } })
    await ann(`POST /${domainId}/groups/${group}/disable -> 200`)
    await ann(`POST ${base}/${id}/parent -> 422`, { sends: { parent_group_id: group } })
  })

  test('DELETE /{d}/clients/{id}', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: { name: 'old' } })
    await bob(`DELETE ${base}/${id} -> 403`)
    await ann(`DELETE ${base}/${id} -> 200`, { gives: { message: A_STRING } })
    await ann(`GET ${base}/${id} -> 404`)
    await ann(`DELETE ${base}/${id} -> 404`)
  })
})

test('the older POST /clients, and every path of one client without a domain', async () => {
  const { id } = await ann('POST /clients -> 201', {
    sends: { name: 'old way' },
    gives: { owner: ann.id, domain_id: domainId },
  })
  await ann(`GET /clients/${id} -> 200`, { gives: { id } })
  await ann(`PATCH /clients/${id} -> 200`, { sends: { name: 'older' }, gives: { name: 'older' } })
  await ann(`POST /clients/${id}/disable -> 200`, { gives: { status: 'disabled' } })
  await ann(`POST /clients/${id}/enable -> 200`, { gives: { status: 'enabled' } })
  await ann(`DELETE /clients/${id} -> 200`, { gives: { message: A_STRING } })
  await ann(`GET /clients/${id} -> 404`)
})
