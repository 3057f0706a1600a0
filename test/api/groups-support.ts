/** What the tests of groups share. */
import { sql } from '#core/sql.ts'
import type { TestApi, TestResponse } from '../harness/api.ts'
import type { Page, Tenant } from './support.ts'

export type Group = {
  id: string
  domain_id: string
  parent_id?: string
  name: string
  description?: string
  tags: string[]
  metadata: Record<string, unknown>
  level: number
  path: string
  children?: Group[]
  status: string
  created_by: string
  created_at: string
  updated_at: string
  updated_by?: string
  access_type?: string
  role_id?: string
  role_name?: string
}
export type GroupPage = Page<'groups', Group>

/** The groups of one tenant: short names for what is asked of them. */
export type Groups = {
  call(method: string, suffix: string, body?: unknown): Promise<TestResponse>
  /** Creates a group, below a parent or as a root. */
  make(name: string, parent?: Group, fields?: Record<string, unknown>): Promise<Group>
  view(id: string): Promise<Group>
  /** The names of a listing's groups, in its order. */
  names(suffix: string): Promise<string[]>
}

export function groupsOf(tenant: Pick<Tenant, 'call' | 'domainId'>): Groups {
  const call = (method: string, suffix: string, body?: unknown) =>
    tenant.call(method, `/${tenant.domainId}/groups${suffix}`, body)
  return {
    call,
    async make(name, parent, fields = {}) {
      const created = await call('POST', '', {
        name,
        ...(parent === undefined ? {} : { parent_id: parent.id }),
        ...fields,
      })
      if (created.status !== 201) throw new Error(`expected 201, got ${created.status}: ${created.text}`)
      return created.json<Group>()
    },
    async view(id) {
      return (await call('GET', `/${id}`)).json<Group>()
    },
    async names(suffix) {
      const listed = await call('GET', suffix)
      if (listed.status !== 200) throw new Error(`expected 200, got ${listed.status}: ${listed.text}`)
      return listed.json<GroupPage>().groups.map((group) => group.name)
    },
  }
}

/** A chain of groups, the root first. */
export async function chain(groups: Groups, length: number, prefix = 'level'): Promise<Group[]> {
  const made: Group[] = []
  for (let level = 1; level <= length; level++) made.push(await groups.make(`${prefix} ${level}`, made.at(-1)))
  return made
}

/** A nested group as its name and what is below it. */
export type Outline = [name: string, ...children: Outline[]]
export function outline(groups: readonly Group[]): Outline[] {
  return groups.map((group) => [group.name, ...outline(group.children ?? [])])
}

/** What is wrong with the stored hierarchy of a domain; nothing, when it is what the parents say. */
export async function faultsOf(api: TestApi, domainId: string): Promise<string[]> {
  const { rows } = await sql<{ fault: string }>`
    WITH RECURSIVE own AS (
      SELECT key, parent_key FROM groups WHERE domain_key = (SELECT key FROM domains WHERE id = ${domainId}::uuid)),
    -- 21 steps at the most: a cycle would never end.
    meant (ancestor_key, descendant_key, depth) AS (
      SELECT key, key, 0 FROM own
      UNION ALL
      SELECT own.parent_key, meant.descendant_key, meant.depth + 1
        FROM meant JOIN own ON own.key = meant.ancestor_key WHERE own.parent_key IS NOT NULL AND meant.depth < 21),
    stored AS (SELECT c.* FROM group_closure c JOIN own ON own.key = c.descendant_key)
    SELECT 'missing' AS fault FROM (SELECT * FROM meant EXCEPT SELECT * FROM stored) lost
    UNION ALL SELECT 'too much' FROM (SELECT * FROM stored EXCEPT SELECT * FROM meant) extra
    UNION ALL SELECT 'cycle' FROM meant WHERE depth > 0 AND ancestor_key = descendant_key
    UNION ALL SELECT 'too deep' FROM meant WHERE depth > 19`.execute(api.database.db)
  return [...new Set(rows.map((row) => row.fault))]
}

/** What the journal says of a domain since a moment, oldest first. */
export async function journalOf(
  api: TestApi,
  domainId: string,
  operations: readonly string[],
): Promise<{ operation: string; attributes: Record<string, unknown>; keys: number[] }[]> {
  const { rows } = await sql<{
    operation: string
    attributes: Record<string, unknown>
    entity_keys: (string | number)[]
  }>`
    SELECT operation, attributes, entity_keys FROM journal
     WHERE domain_key = (SELECT key FROM domains WHERE id = ${domainId}::uuid) AND operation = ANY (${operations}) ORDER BY xid, seq`.execute(
    api.database.db,
  )
  return rows.map(({ operation, attributes, entity_keys: keys }) => ({ operation, attributes, keys: keys.map(Number) }))
}
