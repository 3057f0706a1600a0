/**
 * Visibility of journal records. Listings and events use the same rule: an administrator of the domain sees all
 * records. Other callers see records of the domain, and records of clients, channels and groups that they may read.
 * Changes of roles contain members, so they require `view_role_users` instead of `read` (contract 2.5).
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { DomainAccess, DomainAction, EntityFacts } from '../access/index.ts'
import { MANAGED } from './managed.ts'

export type DeviceType = EntityFacts['type']
export const DEVICE_TYPES = ['client', 'channel', 'group'] as const satisfies readonly DeviceType[]

/** A connection is recorded for both ends. */
const CONNECTION_OPERATIONS = ['channel.connect', 'channel.disconnect']

export function familyOf(operation: string): string {
  return operation.split('.', 1)[0] ?? ''
}

export const isDeviceType = (family: string): family is DeviceType =>
  (DEVICE_TYPES as readonly string[]).includes(family)

const isAboutRoles = (operation: string) => operation.includes('.role.')

/** True when the caller may read every client, channel and group of the domain. */
export function readsEverything(domain: DomainAccess): boolean {
  return domain.isAdmin || DEVICE_TYPES.every((type) => domain.can(`${type}_read`))
}

/**
 * The families of operations that concern no client, channel or group, with the action on the domain that shows their records. Of a
 * family that is missing, only administrators of the domain see the records.
 */
export const FAMILIES: ReadonlyMap<string, DomainAction> = new Map<string, DomainAction>([
  ['domain', 'read'],
  ['mqtt', 'client_read'],
  ['command', 'client_read'],
  ['invitation', 'view_role_users'],
  ['module', 'task_read'],
  ['consumer', 'consumer_read'],
  // Its records contain the state itself, which not everyone who reads a client may read.
  ['client_state', 'client_state_read'],
  ['rule', 'rule_read'],
  ['alarm', 'alarm_read'],
  ['maintenance_window', 'rule_read'],
  ...Object.entries(MANAGED).map(([family, { action }]) => [family, action] as const),
])

/** True when the caller may see records of a family that concerns no client, channel or group. */
function seesFamily(domain: DomainAccess, family: string): boolean {
  const action = FAMILIES.get(family)
  return action !== undefined && domain.can(action)
}

/**
 * Condition: the caller may see the record without a check of its entities. `alias` is the journal in the query.
 * Callers with the same `name` have the same condition.
 */
export function seenInDomain(domain: DomainAccess, alias: string): { where: Sql<boolean>; name: string } {
  if (domain.isAdmin) return { where: sql<boolean>`true`, name: 'all' }
  const operation = sql.ref(`${alias}.operation`)
  const plain = [
    ...DEVICE_TYPES.filter((type) => domain.can(`${type}_read`)),
    ...[...FAMILIES.keys()].filter((family) => seesFamily(domain, family)),
  ]
  const withRoles = [
    ...DEVICE_TYPES.filter((type) => domain.can(`${type}_view_role_users`)),
    ...(domain.can('view_role_users') ? ['domain'] : []),
  ]
  const where = sql<boolean>`split_part(${operation}, '.', 1) = ANY (
    CASE WHEN ${operation} LIKE '%.role.%' THEN ${withRoles}::text[] ELSE ${plain}::text[] END)`
  return { where, name: JSON.stringify([plain, withRoles]) }
}

/** Condition: the record concerns an entity of this type. The listing of one entity uses it. */
export function aboutType(
  type: DeviceType,
  { seesRoles, seesState }: { seesRoles: boolean; seesState: boolean },
  alias: string,
): Sql<boolean> {
  const operation = sql.ref(`${alias}.operation`)
  const roles = seesRoles ? sql`` : sql` AND ${operation} NOT LIKE '%.role.%'`
  const own = sql<boolean>`(${operation} LIKE ${`${type}.%`}${roles})`
  return type === 'client'
    ? sql<boolean>`(${own} OR ${operation} = ANY (${CONNECTION_OPERATIONS}::text[]) OR ${operation} LIKE 'mqtt.%' OR ${operation} LIKE 'command.%'${seesState ? sql` OR ${operation} LIKE 'client_state.%'` : sql``})`
    : own
}

