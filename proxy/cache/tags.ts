/**
 * The digests of tags: fresh for a minute, and used as long as needed while their registry is unavailable (rule 6). After
 * a restart an answer is a fallback, never fresh.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { monotonicMs } from '#core/time.ts'
import { isDigest } from '#core/digest.ts'
import { openRecords } from './records.ts'

export type ResolvedTag = { manifestDigest: string; stale: boolean }

export type TagCache = {
  /** A fresh answer, which needs no request. */
  fresh(name: string): ResolvedTag | undefined
  /** Stores an answer of the registry. */
  store(name: string, manifestDigest: string): Promise<ResolvedTag>
  /**
   * The last answer while the registry is unavailable, fresh for a short while so that not every request waits for it;
   * undefined: none.
   */
  fallBack(name: string): Promise<ResolvedTag | undefined>
}

export type TagCacheOptions = {
  folder: string
  /** How long an answer is fresh. */
  freshMs: number
  /** How long after a failure no request is sent to the registry. */
  holdMs: number
}

const MAX_TAGS = 10_000

export async function openTagCache({ folder, freshMs, holdMs }: TagCacheOptions): Promise<TagCache> {
  const records = await openRecords({ folder, maxRecords: MAX_TAGS, parse: parseTag })
  const recent = new BoundedCache<string, ResolvedTag & { untilMs: number }>({ maxEntries: MAX_TAGS })
  const believe = (name: string, answer: ResolvedTag, forMs: number): ResolvedTag => {
    recent.set(name, { ...answer, untilMs: monotonicMs() + forMs })
    return answer
  }
  return {
    fresh(name) {
      const found = recent.get(name)
      if (found === undefined || monotonicMs() >= found.untilMs) return undefined
      return { manifestDigest: found.manifestDigest, stale: found.stale }
    },
    async store(name, manifestDigest) {
      // Most answers repeat the previous one; only changes are written to disk.
      if (recent.get(name)?.manifestDigest !== manifestDigest) await records.set(name, manifestDigest)
      return believe(name, { manifestDigest, stale: false }, freshMs)
    },
    async fallBack(name) {
      const manifestDigest = recent.get(name)?.manifestDigest ?? (await records.get(name))
      return manifestDigest === undefined ? undefined : believe(name, { manifestDigest, stale: true }, holdMs)
    },
  }
}

function parseTag(value: unknown): string | undefined {
  return typeof value === 'string' && isDigest(value) ? value : undefined
}
