// contract 4.2 "Channels"; specification sections 2 and 4 "Channels"; decisions 2, 10, 11, 13
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_TIME, A_UUID, NEVER, UNKNOWN_ID, having, page, startRequests } from './requests.ts'

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
  base = `/${domainId}/channels`
})
afterAll(() => requests[Symbol.asyncDispose]())

const EXTERNAL_ID = '5b1f0a34-2ad1-4f6e-9a58-4d8a0b8b1c22'

describe('4.2 channels', () => {
  test('POST /{d}/channels and /bulk', async () => {
    await ann(`POST ${base} -> 201`, {
      sends: {
        id: EXTERNAL_ID,
        name: 'heat',
        description: 'of all',
        tags: ['a'],
        route: 'heat',
        metadata: { unit: 'K' },
      },
      gives: {
        id: EXTERNAL_ID,
        name: 'heat',
        description: 'of all',
        tags: ['a'],
        route: 'heat',
        metadata: { unit: 'K' },
        domain_id: domainId,
        owner_id: ann.id,
        status: 'enabled',
        created_at: A_TIME,
        updated_at: NEVER,
      },
      headers: { location: `/channels/${EXTERNAL_ID}` },
    })
    await ann(`POST ${base} -> 409`, { sends: { id: EXTERNAL_ID } })
    await ann(`POST ${base} -> 409`, { sends: { route: 'heat' } })
    await ann(`POST ${base} -> 400`, { sends: { id: 'heat' } })
    await ann(`POST ${base} -> 400`, { sends: { route: '1st' } })
    await ann(`POST ${base} -> 400`, { sends: { name: 'x'.repeat(1025) } })
    await bob(`POST ${base} -> 403`, { sends: { name: 'mine' } })
    await ann(`POST ${base}/bulk -> 200`, {
      sends: [{ name: 'one' }, { name: 'two' }],
      gives: { total: 2, channels: [having({ name: 'one', id: A_UUID }), having({ name: 'two' })] },
    })
    await ann(`POST ${base}/bulk -> 400`, { sends: [] })
    await ann(`POST ${base}/bulk -> 409`, { sends: [{ name: 'three' }, { id: EXTERNAL_ID }] })
    await ann(`GET ${base}?name=three -> 200`, { gives: page('channels', []) })
  })

  test('GET /{d}/channels', async () => {
    const found = page('channels', [having({ id: EXTERNAL_ID, role_name: 'admin', access_type: 'direct' })])
    const filters = ['name=HEA', 'tag=a', `id=${EXTERNAL_ID}`, `metadata=${encodeURIComponent('{"unit":"K"}')}`]
    for (const filter of filters) await ann(`GET ${base}?${filter} -> 200`, { gives: found })
    await ann(`GET ${base}?order=created_at&dir=asc&limit=1&offset=2 -> 200`, {
      gives: page('channels', [having({ name: expect.stringMatching(/one|two/) })], { total: 3, offset: 2, limit: 1 }),
    })
    await ann(`GET ${base}?only_total=true -> 200`, { gives: { total: 3 } })
    for (const query of ['limit=0', 'limit=101', 'name=a&name=b', 'status=big'])
      await ann(`GET ${base}?${query} -> 400`)
    await ann('GET /channels?name=heat -> 200', { gives: found })
    await ann(`GET /${domainId}/users/${ann.id}/channels -> 200`, { gives: { total: 3 } })
    await bob(`GET ${base} -> 403`)
  })

  test('GET, PATCH and PUT /{d}/channels/{id}, tags', async () => {
    const { id } = await ann(`POST ${base} -> 201`, {
      sends: { name: 'wind', description: 'west', metadata: { a: 1 } },
    })
    await ann(`GET ${base}/${id} -> 200`, { gives: { id, name: 'wind', description: 'west' } })
    await ann(`GET ${base}/${UNKNOWN_ID} -> 404`)
    await ann(`PATCH ${base}/${id} -> 200`, {
      sends: { name: 'gale', tags: ['x'] },
      gives: {
        id,
        name: 'gale',
        tags: ['x'],
        description: 'west',
        metadata: { a: 1 },
        updated_by: ann.id,
        updated_at: A_TIME,
      },
    })
    await ann(`PUT ${base}/${id} -> 200`, {
      sends: { description: 'east' },
      gives: { id, name: 'gale', description: 'east', metadata: { a: 1 }, updated_by: ann.id },
    })
    await ann(`PATCH ${base}/${id}/tags -> 200`, { sends: { tags: ['y'] }, gives: { id, tags: ['y'] } })
  })

  test('POST /{d}/channels/{id}/enable and /disable', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: {} })
    await ann(`POST ${base}/${id}/disable -> 200`, { gives: { id, status: 'disabled' } })
    await ann(`POST ${base}/${id}/disable -> 200`, { gives: { id, status: 'disabled' } })
    await ann(`POST ${base}/${id}/enable -> 200`, { gives: { id, status: 'enabled' } })
  })

  test('POST and DELETE /{d}/channels/{id}/parent', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: {} })
    const { id: group } = await ann(`POST /${domainId}/groups -> 201`, { sends: { name: 'hall' } })
    const { id: other } = await ann(`POST /${domainId}/groups -> 201`, { sends: { name: 'yard' } })
    await ann(`POST ${base}/${id}/parent -> 200`, { sends: { parent_group_id: group }, gives: '' })
    await ann(`POST ${base}/${id}/parent -> 409`, { sends: { parent_group_id: other } })
    await ann(`GET ${base}?group=${group} -> 200`, {
      gives: page('channels', [having({ id, parent_group_id: group })]),
    })
    await ann(`GET /${domainId}/groups/${group}/channels -> 200`, { gives: page('channels', [having({ id })]) })
    await ann(`GET ${base}/${id}/groups -> 200`, { gives: page('groups', [having({ id: group })]) })
    await ann(`DELETE ${base}/${id}/parent -> 204`, { gives: '' })
    await ann(`POST ${base}/${id}/groups/assign -> 201`, { sends: { group_ids: [group] }, gives: '' })
    await ann(`POST ${base}/${id}/groups/assign -> 422`, { sends: { group_ids: [group, other] } })
    await ann(`POST ${base}/${id}/groups/unassign -> 204`, { sends: { group_ids: [group] }, gives: '' })
  })

  test('DELETE /{d}/channels/{id}', async () => {
    const { id } = await ann(`POST ${base} -> 201`, { sends: {} })
    await ann(`DELETE ${base}/${id} -> 204`, { gives: '' })
    await ann(`GET ${base}/${id} -> 404`)
  })
})

test('the older POST /channels, and every path of one channel without a domain', async () => {
  const { id } = await ann('POST /channels -> 201', { sends: { name: 'old way' }, gives: { owner_id: ann.id } })
  await ann(`GET /channels/${id} -> 200`, { gives: { id, domain_id: domainId } })
  await ann(`PUT /channels/${id} -> 200`, { sends: { name: 'older' }, gives: { name: 'older' } })
  await ann(`POST /channels/${id}/disable -> 200`, { gives: { status: 'disabled' } })
  await ann(`POST /channels/${id}/enable -> 200`, { gives: { status: 'enabled' } })
  await ann(`DELETE /channels/${id} -> 204`, { gives: '' })
})
