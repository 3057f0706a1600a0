// contract section 2 "Roles": every row of 2.2 below every base of 2.1; decisions 4 to 10
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_TIME, NEVER, having, holding, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let bob: Person
let domainId = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
  domainId = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
  await ann(`POST /domains/${domainId}/users/assign -> 201`, { sends: { relation: 'guest', user_ids: [bob.id] } })
})
afterAll(() => requests[Symbol.asyncDispose]())

/** 2.3: how many actions there are; clients with the two of their state and the one of commands, domain with those of tasks, rules and alarms. */
const COUNTS = { domains: 68, clients: 12, channels: 11, groups: 71 } as const

describe.each(Object.entries(COUNTS))('2.3 the actions of %s', (type, count) => {
  test.each(['roles', 'role'])('GET …/%s/available-actions', async (word) => {
    const paths = type === 'domains' ? [`/domains/${word}`] : [`/${domainId}/${type}/${word}`, `/${type}/${word}`]
    for (const path of paths) {
      const { available_actions: actions } = await bob<{ available_actions: string[] }>(
        `GET ${path}/available-actions -> 200`,
      )
      expect(new Set(actions).size).toBe(count)
      expect(actions).toEqual(holding('update', 'read', 'delete', 'manage_role', 'view_role_users'))
    }
  })
})

type Base = { type: string; style: 'domain-prefixed' | 'unprefixed'; word: string }
const BASES: Base[] = ['roles', 'role'].flatMap((word) => [
  { type: 'domains', style: 'unprefixed', word },
  ...['clients', 'channels', 'groups'].flatMap((type) => [
    { type, style: 'domain-prefixed' as const, word },
    { type, style: 'unprefixed' as const, word },
  ]),
])

