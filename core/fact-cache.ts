/**
 * A bounded cache of facts read from the database, each forgotten as soon as an entity that it depends on changes.
 * It answers only while the tail that brings the changes is fresh; otherwise every question goes to the database.
 */
import { LRUCache } from 'lru-cache'
import { monotonicMs } from './time.ts'

/** How long "there is no such thing" is believed: its arrival cannot be announced by key. */
export const NEGATIVE_TTL_MS = 1000

export type LoadedFact<V> = {
  value: V
  /** Keys of the entities whose change makes the fact wrong. None: it is kept for `NEGATIVE_TTL_MS` only. */
  dependsOn: readonly number[]
}

export type FactCache<V> = {
  /** The cached fact, or the loaded one; several callers of one key share a load. */
  get(key: string, load: () => Promise<LoadedFact<V>>): Promise<V>
  /** The cached fact without waiting, for hot paths; undefined when it must be loaded. */
  peek(key: string): V | undefined
  /** Drops every fact that depends on one of these entities, also those being loaded. */
  forget(entityKeys: readonly number[]): void
  clear(): void
  readonly size: number
}

type Entry<V> = { value: V; dependsOn: readonly number[]; untilMs: number }

export function createFactCache<V>({
  maxEntries,
  bytes,
  isFresh,
}: {
  maxEntries: number
  /** For facts that may be large: how much all of them may weigh; one heavier than that is not kept. */
  bytes?: { max: number; of: (value: V) => number }
  isFresh: () => boolean
}): FactCache<V> {
  const dependents = new Map<number, Set<string>>()
  /** Loads that a further caller may share. */
  const loads = new Map<string, Promise<V>>()
  /** When each running load began, oldest first: those that nobody may share any more too. */
  const running = new Set<number>()
  /** When an entity was last forgotten, oldest first, kept while a load runs that may have read it before. */
  const forgottenAt = new Map<number, number>()
  let clock = 0
  let clearedAt = 0

  const entries = new LRUCache<string, Entry<V>>({
    ...(bytes === undefined
      ? { max: maxEntries }
      : {
          maxSize: bytes.max,
          sizeCalculation: (entry: Entry<V>) => Math.max(Math.ceil(bytes.max / maxEntries), bytes.of(entry.value)),
        }),
    dispose: (entry, key) => {
      for (const entity of entry.dependsOn) {
        const keys = dependents.get(entity)
        keys?.delete(key)
        if (keys?.size === 0) dependents.delete(entity)
      }
    },
    noDisposeOnSet: false,
  })

  function peek(key: string): V | undefined {
    const entry = entries.get(key)
    if (entry === undefined || !isFresh()) return undefined
    if (entry.untilMs !== Infinity && monotonicMs() > entry.untilMs) {
      entries.delete(key)
      return undefined
    }
    return entry.value
  }

  async function loadFact(key: string, load: () => Promise<LoadedFact<V>>): Promise<V> {
    const began = ++clock
    running.add(began)
    try {
      const { value, dependsOn } = await load()
      const isOutdated = clearedAt > began || dependsOn.some((entity) => (forgottenAt.get(entity) ?? 0) > began)
      if (!isOutdated) keep(key, value, dependsOn)
      return value
    } finally {
      running.delete(began)
      dropForgotten()
    }
  }

  function keep(key: string, value: V, dependsOn: readonly number[]): void {
    entries.set(key, {
      value,
      dependsOn,
      untilMs: dependsOn.length === 0 ? monotonicMs() + NEGATIVE_TTL_MS : Infinity,
    })
    if (!entries.has(key)) return
    for (const entity of dependsOn) {
      const keys = dependents.get(entity)
      if (keys === undefined) dependents.set(entity, new Set([key]))
      else keys.add(key)
    }
  }

  /** What was forgotten before the oldest running load began can make no result outdated any more. */
  function dropForgotten(): void {
    const [oldest = Infinity] = running
    for (const [entity, at] of forgottenAt) {
      if (at > oldest) return
      forgottenAt.delete(entity)
    }
  }

  return {
    async get(key, load) {
      const known = peek(key)
      if (known !== undefined) return known
      const shared = loads.get(key)
      if (shared !== undefined) return await shared
      const work = loadFact(key, load).finally(() => {
        if (loads.get(key) === work) loads.delete(key)
      })
      loads.set(key, work)
      return await work
    },
    peek,
    forget(entityKeys) {
      clock += 1
      for (const entity of entityKeys) {
        if (running.size > 0) {
          forgottenAt.delete(entity)
          forgottenAt.set(entity, clock)
        }
        for (const key of dependents.get(entity) ?? []) entries.delete(key)
      }
      // Whoever asks from now on must not be given an answer that was read before the change.
      if (entityKeys.length > 0) loads.clear()
    },
    clear() {
      clearedAt = ++clock
      entries.clear()
      loads.clear()
    },
    get size() {
      return entries.size
    },
  }
}
