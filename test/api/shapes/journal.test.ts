// contract section 10 "Journal and events"
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_TIME, having, holding, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let bob: Person
let d = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
  d = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
})
afterAll(() => requests[Symbol.asyncDispose]())

test('GET /journal/user/{id}: self or platform admin', async () => {
  const created = having({ operation: 'domain.create', occurred_at: A_TIME, domain: d })
  await ann(`GET /journal/user/${ann.id}?limit=100 -> 200`, {
    gives: { offset: 0, limit: 100, journals: holding(created) },
  })
  await requests.root(`GET /journal/user/${ann.id} -> 200`, { gives: { journals: holding(created) } })
  await bob(`GET /journal/user/${ann.id} -> 403`)
  await ann(`GET /journal/user/${ann.id}?operation=domain.create&with_attributes=true -> 200`, {
    gives: { total: 1, journals: [having({ operation: 'domain.create', attributes: having({ name: 'plant' }) })] },
  })
  await ann(`GET /journal/user/${ann.id}?from=1&to=2 -> 200`, { gives: { total: 0, journals: [] } })
  for (const query of ['limit=101', 'dir=up', 'from=noon', 'with_attributes=perhaps'])
    await ann(`GET /journal/user/${ann.id}?${query} -> 400`)
})

test('GET /{d}/journal/{group|client|channel|domain}/{id}: newest first, never a secret', async () => {
  for (const type of ['group', 'channel', 'client']) {
    const secret = type === 'client' ? { credentials: { secret: 'a-secret-in-no-journal' } } : {}
    const { id } = await ann(`POST /${d}/${type}s -> 201`, { sends: { name: 'one', ...secret } })
    await ann(`PATCH /${d}/${type}s/${id} -> 200`, { sends: { name: 'two' } })
    const listed = await ann<object>(`GET /${d}/journal/${type}/${id}?with_attributes=true -> 200`, {
      gives: {
        total: 2,
        offset: 0,
        limit: 10,
        journals: [
          having({
            operation: `${type}.update`,
            attributes: having({ before: having({ name: 'one' }), after: having({ name: 'two' }) }),
          }),
          having({ operation: `${type}.create`, attributes: having({ id, name: 'one' }) }),
        ],
      },
    })
    expect(JSON.stringify(listed)).not.toContain('a-secret-in-no-journal')
    await ann(`GET /${d}/journal/${type}/${id}?dir=asc&limit=1 -> 200`, {
      gives: { journals: [having({ operation: `${type}.create` })] },
    })
    await bob(`GET /${d}/journal/${type}/${id} -> 403`)
  }
  await ann(`GET /${d}/journal/domain/${d} -> 200`, {
    gives: { journals: holding(having({ operation: 'domain.create' })) },
  })
  await ann(`GET /${d}/journal/planet/${d} -> 400`)
})
