// contract section 3 (cycles, nesting, 409 of a parent) when everything comes at once, on two nodes; mechanisms section 4
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { chain, faultsOf, groupsOf, journalOf } from './groups-support.ts'
import type { Group, GroupPage, Groups } from './groups-support.ts'
import type { Tenant } from './support.ts'
import { newTenant, statusesOf } from './support.ts'
import { lockGroupFor } from '../../api/identity/groups/parent-group.ts'

/** Two nodes over one database: a lock in the memory of one would not help. */
let database: TestDatabase
let api: TestApi
let second: TestApi
let tenant: Tenant
/** The same user on either node. */
let nodes: [Groups, Groups]
beforeAll(async () => {
  database = await createTestDatabase()
  api = await startTestApi({ database })
  second = await startTestApi({ database })
  tenant = await newTenant(api)
  const { domainId, user } = tenant
  nodes = [groupsOf(tenant), groupsOf({ domainId, call: second.as(`Bearer ${user.accessToken}`) })]
})
afterAll(async () => {
  await second[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

const ROUNDS = 8

const moveBelow = (node: Groups, child: Group, parent: Group) =>
  node.call('POST', `/${child.id}/parent`, { parent_id: parent.id })

test('exactly one of two moves that together would create a cycle succeeds', async () => {
  const [one, other] = nodes
  for (let round = 0; round < ROUNDS; round++) {
    const [left, right] = [await one.make('left'), await one.make('right')]
    const answers = await Promise.all([moveBelow(one, left, right), moveBelow(other, right, left)])
    expect(statusesOf(answers)).toEqual([200, 422])
  }
  expect(await faultsOf(api, tenant.domainId)).toEqual([])
})

test('one of three moves that together would create a ring fails', async () => {
  const [one, other] = nodes
  for (let round = 0; round < ROUNDS; round++) {
    const ring = await Promise.all(['a', 'b', 'c'].map((name) => one.make(name)))
    const answers = await Promise.all(
      ring.map((group, index) => moveBelow(index === 1 ? other : one, group, ring[(index + 1) % 3] as Group)),
    )
    expect(statusesOf(answers)).toEqual([200, 200, 422])
  }
  expect(await faultsOf(api, tenant.domainId)).toEqual([])
})

test('a group that gets several parents concurrently has one of them', async () => {
  const [one, other] = nodes
  const child = await one.make('wanted')
  const parents = await Promise.all(Array.from({ length: 6 }, (_, index) => one.make(`parent ${index}`)))
  const answers = await Promise.all(
    parents.map((parent, index) =>
      index % 2 === 0
        ? moveBelow(one, child, parent)
        : other.call('POST', `/${parent.id}/children`, { children_ids: [child.id] }),
    ),
  )
  expect(statusesOf(answers)).toEqual([200, 409, 409, 409, 409, 409])
  const holders = await Promise.all(
    parents.map(async ({ id }) => (await one.call('GET', `/${id}/children`)).json<GroupPage>().total),
  )
  expect(holders.reduce((sum, total) => sum + total, 0)).toBe(1)
})

test('two chains that together exceed the limit are not joined from both ends', async () => {
  const [one, other] = nodes
  const [upper, lower] = [await chain(one, 10, 'upper'), await chain(one, 10, 'lower')]
  const [upperRoot, upperEnd] = [upper[0] as Group, upper[9] as Group]
  const [lowerRoot, lowerEnd] = [lower[0] as Group, lower[9] as Group]
  const root = await one.make('root')
  const answers = await Promise.all([
    moveBelow(one, lowerRoot, upperEnd),
    moveBelow(other, upperRoot, root),
    moveBelow(other, upperRoot, lowerEnd),
  ])
  expect(statusesOf(answers).filter((status) => status === 200)).toHaveLength(1)
  expect(await faultsOf(api, tenant.domainId)).toEqual([])
})

test('the hierarchy stays consistent under concurrent creations, moves and deletions, and none fails', async () => {
  const [one, other] = nodes
  for (let round = 0; round < ROUNDS; round++) {
    const top = await one.make('top')
    const middle = await one.make('middle', top)
    const [leaf, root] = [await one.make('leaf', middle), await one.make('root')]
    const answers = await Promise.all([
      one.call('DELETE', `/${middle.id}`),
      other.call('POST', '', { name: 'new', parent_id: middle.id }),
      moveBelow(other, root, middle),
      one.call('DELETE', `/${leaf.id}/parent`),
      other.call('DELETE', `/${top.id}/children/all`),
      one.call('POST', '', { name: 'deeper', parent_id: leaf.id }),
    ])
    expect(answers[0]?.status).toBe(204)
    for (const { status, text } of answers) expect([200, 201, 204, 404, 422], text).toContain(status)
  }
  expect(await faultsOf(api, tenant.domainId)).toEqual([])
})

test('a group that becomes a parent in an open transaction is deleted only after it, and the deletion includes it', async () => {
  const own = await newTenant(api)
  const [one, other] = [groupsOf(own), groupsOf({ ...own, call: second.as(`Bearer ${own.user.accessToken}`) })]
  const group = await one.make('held')
  const client = await own.newClient()
  const domainKey = await domainKeyOf(own)
  let deletion: Promise<{ status: number }> | undefined
  let isDeleted = false
  await api.database.transaction(async (tx) => {
    const { key } = await lockGroupFor(tx, domainKey, group.id)
    deletion = one.call('DELETE', `/${group.id}`).then((answer) => {
      isDeleted = true
      return answer
    })
    // The other node answers several times while the deletion waits.
    for (let times = 0; times < 3; times++) expect((await other.call('GET', `/${group.id}`)).status).toBe(200)
    expect(isDeleted).toBe(false)
    await sql`UPDATE clients SET parent_group_key = ${key} WHERE id = ${client.id}::uuid AND domain_key = ${domainKey}`.execute(
      tx,
    )
  })
  expect((await deletion)?.status).toBe(204)
  const [orphans] = await journalOf(api, own.domainId, ['client.remove_parent'])
  expect(orphans?.attributes).toEqual({ ids: [client.id], parent_group_id: group.id })
  await expect(api.database.transaction((tx) => lockGroupFor(tx, domainKey, group.id))).rejects.toMatchObject({
    kind: 'unprocessable',
  })
})

test('a disabled, a foreign and an invalid group are unprocessable as a parent', async () => {
  const [one] = nodes
  const [open, closed] = [await one.make('open'), await one.make('closed', undefined, { status: 'disabled' })]
  const foreign = await groupsOf(await newTenant(api)).make('foreign')
  const domainKey = await domainKeyOf(tenant)
  const lock = (id: string) => api.database.transaction((tx) => lockGroupFor(tx, domainKey, id))
  expect(await lock(open.id)).toMatchObject({ type: 'group', id: open.id, parentGroupKey: null })
  for (const id of [closed.id, foreign.id, 'nonsense'])
    await expect(lock(id)).rejects.toMatchObject({ kind: 'unprocessable' })
})

async function domainKeyOf({ domainId }: Tenant): Promise<number> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${domainId}::uuid`.execute(
    api.database.db,
  )
  return (rows[0] as { key: number }).key
}
