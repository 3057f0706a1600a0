// Totals by short parts of names and by tags are the same where names, tags and groups are kept in memory (contract 2.4, decision 58)
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { contains, shortNamePattern } from '#api/identity/index.ts'
import { sql } from '#core/sql.ts'
import { createKeptLabels } from '../../api/identity/access/kept-labels.ts'
import type { KeptLabels, LabelFilter } from '../../api/identity/access/kept-labels.ts'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'

let api: TestApi
let owner: TestUser
const domain = { id: '', key: 0 }
let ids: string[]

beforeAll(async () => {
  api = await startTestApi()
  owner = await api.newUser()
  domain.id = (await owner.call('POST', '/domains', { name: 'labels', alias: 'labels' })).json<{ id: string }>().id
  const clients = Array.from({ length: 60 }, (_, index) => ({
    name: ['Kiln 7a', 'pump 7A', 'İstanbul', 'a_b', '100 %', 'ünit\\7'][index % 6],
    tags: [`kind${index % 3}`, 'all'],
    status: index % 10 === 0 ? 'disabled' : 'enabled',
  }))
  const created = await owner.call('POST', `/${domain.id}/clients/bulk`, clients)
  ids = created.json<{ clients: { id: string }[] }>().clients.map(({ id }) => id)
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${domain.id}`.execute(api.database.db)
  domain.key = rows[0]?.key ?? 0
})
afterAll(() => api[Symbol.asyncDispose]())

/**
 * Told of changes as the policy is, but for resets: this process tells of its own changes itself, and on a machine that is held up what is
 * compared would be gone.
 */
function tell(labels: KeptLabels): void {
  api.api.identity.journal.listen({ forget: (keys) => labels.forget(keys), clear: () => undefined })
}

async function keep(
  options: { minRows?: number; maxBytes?: number; isFresh?: () => boolean } = {},
): Promise<KeptLabels> {
  const labels = createKeptLabels({ db: api.database.db, isFresh: () => true, minRows: 1, ...options })
  tell(labels)
  await labels.prepare('client', [domain.key])
  return labels
}

async function counted(name: string | undefined, tags: readonly string[], status?: string): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*)::int AS total FROM clients c
    WHERE domain_key = ${domain.key} AND ${name === undefined ? sql`true` : contains('c.name', name)} AND tags @> ${tags}::text[]
      AND (${status ?? null}::text IS NULL OR status = ${status ?? null})`.execute(api.database.db)
  return rows[0]?.total ?? -1
}

async function countOf(labels: KeptLabels, filter: LabelFilter): Promise<number | undefined> {
  return (await labels.find('client', domain.key, filter))?.total
}

const PARTS = ['7a', '7A', 'k', 'I', 'i', 'ki', '_', '%', '\\7', ' ', '\\', ']', '^', '-', 'zz']

async function expectSame(labels: KeptLabels) {
  for (const part of [undefined, ...PARTS]) {
    for (const tags of [[], ['kind1'], ['kind2', 'all'], ['unknown']]) {
      for (const status of [undefined, 'enabled', 'disabled']) {
        const name = part === undefined ? undefined : shortNamePattern(part)
        const filter = { tags, ...(name === undefined ? {} : { name }), ...(status === undefined ? {} : { status }) }
        const total = await countOf(labels, filter)
        expect(total, JSON.stringify({ part, tags, status })).toBe(await counted(part, tags, status))
      }
    }
  }
}

describe('names and tags that are kept', () => {
  test('count as the database does, whatever letters are asked for', async () => {
    const labels = await keep()
    await expectSame(labels)
  })

  test('count what changed as soon as it is answered: created, renamed, tagged, disabled and deleted', async () => {
    const labels = await keep()
    const at = `/${domain.id}/clients`
    expect((await owner.call('POST', at, { name: 'kiln 8a', tags: ['kind1'] })).status).toBe(201)
    await expectSame(labels)
    expect((await owner.call('PATCH', `${at}/${ids[1]}`, { name: 'another ki' })).status).toBe(200)
    expect((await owner.call('PATCH', `${at}/${ids[2]}/tags`, { tags: ['kind1', 'all'] })).status).toBe(200)
    await expectSame(labels)
    expect((await owner.call('POST', `${at}/${ids[3]}/disable`)).status).toBe(200)
    expect((await owner.call('DELETE', `${at}/${ids[4]}`)).status).toBe(200)
    await expectSame(labels)
  })

  test('count what changed while they were read', async () => {
    const labels = createKeptLabels({ db: api.database.db, isFresh: () => true, minRows: 1 })
    tell(labels)
    const reading = labels.prepare('client', [domain.key])
    const creating = owner.call('POST', `/${domain.id}/clients`, { name: 'meanwhile 7a', tags: ['kind2'] })
    await Promise.all([reading, creating])
    await expectSame(labels)
  })

  test('say which entities lie in groups, also after some were put into one, taken out and lost theirs', async () => {
    const labels = await keep()
    const [inOne, inOther, moved] = [ids.slice(5, 20), ids.slice(20, 30), ids.slice(8, 12)]
    const groups = await Promise.all(
      ['one', 'other'].map(async (name) => {
        const created = await owner.call('POST', `/${domain.id}/groups`, { name })
        return created.json<{ id: string }>().id
      }),
    )
    const keysOf = async (condition: string, values: unknown[]) => {
      const { rows } = await api.database.pool.query<{ key: number }>(
        `SELECT c.key FROM clients c LEFT JOIN groups g ON g.key = c.parent_group_key
          WHERE c.domain_key = $1 AND ${condition} ORDER BY c.key`,
        [domain.key, ...values],
      )
      return rows.map(({ key }) => key)
    }
    const put = async (id: string, group: string) =>
      expect((await owner.call('POST', `/${domain.id}/clients/${id}/parent`, { parent_group_id: group })).status).toBe(
        200,
      )
    const [alone = 0] = await keysOf('c.id = $2', [ids[40]])
    const found = await api.database.pool.query<{ key: number }>(
      'SELECT key FROM groups WHERE id = ANY ($1) ORDER BY key',
      [groups],
    )
    const expectFound = async () => {
      for (const group of found.rows.map(({ key }) => key)) {
        const within = { groups: new Set([group]), keys: new Set([alone]) }
        const bounds = { most: 100, within: async () => within }
        const { total, keys = [] } = (await labels.find('client', domain.key, { tags: ['all'] }, bounds)) ?? {}
        const wanted = await keysOf(`c.tags @> '{all}' AND (g.key = $2 OR c.key = $3)`, [group, alone])
        expect(keys.toSorted((left, right) => left - right)).toEqual(wanted)
        expect(total).toBe(wanted.length)
      }
    }
    for (const id of inOne) await put(id, groups[0] ?? '')
    for (const id of inOther) await put(id, groups[1] ?? '')
    await expectFound()
    const takeOut = async (id: string) =>
      expect((await owner.call('DELETE', `/${domain.id}/clients/${id}/parent`)).status).toBe(204)
    for (const id of moved) await takeOut(id)
    await expectFound()
    for (const id of moved) await put(id, groups[1] ?? '')
    await expectFound()
    expect((await owner.call('DELETE', `/${domain.id}/groups/${groups[1]}`)).status).toBe(204)
    await expectFound()
  })

  test('are asked only while changes of other processes are known, and not after a gap', async () => {
    let isFresh = true
    const labels = await keep({ isFresh: () => isFresh })
    isFresh = false
    expect(await countOf(labels, { tags: [] })).toBeUndefined()
    isFresh = true
    expect(await countOf(labels, { tags: [] })).toBeGreaterThan(0)
    labels.clear()
    expect(await countOf(labels, { tags: [] })).toBeUndefined()
    // Nobody waits a minute for what was kept already.
    await labels.prepare('client', [domain.key])
    expect(await countOf(labels, { tags: [] })).toBeGreaterThan(0)
  })

  test('are of large domains alone, within a bound of bytes', async () => {
    const few = await keep({ minRows: 10_000 })
    expect(await countOf(few, { tags: [] })).toBeUndefined()
    const tight = await keep({ maxBytes: 1000 })
    expect(await countOf(tight, { tags: [] })).toBeUndefined()
  })
})
