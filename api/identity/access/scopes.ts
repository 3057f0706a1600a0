/** The scopes of a personal access token with their wire names (contract section 6), and the checks on them. */

/**
 * `tasks`, `workers`, `consumers`, `rules` and `alarms` extend the types of the contract, so that personal access tokens can use the task
 * manager, named consumers, rules and alarms.
 */
export const SCOPE_ENTITY_TYPES = [
  'groups',
  'channels',
  'clients',
  'domains',
  'users',
  'dashboards',
  'messages',
  'tasks',
  'workers',
  'consumers',
  'rules',
  'alarms',
] as const
export type ScopeEntityType = (typeof SCOPE_ENTITY_TYPES)[number]

export const SCOPE_OPERATIONS = [
  'create',
  'read',
  'list',
  'update',
  'delete',
  'share',
  'unshare',
  'publish',
  'subscribe',
] as const
export type ScopeOperation = (typeof SCOPE_OPERATIONS)[number]

export type Scope = {
  type: ScopeEntityType
  operation: ScopeOperation
  /** Undefined covers every domain. */
  domainKey: number | undefined
  /** 'any', or one entity. Users are compared by id, other entities by key. */
  entity: 'any' | { key: number; id: string }
}

export type ScopeSet = {
  /** True when any scope covers the domain or an entity in it. */
  reaches(domainKey: number): boolean
  /** True when the operation on this entity is covered. */
  covers(type: ScopeEntityType, operation: ScopeOperation, domainKey: number, entityKey: number): boolean
  /** True when the operation on every entity of the type is covered, in this domain or (undefined) in all domains. */
  coversAll(type: ScopeEntityType, operation: ScopeOperation, domainKey: number | undefined): boolean
  /** True when the operation on any entity of the type is covered. */
  coversSome(type: ScopeEntityType, operation: ScopeOperation): boolean
  /** True when the operation on the user with this id is covered. */
  coversUser(operation: ScopeOperation, userId: string): boolean
  /** True when any scope covers this entity, with any operation. */
  knows(type: ScopeEntityType, domainKey: number, entityKey: number): boolean
  /** Returns the keys of the entities that the operation covers, in the domain or (undefined) in all domains. */
  keysFor(type: ScopeEntityType, operation: ScopeOperation, domainKey: number | undefined): 'all' | readonly number[]
}

export function createScopeSet(scopes: readonly Scope[]): ScopeSet {
  const byOperation = new Map<string, Scope[]>()
  for (const scope of scopes) {
    const name = `${scope.type}:${scope.operation}`
    const known = byOperation.get(name)
    if (known === undefined) byOperation.set(name, [scope])
    else known.push(scope)
  }
  const of = (type: ScopeEntityType, operation: ScopeOperation) => byOperation.get(`${type}:${operation}`) ?? []
  const isIn = (scope: Scope, domainKey: number | undefined) =>
    scope.domainKey === undefined || scope.domainKey === domainKey
  const isFor = ({ entity }: Scope, entityKey: number) => entity === 'any' || entity.key === entityKey

  return {
    reaches: (domainKey) =>
      scopes.some(
        (scope) =>
          scope.type !== 'users' && isIn(scope, domainKey) && (scope.type !== 'domains' || isFor(scope, domainKey)),
      ),
    covers: (type, operation, domainKey, entityKey) =>
      of(type, operation).some((scope) => isIn(scope, domainKey) && isFor(scope, entityKey)),
    coversAll: (type, operation, domainKey) =>
      of(type, operation).some((scope) => isIn(scope, domainKey) && scope.entity === 'any'),
    coversSome: (type, operation) => of(type, operation).length > 0,
    coversUser: (operation, userId) =>
      of('users', operation).some(({ entity }) => entity === 'any' || entity.id === userId),
    knows: (type, domainKey, entityKey) =>
      scopes.some((scope) => scope.type === type && isIn(scope, domainKey) && isFor(scope, entityKey)),
    keysFor(type, operation, domainKey) {
      const keys = new Set<number>()
      for (const scope of of(type, operation)) {
        if (domainKey !== undefined && !isIn(scope, domainKey)) continue
        if (scope.entity !== 'any') keys.add(scope.entity.key)
        else if (type !== 'domains' || scope.domainKey === undefined) return 'all'
        else keys.add(scope.domainKey)
      }
      return [...keys].toSorted((left, right) => left - right)
    },
  }
}
