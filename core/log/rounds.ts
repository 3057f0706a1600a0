/** The rhythm of a reader of a log: one round at a time, after a pause or sooner when poked, until stopped. */

export type Pause = {
  pauseMs: number
  /** Whether a poke ends the pause; a reader that failed waits it out. */
  isPokable: boolean
}

export type Rounds = {
  /** Something was written: begin a round now, or another one right after the present one. Any rate is fine. */
  poke(): void
  /** Resolves when the round that runs has ended; none follows. */
  stop(): Promise<void>
}

/** Begins at once. A round must not reject. */
export function startRounds(round: () => Promise<Pause>): Rounds {
  let isStopped = false
  let isPoked = false
  let isPokable = false
  let wake: (() => void) | undefined

  const pause = (pauseMs: number) =>
    new Promise<void>((resolve) => {
      wake = () => {
        clearTimeout(timer)
        wake = undefined
        resolve()
      }
      const timer = setTimeout(wake, pauseMs)
    })

  async function loop(): Promise<void> {
    while (!isStopped) {
      isPoked = false
      isPokable = false
      const next = await round()
      if (isStopped) return
      if (next.pauseMs === 0 || (next.isPokable && isPoked)) continue
      isPokable = next.isPokable
      await pause(next.pauseMs)
    }
  }

  const running = loop()
  return {
    poke() {
      isPoked = true
      if (isPokable) wake?.()
    },
    async stop() {
      isStopped = true
      wake?.()
      await running
    },
  }
}
