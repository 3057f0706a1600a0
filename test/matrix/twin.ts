/** A tenant with the ids of another one. Whatever it has is marked, and every row that it holds can be read. */
import type { Queryable } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { EVERYTHING, roleIdOf } from './entities.ts'
import type { Thing, createEntities } from './entities.ts'
import type { Requests } from './requests.ts'
import type { Furniture } from './world.ts'

export type Twin = {
  readonly owner: { readonly id: string; readonly token: string }
  readonly domain: Thing
  readonly parent: Thing
  /** What the furniture names, with the same ids, in this domain. */
  mirror(all: readonly Furniture[]): Promise<Furniture[]>
  /** Every row of the database that belongs to the domain, as text. */
  held(): Promise<ReadonlySet<string>>
  /** Whether a text contains something of the tenant's. */
  isShownIn(text: string): boolean
}

type Options = {
  db: Queryable
  entities: ReturnType<typeof createEntities>
  requests: Requests
  of: { top: Thing; parent: Thing }
  members: readonly { key: number }[]
}

/** In each name of the tenant, its entities and its owner. */
const MARK = 'foreign-'
/** The product writes them by itself, or on removals by the test: counts, usage, samples, leases. */
const WRITTEN_BY_ITSELF: ReadonlySet<string> = new Set([
  'domain_minutes',
  'domain_samples',
  'domain_stored_records',
  'domain_usage',
  'entity_counts',
  'removed_entities',
  'workers',
])

export async function createTwin({ db, entities, requests, of, members }: Options): Promise<Twin> {
  const { newThing, insertFurniture, insertGroups, insertRoles, insertGrants } = entities
  const name = `${MARK}owner`
  const secret = `secret-of-${name}`
  const { id: ownerId } = await requests.made<{ id: string }>(undefined, 'POST', '/users', {
    first_name: name,
    last_name: name,
    email: `${name}@example.com`,
    credentials: { username: name, secret },
  })
  const { access_token: token } = await requests.logIn(name, secret)
  const { id } = await requests.made<{ id: string }>(token, 'POST', '/domains', {
    name: `${MARK}plant`,
    route: 'theirs',
  })
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains WHERE id = ${id}`.execute(db)
  const { key } = rows[0] as { key: number }
  const domain: Thing = { type: 'domain', id, key }
  const [top, parent, role] = [newThing('group', of.top.id), newThing('group', of.parent.id), newThing('domain')]
  const place = { ...domain, top, parent, called: `${MARK}thing` }
  await insertGroups(
    key,
    [
      { ...top, above: [] },
      { ...parent, above: [top.key] },
    ],
    place.called,
  )
  await insertRoles(key, [{ thing: domain, role, actions: [] }])
  await insertGrants(
    key,
    members.map((user) => ({ user: user.key, thing: domain, roleKey: role.key })),
  )
  const held = await holdings(db, key)

  return {
    owner: { id: ownerId, token },
    domain,
    parent,
    async mirror(all) {
      const again = (thing: Thing) => newThing(thing.type, thing.id)
      const mirrored = all.map((at) => ({
        named: EVERYTHING,
        at: {
          domain,
          parent,
          client: again(at.client),
          channel: again(at.channel),
          group: again(at.group),
          child: again(at.child),
          other: again(at.other),
          roles: { domain: '', client: '', channel: '', group: '' },
        },
      }))
      await insertFurniture(place, mirrored, members[0]?.key ?? 0)
      return mirrored.map(({ at }) => at)
    },
    held,
    isShownIn: (text) => text.includes(MARK) || text.includes(id) || text.includes(ownerId),
  }
}

/** Every table that names a domain, and what hangs on its groups and channels. */
async function holdings(db: Queryable, domainKey: number): Promise<() => Promise<ReadonlySet<string>>> {
  const { rows } = await sql<{ name: string }>`
    SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'domain_key'
      WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1`.execute(
    db,
  )
  const tables = rows.map(({ name }) => name).filter((name) => !WRITTEN_BY_ITSELF.has(name))
  const parts = [
    sql`SELECT 'domains ' || to_jsonb(d)::text AS row FROM domains d WHERE d.key = ${domainKey}`,
    ...tables.map(
      (table) =>
        sql`SELECT ${`${table} `}::text || to_jsonb(t)::text FROM ${sql.table(table)} t WHERE t.domain_key = ${domainKey}`,
    ),
    sql`SELECT 'group_closure ' || to_jsonb(a)::text FROM group_closure a JOIN groups g ON g.key = a.descendant_key
      WHERE g.domain_key = ${domainKey}`,
    sql`SELECT 'payloads ' || to_jsonb(p)::text FROM payloads p JOIN channels h ON h.key = p.channel_key
      WHERE h.domain_key = ${domainKey}`,
  ]
  return async () => {
    const held = await sql<{ row: string }>`${sql.join(parts, sql` UNION ALL `)}`.execute(db)
    return new Set(held.rows.map(({ row }) => row))
  }
}

/** Ids that nobody has, in the place of each thing that a call names. */
export function nobodys(): Furniture {
  const unknown = (type: Thing['type']): Thing => ({ type, key: 0, id: newId() })
  const other = unknown('group')
  return {
    domain: unknown('domain'),
    parent: other,
    client: unknown('client'),
    channel: unknown('channel'),
    group: unknown('group'),
    child: unknown('group'),
    other,
    roles: {
      domain: roleIdOf('domain', newId()),
      client: roleIdOf('client', newId()),
      channel: roleIdOf('channel', newId()),
      group: roleIdOf('group', newId()),
    },
    profile: newId(),
  }
}
