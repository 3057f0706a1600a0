/**
 * How many records match, without counting millions for each page. The journal only grows at its end, so what was counted
 * up to a moment stays counted; only what came since is counted again.
 */
import { LRUCache } from 'lru-cache'

type Counted = { total: number; before: string }

export type TotalDeps = {
  /** Counts the records before the moment, or from it on. */
  count: (bound: { before?: string; from?: string }) => Promise<number>
  /** A moment before which no record appears any more. */
  settledMoment: () => Promise<string>
}

export type TotalCache = { total(filter: string, deps: TotalDeps): Promise<number> }

/** Filters whose totals are kept. */
const MAX_FILTERS = 5000
/** Retention removes old records: what was counted is believed for so long. */
const MAX_AGE_MS = 600_000
/** Fewer records than this are counted as fast as they are looked up. */
const MIN_KEPT = 10_000

export function createTotalCache(): TotalCache {
  const counted = new LRUCache<string, Counted>({ max: MAX_FILTERS, ttl: MAX_AGE_MS })
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
