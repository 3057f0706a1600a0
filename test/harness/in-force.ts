/**
 * Waits until a change is in force on a node (decision 47: everywhere within a second). How long a busy machine takes to
 * answer proves nothing; what the promise means holds on any: nothing that begins more than a second after the change is
 * answered as before.
 */
import { expect } from 'vitest'
import { until } from './until.ts'

const IN_FORCE_WITHIN_MS = 1000

/** Asks, from the moment at which the change was answered on, until the answer is no longer `from` but `to`. */
export async function untilInForce<T>(
  ask: () => Promise<T>,
  { from, to }: { from: T; to: T },
  what: string,
): Promise<void> {
  const changedMs = performance.now()
  await until(async () => {
    const beganMs = performance.now()
    const answer = await ask()
    if (answer === from) expect(beganMs - changedMs, what).toBeLessThan(IN_FORCE_WITHIN_MS)
    return answer === to
  }, what)
}
