/**
 * Rechecks the rights of all open streams with one timer, so that a revoked right ends its streams within a second.
 */
import { kindOf } from '../errors/index.ts'
import type { ErrorKind } from '../errors/index.ts'

/** The interval between checks. */
export const WATCH_MS = 300
/** The number of concurrent checks: more would only wait for database connections. */
const AT_ONCE = 16

export type Watched = {
  /** Throws when the caller may no longer read. */
  authorize(): Promise<unknown>
  /** Called when access is lost: `unauthenticated`, `forbidden`, or `not_found` when the entity is no longer visible. */
  lost(kind: ErrorKind): void
}

export type AccessWatch = {
  /** Returns a function that removes it. */
  add(watched: Watched): () => void
  stop(): void
}

const LOST: ReadonlySet<ErrorKind> = new Set(['unauthenticated', 'forbidden', 'not_found'])

/** `canJudge`: false while rights cannot be checked; checks are skipped meanwhile. */
export function startAccessWatch(canJudge: () => boolean = () => true): AccessWatch {
  const all = new Set<Watched>()
  let timer: NodeJS.Timeout | undefined
  let isStopped = false

  async function judge(watched: Watched): Promise<void> {
    try {
      await watched.authorize()
    } catch (error) {
      // Other errors say nothing about the right; the next check decides.
      const kind = kindOf(error)
      if (LOST.has(kind) && all.delete(watched)) watched.lost(kind)
    }
  }

  async function look(): Promise<void> {
    if (canJudge()) {
      const waiting = [...all]
      for (let first = 0; first < waiting.length; first += AT_ONCE)
        await Promise.all(waiting.slice(first, first + AT_ONCE).map(judge))
    }
    timer = undefined
    lookLater()
  }

  function lookLater(): void {
    if (all.size > 0 && !isStopped) timer ??= setTimeout(() => void look(), WATCH_MS)
  }

  return {
    add(watched) {
      all.add(watched)
      lookLater()
      return () => void all.delete(watched)
    },
    stop() {
      isStopped = true
      clearTimeout(timer)
    },
  }
}
