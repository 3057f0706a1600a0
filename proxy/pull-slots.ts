/** How many pulls run at once, and how many may wait for one. */
import { ServiceError } from '#core/errors/index.ts'

export type PullSlots = {
  /** Runs the work in a slot. Throws `unavailable` when the queue before it is full, and the signal's reason when it ends. */
  run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T>
}

export function createPullSlots(maxRunning: number, maxWaiting: number): PullSlots {
  let running = 0
  const waiting = new Set<() => void>()

  async function enter(signal: AbortSignal): Promise<void> {
    if (running < maxRunning) {
      running += 1
      return
    }
    if (waiting.size >= maxWaiting) {
      throw new ServiceError('unavailable', `more than ${maxWaiting} modules wait to be pulled`, {
        retryAfterSeconds: 1,
      })
    }
    await new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        waiting.delete(proceed)
        reject(signal.reason as Error)
      }
      // The slot passes from hand to hand: `running` stays as it is.
      const proceed = () => {
        signal.removeEventListener('abort', onAbort)
        resolve()
      }
      if (signal.aborted) return onAbort()
      waiting.add(proceed)
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  function leave(): void {
    const [next] = waiting
    if (next === undefined) running -= 1
    else {
      waiting.delete(next)
      next()
    }
  }

  return {
    async run(work, signal) {
      await enter(signal)
      try {
        return await work()
      } finally {
        leave()
      }
    },
  }
}
