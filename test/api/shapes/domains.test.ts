// contract 1.1 and 1.2 "Domain record" and "Domain endpoints"; decisions 10, 11, 13, 23, 45
import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_TIME, A_UUID, NEVER, UNKNOWN_ID, having, holding, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let bob: Person
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
})
afterAll(() => requests[Symbol.asyncDispose]())

describe('1.2 domain endpoints', () => {
  let plant = ''

  test('POST /domains: name and alias (older) or route (newer); the creator is member of the role admin', async () => {
    const older = await ann('POST /domains -> 201', {
      sends: { name: 'North plant', alias: 'north-plant', tags: ['cold'], metadata: { country: 'NO' } },
      gives: {
        id: A_UUID,
        name: 'North plant',
        alias: 'north-plant',
        route: 'north-plant',
        tags: ['cold'],
        metadata: { country: 'NO' },
        status: 'enabled',
        created_by: ann.id,
        created_at: A_TIME,
        updated_at: NEVER,
      },
      headers: { location: null },
    })
    plant = older.id
    await ann('POST /domains -> 201', {
      sends: { id: '4c1a7f0e-5b1c-4a54-8a8e-3f1f8f1c9b11', name: 'South plant', route: 'south-plant' },
      gives: { id: '4c1a7f0e-5b1c-4a54-8a8e-3f1f8f1c9b11', alias: 'south-plant', route: 'south-plant' },
    })
    await ann('POST /domains -> 201', { sends: { name: 'West plant' }, gives: { alias: A_STRING, route: A_STRING } })
    await ann('POST /domains -> 400', { sends: { alias: 'nameless' }, gives: { error: 'malformed' } })
    await ann('POST /domains -> 409', { sends: { name: 'again', alias: 'north-plant' }, gives: { error: 'conflict' } })
    await ann('POST /domains -> 409', { sends: { name: 'again', id: plant } })
    await ann('POST /domains -> 415', { sends: 'name: plant', with: { 'content-type': 'text/yaml' } })
    await requests.nobody('POST /domains -> 401', { sends: { name: 'mine' }, gives: { error: 'unauthenticated' } })
  })

  test('GET /domains: those in which the caller has a role, with that role and its relation', async () => {
    await ann('GET /domains?order=created_at -> 200', {
      gives: page('domains', [
        having({
          id: plant,
          role_id: A_STRING,
          role_name: 'admin',
          actions: holding('read'),
          permission: 'administrator',
        }),
        having({ alias: 'south-plant' }),
        having({ name: 'West plant' }),
      ]),
    })
    await ann('GET /domains?limit=1&offset=1&order=name&dir=asc -> 200', {
      gives: page('domains', [having({ name: 'South plant' })], { total: 3, offset: 1, limit: 1 }),
    })
    await ann('GET /domains?name=NORTH -> 200', { gives: page('domains', [having({ id: plant })]) })
    await ann('GET /domains?tag=cold -> 200', { gives: page('domains', [having({ id: plant })]) })
    await ann(`GET /domains?metadata=${encodeURIComponent('{"country":"NO"}')} -> 200`, {
      gives: page('domains', [having({ id: plant })]),
    })
    await ann(`GET /domains?id=${plant} -> 200`, { gives: page('domains', [having({ id: plant })]) })
    await ann('GET /domains?role_name=admin&actions=read,update -> 200', { gives: { total: 3 } })
    await ann('GET /domains?status=freezed -> 200', { gives: page('domains', []) })
    await ann('GET /domains?only_total=true -> 200', { gives: { total: 3 } })
    await bob('GET /domains -> 200', { gives: page('domains', []) })
    await requests.root('GET /domains -> 200', { gives: { total: 3 } })
    for (const query of [
      'limit=0',
      'limit=101',
      'offset=-1',
      'limit=ten',
      'limit=1&limit=2',
      'metadata={',
      'status=big',
      'dir=up',
    ])
      await ann(`GET /domains?${query} -> 400`, { gives: { error: 'malformed', message: A_STRING } })
  })

  test('GET /domains/{id}: 403 without membership, for an unknown domain too', async () => {
    await ann(`GET /domains/${plant} -> 200`, { gives: { id: plant, name: 'North plant' } })
    await ann(`GET /domains/${plant}?roles=true -> 200`, {
      gives: { id: plant, member_id: ann.id, roles: [having({ role_name: 'admin' })] },
    })
    await bob(`GET /domains/${plant} -> 403`, { gives: { error: 'forbidden' } })
    await ann(`GET /domains/${UNKNOWN_ID} -> 403`, { gives: { error: 'forbidden' } })
  })

  test('PATCH /domains/{id}: what is absent stays; alias changes, route is ignored', async () => {
    await ann(`PATCH /domains/${plant} -> 200`, {
      sends: { name: 'North', tags: ['cold', 'wet'], route: 'ignored' },
      gives: {
        name: 'North',
        tags: ['cold', 'wet'],
        alias: 'north-plant',
        route: 'north-plant',
        metadata: { country: 'NO' },
        updated_by: ann.id,
        updated_at: A_TIME,
      },
    })
    await ann(`PATCH /domains/${plant} -> 200`, {
      sends: { alias: 'north' },
      gives: { alias: 'north', route: 'north' },
    })
    await ann(`PATCH /domains/${plant} -> 409`, { sends: { alias: 'south-plant' } })
    await ann(`PATCH /domains/${plant} -> 400`, { sends: { alias: '1st' } })
    await bob(`PATCH /domains/${plant} -> 403`, { sends: { name: 'mine' } })
  })

  test('POST /domains/{id}/enable, /disable, /freeze: the record; twice is as once', async () => {
    const disabled = await ann<{ updated_at: string }>(`POST /domains/${plant}/disable -> 200`, {
      gives: { status: 'disabled' },
    })
    await ann(`POST /domains/${plant}/disable -> 200`, {
      gives: { status: 'disabled', updated_at: disabled.updated_at },
    })
    await ann(`POST /domains/${plant}/enable -> 200`, { gives: { id: plant, status: 'enabled' } })
    await ann(`POST /domains/${plant}/freeze -> 403`)
    await requests.root(`POST /domains/${plant}/freeze -> 200`, { gives: { status: 'freezed' } })
    await ann(`GET /${plant}/clients -> 403`)
    await requests.root(`POST /domains/${plant}/enable -> 200`, { gives: { status: 'enabled' } })
    await bob(`POST /domains/${plant}/disable -> 403`)
  })

  test('GET /domains/roles/available-actions', async () => {
    await ann('GET /domains/roles/available-actions -> 200', {
      gives: { available_actions: holding('read', 'client_create', 'group_set_child') },
    })
  })

  test('GET /{domain_id}/users and /domains/{id}/users: members of the domain, as users and as members', async () => {
    const members = [having({ id: ann.id })]
    await ann(`GET /${plant}/users -> 200`, { gives: { ...page('users', members), members } })
    await ann(`GET /domains/${plant}/users -> 200`, { gives: { ...page('users', members), members } })
    await bob(`GET /${plant}/users -> 403`)
  })

  test('GET and DELETE /domains/{id}/roles/members', async () => {
    const role = await ann<{ role_id: string }>(`POST /domains/${plant}/roles -> 201`, {
      sends: { role_name: 'operators', optional_actions: ['read', 'client_read'], optional_members: [bob.id] },
    })
    await ann(`GET /domains/${plant}/roles/members -> 200`, {
      gives: page(
        'members',
        holding(
          having({ member_id: ann.id, roles: [having({ role_name: 'admin' })] }),
          having({ member_id: bob.id, roles: [having({ role_id: role.role_id, role_name: 'operators' })] }),
        ),
        { total: 2 },
      ),
    })
    await ann(`DELETE /domains/${plant}/roles/members -> 400`, { sends: { member_ids: [] } })
    await ann(`DELETE /domains/${plant}/roles/members -> 204`, { sends: { member_ids: [bob.id] }, gives: '' })
    await bob(`GET /domains/${plant} -> 403`)
    await ann(`DELETE /domains/${plant}/roles/members -> 409`, { sends: { member_ids: [ann.id] } })
  })

  test('DELETE /domains/{id}: everything of it is 403 for 30 days, in which its admin restores it by enabling', async () => {
    await bob(`DELETE /domains/${plant} -> 403`)
    await ann(`DELETE /domains/${plant} -> 204`, { gives: '' })
    await ann(`GET /${plant}/clients -> 403`)
    await ann(`GET /domains/${plant} -> 403`)
    await ann(`POST /domains/${plant}/enable -> 200`, { gives: { id: plant, status: 'enabled' } })
    await ann(`GET /${plant}/clients -> 200`, { gives: page('clients', []) })
  })
})
