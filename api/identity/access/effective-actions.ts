/**
 * The actions that a user has on an entity, from caches or else with two statements. The caches hold separately: the
 * user in a domain, the ancestors of a group, and the roles of a user on one entity. So memory grows with the entities
 * that are checked, not with the number of grants (mechanisms section 4).
 */
import type { Queryable } from '#core/database/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { OWN_ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ANY_CHANGE } from './any-change.ts'
import { INHERITED } from './inheritance.ts'
import type { Provider } from './inheritance.ts'
import { directActions, groupAncestors, resolveDomainGrants } from './domain-grants.ts'
import type { DomainGrants } from './domain-grants.ts'

type Listed = Exclude<EntityType, 'domain'>

/** The attributes of an entity that the policy requires: type, key and parent group. */
export type EntityFacts = { type: Listed; key: number; parentGroupKey: number | null }

type Given = Readonly<Record<Listed, ReadonlySet<string>>>

/** A user in a domain, with the actions that their roles on the domain and on groups grant. */
export type Caller = {
  readonly domainGrants: DomainGrants
  /** Actions from roles of the domain, on every entity in it. */
  readonly byDomain: Given
  /**
   * Actions from roles of a group and its ancestors, on the members of the group, with the ancestors that they were
   * computed from.
   */
  readonly byGroup: Map<number, { ancestry: readonly number[]; given: Given }>
}

export type EffectiveActions = {
  /** Undefined when the domain does not exist. */
  resolve(userKey: number, domainId: string): Promise<Caller | undefined>
  allows(caller: Caller, entity: EntityFacts, action: string): Promise<boolean>
  /** Returns the cached answer without waiting. Undefined means that the caller must call `allows`. */
  allowsNow(caller: Caller, entity: EntityFacts, action: string): boolean | undefined
  /** Returns every action of the caller on the entity, from any role. */
  actionsOn(caller: Caller, entity: EntityFacts): Promise<ReadonlySet<string>>
  invalidate(entityKeys: readonly number[]): void
  invalidateAll(): void
}

/** Pairs of caller and domain; some hundred bytes each. */
const MAX_CALLERS = 50_000
/** Pairs of caller and entity. */
const MAX_DIRECT = 100_000
const MAX_ANCESTRIES = 100_000
/** Groups per caller whose granted actions are cached. */
const MAX_GROUPS_PER_CALLER = 1000

const NOTHING: ReadonlySet<string> = new Set()
const LISTED = Object.keys(OWN_ACTIONS) as Listed[]

