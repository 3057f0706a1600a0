/**
 * A bounded cache of values read from the database, each invalidated when an entity that it depends on changes. It answers only
 * while the tail of changes is fresh; otherwise every read goes to the database.
 */
import { BoundedCache } from './bounded-cache.ts'
import { monotonicMs } from './time.ts'

/** How long the absence of an entity is cached: its creation cannot be announced by key. */
export const NEGATIVE_TTL_MS = 1000

export type LoadedFact<V> = {
  value: V
  /** Keys of the entities whose change invalidates the value. If empty, it is kept for `NEGATIVE_TTL_MS` only. */
  dependsOn: readonly number[]
}

export type FactCache<V> = {
  /** The cached value, or the loaded one. Concurrent callers of one key share a load. */
  get(key: string, load: () => Promise<LoadedFact<V>>): Promise<V>
  /** The cached value, for hot paths; undefined when it must be loaded. */
  peek(key: string): V | undefined
  /** Invalidates every value that depends on one of these entities, including values that are being loaded. */
  invalidate(entityKeys: readonly number[]): void
  invalidateAll(): void
  readonly size: number
}

type Entry<V> = { value: V; dependsOn: readonly number[]; untilMs: number }

export function createFactCache<V>({
  maxEntries,
  bytes,
  isFresh,
}: {
  maxEntries: number
  /** The limit of the total size, for large values. A value above the limit is not kept. */
  bytes?: { max: number; of: (value: V) => number }
  isFresh: () => boolean
}): FactCache<V> {
  const dependents = new Map<number, Set<string>>()
  /** Loads that further callers may share. */
  const loads = new Map<string, Promise<V>>()
  /** The start of each running load, oldest first, including loads that can no longer be shared. */
  const running = new Set<number>()
  /** The time of each invalidation, oldest first, kept while a load runs that may have read the old value. */
  const invalidatedAt = new Map<number, number>()
  let clock = 0
  let allInvalidatedAt = 0

  const entries = new BoundedCache<string, Entry<V>>({
    ...(bytes === undefined
      ? { maxEntries }
      : {
          maxSize: bytes.max,
          sizeOf: (entry: Entry<V>) => Math.max(Math.ceil(bytes.max / maxEntries), bytes.of(entry.value)),
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
      const isOutdated =
        allInvalidatedAt > began || dependsOn.some((entity) => (invalidatedAt.get(entity) ?? 0) > began)
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

  /** Removes invalidations that are older than every running load. */
  function dropForgotten(): void {
    const [oldest = Infinity] = running
    for (const [entity, at] of invalidatedAt) {
      if (at > oldest) return
      invalidatedAt.delete(entity)
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
    invalidate(entityKeys) {
      clock += 1
      for (const entity of entityKeys) {
        if (running.size > 0) {
          invalidatedAt.delete(entity)
          invalidatedAt.set(entity, clock)
        }
        for (const key of dependents.get(entity) ?? []) entries.delete(key)
      }
      // Callers from now on must not receive a value that was read before the change.
      if (entityKeys.length > 0) loads.clear()
    },
    invalidateAll() {
      allInvalidatedAt = ++clock
      entries.clear()
      loads.clear()
    },
    get size() {
      return entries.size
    },
  }
}
