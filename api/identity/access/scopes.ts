/** What a personal access token may do: its scopes as the wire names them (contract section 6), and the questions asked of them. */

/** `tasks` and `workers` stand beside the types of the contract: without them no such token could use the task manager. */
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
  /** Undefined: whatever the domain. */
  domainKey: number | undefined
  /** 'any', or one entity; a user is asked for by id, everything else by key. */
  entity: 'any' | { key: number; id: string }
}

export type ScopeSet = {
  /** Whether any scope concerns the domain or something in it. */
  reaches(domainKey: number): boolean
  /** The operation on this one entity. */
  covers(type: ScopeEntityType, operation: ScopeOperation, domainKey: number, entityKey: number): boolean
  /** The operation on every entity of the type, of this domain or (undefined) of all. */
  coversAll(type: ScopeEntityType, operation: ScopeOperation, domainKey: number | undefined): boolean
  /** The operation on something of the type, wherever it is. */
  coversSome(type: ScopeEntityType, operation: ScopeOperation): boolean
  /** The operation on the user of this id. */
  coversUser(operation: ScopeOperation, userId: string): boolean
  /** Whether any scope names this entity, whatever the operation. */
  knows(type: ScopeEntityType, domainKey: number, entityKey: number): boolean
  /** Keys of the entities of the domain (undefined: of anywhere) that the operation is for. */
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
