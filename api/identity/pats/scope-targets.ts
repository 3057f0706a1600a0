/**
 * Resolves the scopes of a request to rows. The owner must be able to read each entity. Rows contain keys, not ids, so
 * that a token does not cover another entity that later gets the same id.
 */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { AccessPolicy, DomainAccess, ScopeEntityType, ScopeOperation, UserPrincipal } from '../access/index.ts'
import type { NamedEntity, NewScopeRow } from './repository.ts'
import { findNamed, findNamedUsers } from './repository.ts'
import type { NewScope } from './schema.ts'

export type ResolvedScope = NewScopeRow & { domainId: string | null }

const ANY = '*'
const MESSAGE_OPERATIONS: readonly ScopeOperation[] = ['publish', 'subscribe']
/** Entity types that belong to a domain, and their tables. */
const TABLES = {
  clients: { table: 'clients', entity: 'client' },
  channels: { table: 'channels', entity: 'channel' },
  groups: { table: 'groups', entity: 'group' },
  messages: { table: 'channels', entity: 'channel' },
} as const
type InDomain = keyof typeof TABLES

const isInDomain = (type: ScopeEntityType): type is InDomain => Object.hasOwn(TABLES, type)
/** Types whose scopes cover a whole domain: they have no ids in this room. */
const WHOLE_DOMAIN_ONLY: readonly ScopeEntityType[] = ['tasks', 'workers', 'consumers', 'rules', 'alarms']
const NEEDS_DOMAIN: readonly ScopeEntityType[] = ['clients', 'channels', 'groups', ...WHOLE_DOMAIN_ONLY]

type Wanted = { type: ScopeEntityType; operation: ScopeOperation; domainId: string; entityId: string }

/** Throws `malformed`, `forbidden`, `unprocessable` as described in the service. */
export async function resolveScopes(
  { db, access }: { db: Queryable; access: AccessPolicy },
  caller: UserPrincipal,
  scopes: readonly NewScope[],
): Promise<ResolvedScope[]> {
  const wanted = scopes.map(parseScope)
  const domains = new Map<string, DomainAccess>()
  for (const id of new Set(wanted.map((one) => one.domainId).filter((id) => id !== '')))
    domains.set(id, await access.enter(caller, id))
  const found = await findTargets(db, access, caller, wanted, domains)
  return wanted.map((one) => {
    const target = one.entityId === ANY ? undefined : found.get(nameOf(one))
    if (target === undefined && one.entityId !== ANY && one.type !== 'dashboards')
      throw new ServiceError(
        'unprocessable',
        `failed to add scopes: ${one.type} ${one.entityId} does not exist or you have no read on it`,
      )
    return {
      id: newId(),
      type: one.type,
      operation: one.operation,
      domainKey: domains.get(one.domainId)?.domainKey ?? null,
      domainId: one.domainId === '' ? null : one.domainId,
      entityId: one.entityId === ANY ? null : one.entityId,
      entityKey: target?.key ?? null,
    }
  })
}

const nameOf = ({ type, domainId, entityId }: Wanted) => `${type}\n${domainId}\n${entityId}`

/** Runs one statement for each domain and type. */
async function findTargets(
  db: Queryable,
  access: AccessPolicy,
  caller: UserPrincipal,
  wanted: readonly Wanted[],
  domains: ReadonlyMap<string, DomainAccess>,
): Promise<Map<string, NamedEntity>> {
  const found = new Map<string, NamedEntity>()
  const named = wanted.filter((one) => one.entityId !== ANY)
  const groups = Map.groupBy(named, ({ type, domainId }) => `${type}\n${domainId}`)
  for (const group of groups.values()) {
    const [{ type, domainId }] = group as [Wanted]
    const ids = [...new Set(group.map((one) => one.entityId))]
    const domain = domains.get(domainId)
    const entities =
      isInDomain(type) && domain !== undefined
        ? await findNamed(
            db,
            TABLES[type].table,
            domain.domainKey,
            ids,
            domain.reachable(TABLES[type].entity, 'read', 'e'),
          )
        : type === 'users'
          ? await findNamedUsers(db, ids)
          : type === 'domains'
            ? await Promise.all(ids.map(async (id) => ({ key: (await access.enter(caller, id)).domainKey, id })))
            : []
    for (const entity of entities) found.set(nameOf({ ...(group[0] as Wanted), entityId: entity.id }), entity)
  }
  return found
}

function refuse(index: number, field: string, message: string): ServiceError {
  const path = `/scopes/${index}/${field}`
  return new ServiceError('malformed', `${field} ${message}`, { details: [{ path, message }] })
}

function parseScope(scope: NewScope, index: number): Wanted {
  const { entity_type: type, operation, entity_id: entityId } = scope
  const domainId = scope.optional_domain_id || scope.domain_id || ''
  if ((type === 'messages') !== MESSAGE_OPERATIONS.includes(operation))
    throw refuse(index, 'operation', 'must be publish or subscribe for messages and another operation for other types')
  if (entityId !== ANY && !isId(entityId)) throw refuse(index, 'entity_id', 'must be a UUID in lower case or *')
  if (domainId !== '' && !isId(domainId)) throw refuse(index, 'optional_domain_id', 'must be a UUID in lower case')
  if (domainId === '' && (NEEDS_DOMAIN.includes(type) || (type === 'messages' && entityId !== ANY)))
    throw refuse(index, 'optional_domain_id', `is required for ${type}`)
  if (domainId !== '' && type === 'users') throw refuse(index, 'optional_domain_id', 'must be absent for users')
  if (domainId !== '' && type === 'domains' && entityId !== ANY && entityId !== domainId)
    throw refuse(index, 'entity_id', 'must be the domain in optional_domain_id')
  if (entityId !== ANY && WHOLE_DOMAIN_ONLY.includes(type))
    throw refuse(index, 'entity_id', `must be * for ${type}: the scope covers a whole domain`)
  return { type, operation, domainId, entityId }
}