test.each(BASES)('2.2 the rows below the $style base of $type, /$word', async ({ type, style, word }) => {
  const entity =
    type === 'domains' ? domainId : (await ann(`POST /${domainId}/${type} -> 201`, { sends: { name: 'one' } })).id
  const base = `${style === 'unprefixed' ? '' : `/${domainId}`}/${type}/${entity}/${word}`
  const prefixed = style === 'domain-prefixed'

  // POST base
  const union = {
    role_name: 'operators',
    name: 'operators',
    entity_id: entity,
    actions: ['read'],
    optional_actions: ['read'],
    members: [bob.id],
    optional_members: [bob.id],
    created_by: ann.id,
    created_at: A_TIME,
    updated_at: NEVER,
  }
  const { role_id: id } = await ann<{ role_id: string }>(`POST ${base} -> 201`, {
    sends: { role_name: 'operators', optional_actions: ['read'], optional_members: [bob.id] },
    gives: { ...union, role_id: expect.stringMatching(new RegExp(`^${type.slice(0, -1)}_.{22}$`)) },
  })
  await ann(`POST ${base} -> 409`, { sends: { role_name: 'operators' } })
  await ann(`POST ${base} -> 400`, { sends: {} })
  await ann(`POST ${base} -> 400`, { sends: { role_name: 'x'.repeat(201) } })
  await ann(`POST ${base} -> 400`, { sends: { role_name: 'fliers', optional_actions: ['fly'] } })
  await bob(`POST ${base} -> 403`, { sends: { role_name: 'mine' } })

  // GET base, of a domain with the role guest, too: a bare array below the unprefixed base, unless a page is asked for (decision 6)
  const both = holding(having({ role_name: 'admin' }), having({ id, name: 'operators', role_id: id }))
  const paged = { total: type === 'domains' ? 3 : 2, offset: 0, limit: 10, roles: both }
  await ann(`GET ${base} -> 200`, { gives: prefixed ? paged : both })
  await ann(`GET ${base}?limit=10 -> 200`, { gives: paged })

  // GET /members
  await ann(`GET ${base}/members -> 200`, {
    gives: {
      members: holding(
        having({ member_id: ann.id, roles: holding(having({ role_name: 'admin' })) }),
        having({ member_id: bob.id, roles: holding(having({ role_id: id, role_name: 'operators' })) }),
      ),
    },
  })

  // GET and PUT /{role_id}
  await ann(`GET ${base}/${id} -> 200`, { gives: { ...union, role_id: id, id } })
  await ann(`GET ${base}/${type.slice(0, -1)}_${'0'.repeat(22)} -> 404`)
  await ann(`PUT ${base}/${id} -> 200`, { sends: { role_name: 'crew' }, gives: { name: 'crew', actions: ['read'] } })
  await ann(`PUT ${base}/${id} -> 200`, {
    sends: { name: 'crew', actions: ['read', 'update'] },
    gives: { role_name: 'crew', actions: holding('read', 'update'), updated_by: ann.id, updated_at: A_TIME },
  })
  await ann(`PUT ${base}/${id} -> 400`, { sends: {} })
  await ann(`PUT ${base}/${id} -> 409`, { sends: { role_name: 'admin' } })

  // actions
  const added = await ann(`POST ${base}/${id}/actions -> 200`, { sends: { actions: ['delete'] } })
  expect(prefixed ? added : JSON.stringify(added)).toEqual(
    prefixed ? { actions: ['delete'] } : expect.stringContaining('delete'),
  )
  await ann(`POST ${base}/${id}/actions -> 400`, { sends: { actions: [] } })
  await ann(`POST ${base}/${id}/actions -> 400`, { sends: { actions: ['fly'] } })
  const three = holding('read', 'update', 'delete')
  await ann(`GET ${base}/${id}/actions -> 200`, { gives: prefixed ? { actions: three } : three })
  await ann(`POST ${base}/${id}/actions/delete -> 204`, { sends: { actions: ['delete'] }, gives: '' })
  await ann(`POST ${base}/${id}/actions/delete -> 400`, { sends: { actions: [] } })
  await ann(`POST ${base}/${id}/actions/delete-all -> 204`, { gives: '' })
  await ann(`GET ${base}/${id}/actions -> 200`, { gives: prefixed ? { actions: [] } : [] })

  // members
  await ann(`POST ${base}/${id}/members -> 200`, { sends: { members: [ann.id] }, gives: { members: [ann.id] } })
  await ann(`POST ${base}/${id}/members -> 400`, { sends: { members: [] } })
  await ann(`GET ${base}/${id}/members?limit=1 -> 200`, {
    gives: { total: 2, offset: 0, limit: 1, members: [A_STRING] },
  })
  await ann(`GET ${base}/${id}/members?limit=101 -> 400`)
  // decision 8
  const removal = { sends: { members: [ann.id] } }
  if (prefixed) await ann(`POST ${base}/${id}/members/delete -> 204`, { ...removal, gives: '' })
  else await ann(`POST ${base}/${id}/members/delete -> 200`, { ...removal, gives: { message: A_STRING } })
  await ann(`POST ${base}/${id}/members/delete-all -> 204`, { gives: '' })
  await ann(`GET ${base}/${id}/members -> 200`, {
    gives: prefixed ? { total: 0, offset: 0, limit: 10, members: [] } : [],
  })

  // DELETE /members: out of every role of the entity; of a domain that is out of the domain, so it is walked in domains.test.ts
  if (type !== 'domains') {
    await ann(`POST ${base}/${id}/members -> 200`, { sends: { members: [bob.id] } })
    await ann(`DELETE ${base}/members -> 204`, { sends: { member_ids: [bob.id] }, gives: '' })
    await ann(`DELETE ${base}/members -> 400`, { sends: { member_ids: [] } })
  }

  // DELETE /{role_id}
  await ann(`DELETE ${base}/${id} -> 204`, { gives: '' })
  await ann(`GET ${base}/${id} -> 404`)

  // 2.4 the built-in role
  const { roles } = await ann<{ roles: { role_id: string; name: string }[] }>(`GET ${base}?limit=10 -> 200`)
  const admin = roles.find(({ name }) => name === 'admin')?.role_id
  await ann(`DELETE ${base}/${admin} -> 403`)
  await ann(`PUT ${base}/${admin} -> 403`, { sends: { role_name: 'boss' } })
  await ann(`POST ${base}/${admin}/actions/delete-all -> 403`)
  await ann(`POST ${base}/${admin}/members/delete-all -> 409`)
})
