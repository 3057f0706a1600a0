/** The rhythm of a reader of a log: one round at a time, after a pause or sooner when poked, until stopped. */
import { monotonicMs } from '../time.ts'

export type Pause = {
  pauseMs: number
  /** Whether a wake ends the pause; a reader that failed waits it out. */
  isPokable: boolean
  /** So much of the pause remains also when poked, so that a busy writer does not have a round for each write; 0 unless said. */
  restMs?: number
}

export type Rounds = {
  /** Something was written: begin a round now, or another one right after the present one. Any rate is fine. */
  wake(): void
  /** Resolves when the round that runs has ended; none follows. */
  stop(): Promise<void>
}

/** Begins at once. A round must not reject. */
export function startRounds(round: () => Promise<Pause>): Rounds {
  let isStopped = false
  let isPoked = false
  let isPokable = false
  let wake: (() => void) | undefined
  let shorten: (() => void) | undefined

  const pause = ({ pauseMs, restMs = 0 }: Pause) =>
    new Promise<void>((resolve) => {
      const beganMs = monotonicMs()
      const end = () => {
        clearTimeout(timer)
        wake = undefined
        shorten = undefined
        resolve()
      }
      let timer = setTimeout(end, pauseMs)
      wake = end
      shorten = () => {
        shorten = undefined
        const leftMs = beganMs + Math.min(restMs, pauseMs) - monotonicMs()
        if (leftMs <= 0) return end()
        clearTimeout(timer)
        timer = setTimeout(end, leftMs)
      }
    })

  async function loop(): Promise<void> {
    while (!isStopped) {
      isPoked = false
      isPokable = false
      const next = await round()
      if (isStopped) return
      if (next.pauseMs === 0) continue
      isPokable = next.isPokable
      const isOver = pause(next)
      if (isPokable && isPoked) shorten?.()
      await isOver
    }
  }

  const running = loop()
  return {
    wake() {
      isPoked = true
      if (isPokable) shorten?.()
    },
    async stop() {
      isStopped = true
      wake?.()
      await running
    },
  }
}

/**
 * Pauses of a reader that is told of what is written, but must not rely on it: the shortest while there is something, doubling ones
 * while there is nothing.
 */
export function growingPauses(shortestMs: number, longestMs: number): { next(foundNothing: boolean): number } {
  let pauseMs = shortestMs
  return {
    next(foundNothing) {
      pauseMs = foundNothing ? Math.min(pauseMs * 2, longestMs) : shortestMs
      return pauseMs
    },
  }
}
