/** A tenth of what has been waited, between these: conditions are requests, and what takes long is asked for less often. */
const MIN_PAUSE_MS = 5
const MAX_PAUSE_MS = 100

/**
 * Waits for a condition with a deadline: the only way in which a test waits. The deadline ends a test that fails; it is far
 * from what a busy machine takes.
 */
export async function until<T>(
  condition: () => Promise<T | undefined | false> | T | undefined | false,
  what: string | (() => string),
  deadlineMs = 30_000,
): Promise<T> {
  const began = performance.now()
  for (;;) {
    const value = await condition()
    if (value !== undefined && value !== false) return value
    const waitedMs = performance.now() - began
    if (waitedMs > deadlineMs)
      throw new Error(`not within ${deadlineMs} ms: ${typeof what === 'string' ? what : what()}`)
    await new Promise((resolve) => setTimeout(resolve, Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, waitedMs / 10))))
  }
}