export type SeenEntity = { type: DeviceType; key: number; id: string }

/** Returns the existing and deleted entities on which the caller may perform the action, with one statement. */
export async function findReachable(
  db: Queryable,
  domain: DomainAccess,
  keys: readonly number[],
  action: 'read' | 'view_role_users',
): Promise<SeenEntity[]> {
  const parts = DEVICE_TYPES.flatMap((type) => [
    sql`SELECT ${type}::text AS type, e.key, e.id FROM ${sql.table(`${type}s`)} e
         WHERE e.key = ANY (${keys}::bigint[]) AND e.domain_key = ${domain.domainKey} AND ${domain.reachable(type, action, 'e', 'row')}`,
    sql`SELECT e.type, e.key, e.id FROM removed_entities e
         WHERE e.key = ANY (${keys}::bigint[]) AND e.domain_key = ${domain.domainKey} AND e.type = ${type}
           AND ${domain.reachable(type, action, 'e', 'row')}`,
  ])
  const { rows } = await sql<SeenEntity>`${sql.join(parts, sql` UNION ALL `)}`.execute(db)
  return rows
}

/** The visible part of a record: nothing, all of it, or only these ids of clients, channels and groups. */
export type JournalVisibility = 'none' | 'all' | { ids: ReadonlySet<string> }

type SightedRecord = { operation: string; entityKeys: readonly number[] }

export async function visibilityOf(
  db: Queryable,
  domain: DomainAccess,
  record: SightedRecord,
): Promise<JournalVisibility> {
  const [visibility = 'none'] = await visibilitiesOf(db, domain, [record])
  return visibility
}

/** The visible part of each record, with at most one statement for each of both actions. */
export async function visibilitiesOf(
  db: Queryable,
  domain: DomainAccess,
  records: readonly SightedRecord[],
): Promise<JournalVisibility[]> {
  const inDomain = records.map((record) => visibilityInDomain(domain, record))
  const found = { read: new Map<number, SeenEntity>(), view_role_users: new Map<number, SeenEntity>() }
  for (const action of ['read', 'view_role_users'] as const) {
    const keys = new Set(
      records.flatMap(({ operation, entityKeys }, at) =>
        inDomain[at] === undefined && actionFor(operation) === action ? entityKeys : [],
      ),
    )
    const reachable = keys.size === 0 ? [] : await findReachable(db, domain, [...keys], action)
    for (const entity of reachable) found[action].set(entity.key, entity)
  }
  return records.map(({ operation, entityKeys }, at) => {
    const known = inDomain[at]
    if (known !== undefined) return known
    const seen = entityKeys.flatMap((key) => found[actionFor(operation)].get(key) ?? [])
    const isSubject = ({ type }: SeenEntity) =>
      type === familyOf(operation) || (type === 'client' && CONNECTION_OPERATIONS.includes(operation))
    return seen.some(isSubject) ? { ids: new Set(seen.map(({ id }) => id)) } : 'none'
  })
}

const actionFor = (operation: string) => (isAboutRoles(operation) ? 'view_role_users' : 'read')

/** Undefined when it depends on the entities of the record. */
function visibilityInDomain(domain: DomainAccess, { operation }: SightedRecord): 'none' | 'all' | undefined {
  if (domain.isAdmin) return 'all'
  const family = familyOf(operation)
  const action = actionFor(operation)
  if (!isDeviceType(family)) {
    if (action === 'view_role_users' && !domain.can('view_role_users')) return 'none'
    return seesFamily(domain, family) ? 'all' : 'none'
  }
  return DEVICE_TYPES.every((type) => domain.can(`${type}_${action}`)) ? 'all' : undefined
}

/** Lists of ids in a record. Lists of users belong to changes of roles and are kept. */
const ID_LIST = /^(|client_|channel_|group_|child_|children_|child_group_|children_group_)ids$/

/** Returns the attributes with lists of ids reduced to these. */
export function narrowIds(
  attributes: Readonly<Record<string, unknown>>,
  ids: ReadonlySet<string>,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [
      name,
      ID_LIST.test(name) && Array.isArray(value) ? value.filter((id) => ids.has(String(id))) : value,
    ]),
  )
}
