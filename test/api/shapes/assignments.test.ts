// contract 4.3 "Assignments and sharing": relations of earlier releases, mapped to roles (decision 24)
import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { having, holding, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let d = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  d = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
})
afterAll(() => requests[Symbol.asyncDispose]())

async function newMember(): Promise<Person> {
  const person = await requests.person()
  await ann(`POST /domains/${d}/users/assign -> 201`, {
    sends: { relation: 'guest', user_ids: [person.id] },
    gives: '',
  })
  return person
}

test('POST /domains/{id}/users/assign and /unassign; GET …/users and …/permissions', async () => {
  const bob = await requests.person()
  const assign = `POST /domains/${d}/users/assign`
  await ann(`${assign} -> 201`, { sends: { relation: 'Editor', user_ids: [bob.id] }, gives: '' })
  await ann(`${assign} -> 400`, { sends: { relation: 'owner', user_ids: [bob.id] } })
  await ann(`${assign} -> 400`, { sends: { relation: 'editor', user_ids: [] } })
  await bob(`${assign} -> 403`, { sends: { relation: 'editor', user_ids: [bob.id] } })
  const members = holding(having({ id: ann.id }), having({ id: bob.id }))
  for (const path of [`/domains/${d}/users`, `/${d}/users`])
    await ann(`GET ${path} -> 200`, { gives: { ...page('users', members, { total: 2 }), members } })
  await bob(`GET /domains/${d}/permissions -> 200`, { gives: { permissions: holding('read', 'client_update') } })
  await bob(`GET /users/${bob.id}/domains -> 200`, { gives: page('domains', [having({ id: d })]) })
  await ann(`POST /domains/${d}/users/unassign -> 204`, {
    sends: { relation: 'editor', user_ids: [bob.id] },
    gives: '',
  })
  await bob(`GET /domains/${d}/permissions -> 403`)
  // Without a relation: out of every role. Of one user in the singular, too.
  await ann(`${assign} -> 201`, { sends: { relation: 'viewer', user_ids: [bob.id] } })
  await ann(`POST /domains/${d}/users/unassign -> 204`, { sends: { user_id: bob.id }, gives: '' })
  await ann(`POST /domains/${d}/users/unassign -> 409`, { sends: { user_ids: [ann.id] } })
})

describe.each([
  { type: 'groups', give: 'users/assign', take: 'users/unassign' },
  { type: 'channels', give: 'users/assign', take: 'users/unassign' },
  { type: 'clients', give: 'share', take: 'unshare' },
])('POST /{d}/$type/{id}/$give and /$take; GET …/users and …/permissions', ({ type, give, take }) => {
  test.each(['with', 'without'])('%s the domain in the path', async (form) => {
    const { id } = await ann(`POST /${d}/${type} -> 201`, { sends: { name: 'one' } })
    const base = form === 'with' ? `/${d}/${type}/${id}` : `/${type}/${id}`
    const bob = await newMember()
    await ann(`POST ${base}/${give} -> 201`, { sends: { relation: 'editor', user_ids: [bob.id] }, gives: '' })
    const members = holding(having({ id: ann.id }), having({ id: bob.id }))
    await ann(`GET ${base}/users -> 200`, { gives: { ...page('users', members, { total: 2 }), members } })
    await bob(`GET ${base}/permissions -> 200`, { gives: { permissions: holding('read', 'update') } })
    if (type === 'groups') await ann(`GET ${base}/members -> 200`, { gives: { total: 2 } })
    await bob(`GET /${d}/users/${bob.id}/${type} -> 200`, { gives: { [type]: holding(having({ id })) } })
    await ann(`POST ${base}/${give} -> 400`, { sends: { relation: 'editor' } })
    await bob(`POST ${base}/${give} -> 403`, { sends: { relation: 'viewer', user_ids: [bob.id] } })
    await ann(`POST ${base}/${take} -> 204`, { sends: { relation: 'editor', user_ids: [bob.id] }, gives: '' })
    await ann(`GET ${base}/users -> 200`, { gives: page('users', [having({ id: ann.id })]) })
  })
})
