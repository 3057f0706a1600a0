/**
 * A cache of totals, so that not every page counts millions of records. The journal is append-only, so a count up to a
 * settled time stays valid. Only newer records are counted again.
 */
import { BoundedCache } from '#core/bounded-cache.ts'

type Counted = { total: number; before: string }

export type TotalDeps = {
  /** Counts the records before the time, or from it on. */
  count: (bound: { before?: string; from?: string }) => Promise<number>
  /** Returns a time before which no further record can be committed. */
  settledMoment: () => Promise<string>
}

export type TotalCache = { total(filter: string, deps: TotalDeps): Promise<number> }

/** Maximum number of cached filters. */
const MAX_FILTERS = 5000
/** Lifetime of an entry: retention removes old records, so a cached count becomes too high. */
const MAX_AGE_MS = 600_000
/** Smaller counts are not cached: counting them is as fast as a look-up. */
const MIN_KEPT = 10_000

export function createTotalCache(): TotalCache {
  const counted = new BoundedCache<string, Counted>({ maxEntries: MAX_FILTERS, ttl: MAX_AGE_MS })
  return {
    async total(filter, { count, settledMoment }) {
      const known = counted.get(filter)
      if (known !== undefined) return known.total + (await count({ from: known.before }))
      const before = await settledMoment()
      const [old, recent] = await Promise.all([count({ before }), count({ from: before })])
      if (old >= MIN_KEPT) counted.set(filter, { total: old, before })
      return old + recent
    },
  }
}
