/**
 * Whether those who follow something still may: one look through all of them again and again, so that a right that is taken
 * ends every stream that stood on it within a second.
 */
import { kindOf } from '../errors/index.ts'
import type { ErrorKind } from '../errors/index.ts'

/** How often everybody is looked at. */
export const WATCH_MS = 300
/** Looked at together: more would only wait for the same connections of the database. */
const AT_ONCE = 16

export type Watched = {
  /** Throws when the caller may not follow any more. */
  authorize(): Promise<unknown>
  /** The caller may not: `unauthenticated`, `forbidden`, or `not_found` where what is followed is gone for the caller. */
  lost(kind: ErrorKind): void
}

export type AccessWatch = {
  /** Gives the way to watch it no more. */
  add(watched: Watched): () => void
  stop(): void
}

const LOST: ReadonlySet<ErrorKind> = new Set(['unauthenticated', 'forbidden', 'not_found'])

/** `canJudge`: false while nothing can be found out; nobody is looked at meanwhile. */
export function startAccessWatch(canJudge: () => boolean = () => true): AccessWatch {
  const all = new Set<Watched>()
  let timer: NodeJS.Timeout | undefined
  let isStopped = false

  async function judge(watched: Watched): Promise<void> {
    try {
      await watched.authorize()
    } catch (error) {
      // Whatever else went wrong says nothing about the right: the next look may.
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
