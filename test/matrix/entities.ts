/** Writes entities, roles and members of them in bulk, as the product would have written them one by one. */
import { ACTIONS } from '#api/identity/index.ts'
import type { EntityType } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { sql } from '#core/sql.ts'
import { sealSecret } from '../../api/devices/secrets/index.ts'
import type { Furniture, Named, ThingName } from './world.ts'

/** Everything that a call can name. */
export const EVERYTHING: ReadonlySet<Named> = new Set<Named>([
  'client',
  'channel',
  'group',
  'child',
  'other',
  'role of domain',
  'role of client',
  'role of channel',
  'role of group',
])

export type Thing = { type: EntityType; key: number; id: string }
/** A domain, its groups in which everything else is put, and the name of its entities. */
type Place = Thing & { top: Thing; parent: Thing; called?: string }

const TYPES = ['domain', 'client', 'channel', 'group'] as const
/** Above whatever the sequence gives in a test. */
const FIRST_KEY = 1_000_000_000

export const roleIdOf = (type: EntityType, id: string) => `${type}_${id.replaceAll('-', '').slice(0, 22)}`

export function createEntities(db: Queryable, keyring: Keyring) {
  let nextKey = FIRST_KEY
  const newThing = (type: EntityType, id = newId()): Thing => ({ type, key: nextKey++, id })

  async function insertGroups(
    domainKey: number,
    groups: readonly (Thing & { above: readonly number[] })[],
    name = 'group',
  ) {
    if (groups.length === 0) return
    await sql`INSERT INTO groups (domain_key, key, id, parent_key, name)
      SELECT ${domainKey}::bigint, g.key, g.id, g.parent_key, ${name}
        FROM jsonb_to_recordset(${JSON.stringify(groups.map(({ key, id, above }) => ({ key, id, parent_key: above[0] ?? null })))}::jsonb)
          AS g(key bigint, id uuid, parent_key bigint)`.execute(db)
    const closure = groups.flatMap(({ key, above }) =>
      [key, ...above].map((ancestor, depth) => ({ ancestor, descendant: key, depth })),
    )
    await sql`INSERT INTO group_closure (ancestor_key, descendant_key, depth) SELECT ancestor, descendant, depth
      FROM jsonb_to_recordset(${JSON.stringify(closure)}::jsonb) AS c(ancestor bigint, descendant bigint, depth smallint)`.execute(
      db,
    )
  }
  async function insertClients(domain: Place, clients: readonly Thing[]) {
    if (clients.length === 0) return
    const rows = clients.map(({ key, id }) => ({
      key,
      id,
      sealed: sealSecret(keyring, domain.key, id, 'secret').toString('hex'),
    }))
    await sql`INSERT INTO clients (domain_key, key, id, parent_group_key, name, secret_mac, secret_sealed)
      SELECT ${domain.key}::bigint, c.key, c.id, ${domain.parent.key}::bigint, ${domain.called ?? ''},
             decode(replace(c.id::text, '-', ''), 'hex'), decode(c.sealed, 'hex')
        FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS c(key bigint, id uuid, sealed text)`.execute(db)
  }
  async function insertChannels(domain: Place, channels: readonly Thing[]) {
    if (channels.length === 0) return
    await sql`INSERT INTO channels (domain_key, key, id, parent_group_key, name)
      SELECT ${domain.key}::bigint, c.key, c.id, ${domain.parent.key}::bigint, ${domain.called ?? ''}
        FROM jsonb_to_recordset(${JSON.stringify(channels)}::jsonb) AS c(key bigint, id uuid)`.execute(db)
  }
  async function insertRoles(
    domainKey: number,
    roles: readonly { thing: Thing; role: Thing; actions: readonly string[] }[],
  ) {
    if (roles.length === 0) return
    const rows = roles.map(({ thing, role, actions }) => ({
      key: role.key,
      id: roleIdOf(thing.type, role.id),
      entity_type: thing.type,
      entity_key: thing.key,
      name: role.id,
      actions: actions.filter((action) => (ACTIONS[thing.type] as readonly string[]).includes(action)),
    }))
    await sql`INSERT INTO roles (domain_key, key, id, entity_type, entity_key, name, actions)
      SELECT ${domainKey}::bigint, r.key, r.id, r.entity_type, r.entity_key, r.name, ARRAY(SELECT jsonb_array_elements_text(r.actions))
        FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
          AS r(key bigint, id text, entity_type text, entity_key bigint, name text, actions jsonb)`.execute(db)
  }
  async function insertGrants(domainKey: number, grants: readonly { user: number; thing: Thing; roleKey: number }[]) {
    if (grants.length === 0) return
    const rows = grants.map(({ user, thing, roleKey }) => ({
      user,
      type: thing.type,
      entity: thing.key,
      role: roleKey,
    }))
    await sql`INSERT INTO grants (domain_key, user_key, entity_type, entity_key, role_key)
      SELECT ${domainKey}::bigint, g.user, g.type, g.entity, g.role
        FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS g("user" bigint, type text, entity bigint, role bigint)
      ON CONFLICT DO NOTHING`.execute(db)
  }

  /** What the furniture names; and in each role of it this member. */
  async function insertFurniture(
    domain: Place,
    furnished: readonly { at: Furniture; named: ReadonlySet<Named> }[],
    member: number,
  ) {
    const all = (name: ThingName) => furnished.flatMap(({ at, named }) => (named.has(name) ? [at[name]] : []))
    const { parent, top } = domain
    const groups = [
      ...[...all('group'), ...all('other')].map((group) => ({ ...group, above: [parent.key, top.key] })),
      ...furnished.flatMap(({ at: { child, group }, named }) =>
        named.has('child') ? [{ ...child, above: [group.key, parent.key, top.key] }] : [],
      ),
    ]
    const roles = furnished.flatMap(({ at, named }) =>
      TYPES.flatMap((type) => {
        const role = newThing(type)
        at.roles[type] = roleIdOf(type, role.id)
        return named.has(`role of ${type}`) ? [{ thing: at[type], role, actions: ['read'] }] : []
      }),
    )
    await insertGroups(domain.key, groups, domain.called)
    await insertClients(domain, all('client'))
    await insertChannels(domain, all('channel'))
    await insertRoles(domain.key, roles)
    await insertGrants(
      domain.key,
      roles.map(({ thing, role }) => ({ user: member, thing, roleKey: role.key })),
    )
  }

  /** Everything of this key and above: what a row was furnished with. */
  async function removeFrom(firstKey: number) {
    await sql`DELETE FROM grants WHERE entity_key >= ${firstKey} OR role_key >= ${firstKey}`.execute(db)
    await sql`DELETE FROM roles WHERE key >= ${firstKey}`.execute(db)
    for (const table of ['clients', 'channels', 'groups'])
      await sql`DELETE FROM ${sql.table(table)} WHERE key >= ${firstKey}`.execute(db)
  }

  return { removeFrom, newThing, insertFurniture, insertGroups, insertRoles, insertGrants }
}