export function createEffectiveActions({ db, isFresh }: { db: Queryable; isFresh: () => boolean }): EffectiveActions {
  const callers: FactCache<Caller | 'none'> = createFactCache({ maxEntries: MAX_CALLERS, isFresh })
  const directs: FactCache<ReadonlySet<string>> = createFactCache({ maxEntries: MAX_DIRECT, isFresh })
  const ancestries: FactCache<readonly number[]> = createFactCache({ maxEntries: MAX_ANCESTRIES, isFresh })

  const directKey = ({ domainGrants }: Caller, entity: EntityFacts) => `${domainGrants.userKey}/${entity.key}`

  function findDirect(caller: Caller, entity: EntityFacts): Promise<ReadonlySet<string>> {
    const { userKey, domainKey } = caller.domainGrants
    return directs.get(directKey(caller, entity), async () => {
      const { actions, roleKeys } = await directActions(db, userKey, domainKey, entity.type, entity.key)
      return { value: actions.size === 0 ? NOTHING : actions, dependsOn: [userKey, entity.key, ...roleKeys] }
    })
  }

  function findAncestry(groupKey: number): Promise<readonly number[]> {
    return ancestries.get(String(groupKey), async () => {
      const ancestry = await groupAncestors(db, groupKey)
      return { value: ancestry, dependsOn: [groupKey, ...ancestry] }
    })
  }

  /**
   * Returns the actions that the ancestors grant. Empty without roles on groups, undefined when the ancestors are not
   * cached.
   */
  function aboveNow(caller: Caller, { type, parentGroupKey }: EntityFacts): ReadonlySet<string> | undefined {
    if (parentGroupKey === null || caller.domainGrants.groupActions.size === 0) return NOTHING
    const ancestry = ancestries.peek(String(parentGroupKey))
    return ancestry === undefined ? undefined : givenBelow(caller, parentGroupKey, ancestry)[type]
  }

  async function findAbove(caller: Caller, entity: EntityFacts): Promise<ReadonlySet<string>> {
    const { type, parentGroupKey } = entity
    if (parentGroupKey === null || caller.domainGrants.groupActions.size === 0) return NOTHING
    return givenBelow(caller, parentGroupKey, await findAncestry(parentGroupKey))[type]
  }

  return {
    async resolve(userKey, domainId) {
      const caller = await callers.get(`${userKey}/${domainId}`, async () => {
        const domainGrants = await resolveDomainGrants(db, userKey, domainId)
        return domainGrants === undefined
          ? { value: 'none', dependsOn: [ANY_CHANGE] }
          : { value: callerOf(domainGrants), dependsOn: domainGrants.dependsOn }
      })
      return caller === 'none' ? undefined : caller
    },
    allowsNow(caller, entity, action) {
      if (caller.byDomain[entity.type].has(action)) return true
      const above = aboveNow(caller, entity)
      if (above?.has(action) === true) return true
      const direct = directs.peek(directKey(caller, entity))
      if (direct?.has(action) === true) return true
      return above === undefined || direct === undefined ? undefined : false
    },
    async allows(caller, entity, action) {
      if (caller.byDomain[entity.type].has(action)) return true
      // The statements run one after the other: an action that a group grants needs no second statement.
      return (await findAbove(caller, entity)).has(action) || (await findDirect(caller, entity)).has(action)
    },
    async actionsOn(caller, entity) {
      const [above, direct] = await Promise.all([findAbove(caller, entity), findDirect(caller, entity)])
      return new Set([...direct, ...above, ...caller.byDomain[entity.type]])
    },
    invalidate(entityKeys) {
      for (const cache of [callers, directs, ancestries]) cache.invalidate(entityKeys)
    },
    invalidateAll() {
      for (const cache of [callers, directs, ancestries]) cache.invalidateAll()
    },
  }
}

function callerOf(domainGrants: DomainGrants): Caller {
  const byDomain = forEachListed((type) => inherit('domain', type, domainGrants.domainActions))
  return { domainGrants, byDomain, byGroup: new Map() }
}

/** Returns the actions on members of the group that roles on the group and its ancestors grant. */
function givenBelow(caller: Caller, groupKey: number, ancestry: readonly number[]): Given {
  const known = caller.byGroup.get(groupKey)
  // A moved group has other ancestors, so the cached actions are stale.
  if (known?.ancestry === ancestry) return known.given
  const { groupActions } = caller.domainGrants
  const given = forEachListed((type) => {
    const actions = ancestry.flatMap((key, depth) => {
      const granted = groupActions.get(key)
      return granted === undefined ? [] : [...inherit(depth === 0 ? 'parent' : 'ancestor', type, granted)]
    })
    return actions.length === 0 ? NOTHING : new Set(actions)
  })
  if (caller.byGroup.size >= MAX_GROUPS_PER_CALLER) caller.byGroup.clear()
  caller.byGroup.set(groupKey, { ancestry, given })
  return given
}

function inherit(provider: Provider, type: Listed, granted: ReadonlySet<string>): ReadonlySet<string> {
  const actions = [...INHERITED[provider][type]].filter(([, needed]) => granted.has(needed)).map(([action]) => action)
  return actions.length === 0 ? NOTHING : new Set(actions)
}

function forEachListed(work: (type: Listed) => ReadonlySet<string>): Given {
  return Object.fromEntries(LISTED.map((type) => [type, work(type)])) as Record<Listed, ReadonlySet<string>>
}
