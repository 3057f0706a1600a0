/**
 * What a user holds on an entity: from memory in the time of a few look-ups, else with two statements. Kept apart are the
 * user in his domain, the groups above a group, and his roles on one entity, so that nothing grows with the number of his
 * grants but what was asked about (mechanisms section 4).
 */
import type { Queryable } from '#core/database/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { OWN_ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ANY_CHANGE } from './any-change.ts'
import { INHERITED } from './inheritance.ts'
import type { Provider } from './inheritance.ts'
import { directActions, groupAncestors, resolveReach } from './reach.ts'
import type { Reach } from './reach.ts'

type Listed = Exclude<EntityType, 'domain'>

/** What the policy must know of an entity to decide about it; the group above it, also of a group. */
export type EntityFacts = { type: Listed; key: number; parentGroupKey: number | null }

type Given = Readonly<Record<Listed, ReadonlySet<string>>>

/** A user in a domain, and what his roles there and on groups give, worked out once as long as they stay as they are. */
export type Caller = {
  readonly reach: Reach
  /** By roles of the domain, on everything in it. */
  readonly byDomain: Given
  /** By roles of a group and of those above it, on what lies in the group; with the ancestry that it was read from. */
  readonly byGroup: Map<number, { ancestry: readonly number[]; given: Given }>
}

export type Holdings = {
  /** Undefined when there is no such domain. */
  resolve(userKey: number, domainId: string): Promise<Caller | undefined>
  holds(caller: Caller, entity: EntityFacts, action: string): Promise<boolean>
  /** The same from memory, without waiting; undefined: ask `holds`. */
  holdsNow(caller: Caller, entity: EntityFacts, action: string): boolean | undefined
  /** Everything that he holds on the entity, by whatever path. */
  actionsOn(caller: Caller, entity: EntityFacts): Promise<ReadonlySet<string>>
  forget(entityKeys: readonly number[]): void
  clear(): void
}

/** Callers times domains; some hundred bytes each. */
const MAX_CALLERS = 50_000
/** Callers times entities that they were asked about. */
const MAX_DIRECT = 100_000
const MAX_ANCESTRIES = 100_000
/** Groups per caller for which it is worked out what they give. */
const MAX_GROUPS_PER_CALLER = 1000

const NOTHING: ReadonlySet<string> = new Set()
const LISTED = Object.keys(OWN_ACTIONS) as Listed[]

export function createHoldings({ db, isFresh }: { db: Queryable; isFresh: () => boolean }): Holdings {
  const callers: FactCache<Caller | 'none'> = createFactCache({ maxEntries: MAX_CALLERS, isFresh })
  const directs: FactCache<ReadonlySet<string>> = createFactCache({ maxEntries: MAX_DIRECT, isFresh })
  const ancestries: FactCache<readonly number[]> = createFactCache({ maxEntries: MAX_ANCESTRIES, isFresh })

  const directKey = ({ reach }: Caller, entity: EntityFacts) => `${reach.userKey}/${entity.key}`

  function findDirect(caller: Caller, entity: EntityFacts): Promise<ReadonlySet<string>> {
    const { userKey, domainKey } = caller.reach
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

  /** What the groups above give: nothing without roles on groups, undefined when the groups must be loaded. */
  function aboveNow(caller: Caller, { type, parentGroupKey }: EntityFacts): ReadonlySet<string> | undefined {
    if (parentGroupKey === null || caller.reach.groupActions.size === 0) return NOTHING
    const ancestry = ancestries.peek(String(parentGroupKey))
    return ancestry === undefined ? undefined : givenBelow(caller, parentGroupKey, ancestry)[type]
  }

  async function findAbove(caller: Caller, entity: EntityFacts): Promise<ReadonlySet<string>> {
    const { type, parentGroupKey } = entity
    if (parentGroupKey === null || caller.reach.groupActions.size === 0) return NOTHING
    return givenBelow(caller, parentGroupKey, await findAncestry(parentGroupKey))[type]
  }

  return {
    async resolve(userKey, domainId) {
      const caller = await callers.get(`${userKey}/${domainId}`, async () => {
        const reach = await resolveReach(db, userKey, domainId)
        return reach === undefined
          ? { value: 'none', dependsOn: [ANY_CHANGE] }
          : { value: callerOf(reach), dependsOn: reach.dependsOn }
      })
      return caller === 'none' ? undefined : caller
    },
    holdsNow(caller, entity, action) {
      if (caller.byDomain[entity.type].has(action)) return true
      const above = aboveNow(caller, entity)
      if (above?.has(action) === true) return true
      const direct = directs.peek(directKey(caller, entity))
      if (direct?.has(action) === true) return true
      return above === undefined || direct === undefined ? undefined : false
    },
    async holds(caller, entity, action) {
      if (caller.byDomain[entity.type].has(action)) return true
      // One after the other: what a group gives needs no second statement.
      return (await findAbove(caller, entity)).has(action) || (await findDirect(caller, entity)).has(action)
    },
    async actionsOn(caller, entity) {
      const [above, direct] = await Promise.all([findAbove(caller, entity), findDirect(caller, entity)])
      return new Set([...direct, ...above, ...caller.byDomain[entity.type]])
    },
    forget(entityKeys) {
      for (const cache of [callers, directs, ancestries]) cache.forget(entityKeys)
    },
    clear() {
      for (const cache of [callers, directs, ancestries]) cache.clear()
    },
  }
}

function callerOf(reach: Reach): Caller {
  const byDomain = forEachListed((type) => inherit('domain', type, reach.domainActions))
  return { reach, byDomain, byGroup: new Map() }
}

/** What lies in the group has it from the roles on the group and on all above it. */
function givenBelow(caller: Caller, groupKey: number, ancestry: readonly number[]): Given {
  const known = caller.byGroup.get(groupKey)
  // Groups that were moved have another ancestry.
  if (known?.ancestry === ancestry) return known.given
  const { groupActions } = caller.reach
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
