/** Waits for a condition with a deadline: the only way in which a test waits. */
export async function until<T>(
  condition: () => Promise<T | undefined | false> | T | undefined | false,
  what: string,
  deadlineMs = 10_000,
): Promise<T> {
  const end = performance.now() + deadlineMs
  for (;;) {
    const value = await condition()
    if (value !== undefined && value !== false) return value
    if (performance.now() > end) throw new Error(`not within ${deadlineMs} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
