/**
 * What a tag points to: believed for a minute, and for as long as needed while its registry is down (rule 6). The answer
 * survives a restart as a thing to fall back on, never as a fresh one.
 */
import { LRUCache } from 'lru-cache'
import { monotonicMs } from '#core/time.ts'
import { isDigest } from '#core/digest.ts'
import { openRecords } from './records.ts'

export type TagAnswer = { manifestDigest: string; stale: boolean }

export type TagCache = {
  /** An answer that needs no question to the registry now. */
  fresh(name: string): TagAnswer | undefined
  /** The registry answered. */
  learn(name: string, manifestDigest: string): Promise<TagAnswer>
  /** The registry is down: the last answer, believed for a short while so that not everybody waits for it; undefined: none. */
  fallBack(name: string): Promise<TagAnswer | undefined>
}

export type TagCacheOptions = {
  folder: string
  /** How long an answer counts as fresh. */
  freshMs: number
  /** How long after a failure the registry is not asked again. */
  holdMs: number
}

const MAX_TAGS = 10_000

export async function openTagCache({ folder, freshMs, holdMs }: TagCacheOptions): Promise<TagCache> {
  const records = await openRecords({ folder, maxRecords: MAX_TAGS, parse: parseTag })
  const recent = new LRUCache<string, TagAnswer & { untilMs: number }>({ max: MAX_TAGS })
  const believe = (name: string, answer: TagAnswer, forMs: number): TagAnswer => {
    recent.set(name, { ...answer, untilMs: monotonicMs() + forMs })
    return answer
  }
  return {
    fresh(name) {
      const found = recent.get(name)
      if (found === undefined || monotonicMs() >= found.untilMs) return undefined
      return { manifestDigest: found.manifestDigest, stale: found.stale }
    },
    async learn(name, manifestDigest) {
      // Most answers repeat the one before; the disk hears of changes only.
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
