/** A deadline that moves with bytes: whoever sends or takes less than the minimum holds what others wait for. */
import { ServiceError } from '../errors/index.ts'
import { monotonicMs, sleep } from '../time.ts'

/** Slower than the slowest radio link that a device would be served over. */
export const MIN_BYTES_PER_SECOND = 1024

/** How long a transfer may take that has moved so many bytes. */
function allowedMs(bytes: number, graceMs: number, bytesPerSecond: number): number {
  return graceMs + (bytes / bytesPerSecond) * 1000
}

/** The pieces as they come. Throws `timeout` when they come more slowly than at the minimum rate, after the time of grace. */
export async function* atMinimumRate<Piece extends Uint8Array>(
  pieces: AsyncIterable<Piece>,
  graceMs: number,
  bytesPerSecond = MIN_BYTES_PER_SECOND,
): AsyncGenerator<Piece, void, void> {
  const beganMs = monotonicMs()
  const iterator = pieces[Symbol.asyncIterator]()
  let received = 0
  try {
    for (;;) {
      const next = await before(iterator.next(), beganMs + allowedMs(received, graceMs, bytesPerSecond) - monotonicMs())
      if (next === 'late')
        throw new ServiceError('timeout', `the body must arrive at ${bytesPerSecond} bytes a second or faster`)
      if (next.done === true) return
      received += next.value.byteLength
      yield next.value
    }
  } finally {
    // A sender that says nothing is not waited for.
    void Promise.resolve(iterator.return?.()).catch(() => undefined)
  }
}

async function before<T>(work: Promise<T>, waitMs: number): Promise<T | 'late'> {
  const done = new AbortController()
  const late = sleep(Math.max(0, waitMs), done.signal).then(
    () => 'late' as const,
    () => 'late' as const,
  )
  work.catch(() => undefined)
  try {
    return await Promise.race([work, late])
  } finally {
    done.abort()
  }
}
