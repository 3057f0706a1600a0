/** Work that a process repeats in the background: one round at a time, after a pause or a wake, until it is stopped. */
import { monotonicMs } from './time.ts'

export type Pause = {
  pauseMs: number
  /** Whether a wake ends the pause; false for the backoff after a failure. */
  isWakeable: boolean
  /** The minimum pause, also after a wake: a busy writer must not cause a round for each write. Defaults to 0. */
  minPauseMs?: number
}

export type Rounds = {
  /** Begins a round now, or another one after the current round. May be called at any rate. */
  wake(): void
  /** Resolves when the current round has ended. No other round starts. */
  stop(): Promise<void>
}

/** Begins at once. A round must not reject. */
export function startRounds(round: () => Promise<Pause>): Rounds {
  let isStopped = false
  let isWoken = false
  let isWakeable = false
  let wake: (() => void) | undefined
  let shorten: (() => void) | undefined

  const pause = ({ pauseMs, minPauseMs = 0 }: Pause) =>
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
        const leftMs = beganMs + Math.min(minPauseMs, pauseMs) - monotonicMs()
        if (leftMs <= 0) return end()
        clearTimeout(timer)
        timer = setTimeout(end, leftMs)
      }
    })

  async function loop(): Promise<void> {
    while (!isStopped) {
      isWoken = false
      isWakeable = false
      const next = await round()
      if (isStopped) return
      if (next.pauseMs === 0) continue
      isWakeable = next.isWakeable
      const isOver = pause(next)
      if (isWakeable && isWoken) shorten?.()
      await isOver
    }
  }

  const running = loop()
  return {
    wake() {
      isWoken = true
      if (isWakeable) shorten?.()
    },
    async stop() {
      isStopped = true
      wake?.()
      await running
    },
  }
}

/**
 * Pauses of a reader that is woken by writers and polls as a fallback: the minimum after a round that found rows, doubling
 * after each round that found none.
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

export type PeriodicRounds = {
  /** Aborted by `stop`. */
  readonly signal: AbortSignal
  /** Waits for the round that is running. */
  stop(): Promise<void>
}

/** Rounds that only time begins, and that may fail. */
export function startPeriodicRounds({
  firstPauseMs,
  pauseMs,
  round,
  onFailure,
}: {
  /** The pause before the first round. */
  firstPauseMs: number
  /** The pause from the end of a round to the next one. */
  pauseMs: number | ((hasFailed: boolean) => number)
  /** Long rounds look at the signal, which `stop` aborts. */
  round: (signal: AbortSignal) => Promise<unknown>
  /** Called with the error of a round, unless the rounds are being stopped. The next round follows after its pause. */
  onFailure: (error: unknown) => void
}): PeriodicRounds {
  const stopping = new AbortController()
  const { signal } = stopping
  let isWaiting = firstPauseMs > 0
  const rounds = startRounds(async () => {
    if (isWaiting) {
      isWaiting = false
      return { pauseMs: firstPauseMs, isWakeable: false }
    }
    let hasFailed = false
    try {
      await round(signal)
    } catch (error) {
      hasFailed = true
      if (!signal.aborted) onFailure(error)
    }
    return { pauseMs: typeof pauseMs === 'number' ? pauseMs : pauseMs(hasFailed), isWakeable: false }
  })
  return {
    signal,
    async stop() {
      stopping.abort()
      await rounds.stop()
    },
  }
}
