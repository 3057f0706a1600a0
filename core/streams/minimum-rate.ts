/** A deadline that depends on the bytes transferred: peers below the minimum rate would hold resources for too long. */
import { ServiceError } from '../errors/index.ts'
import { monotonicMs } from '../time.ts'

/** Slower than the slowest radio link that devices are expected to use. */
export const MIN_BYTES_PER_SECOND = 1024

/** The time that a transfer of this many bytes may have taken. */
function allowedMs(bytes: number, graceMs: number, bytesPerSecond: number): number {
  return graceMs + (bytes / bytesPerSecond) * 1000
}

/** Passes the pieces on. Throws `timeout` when they arrive below the minimum rate, after the grace period. */
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
        throw new ServiceError('timeout', `the body must arrive at ${bytesPerSecond} bytes per second or faster`)
      if (next.done === true) return
      received += next.value.byteLength
      yield next.value
    }
  } finally {
    // A sender that has stopped is not awaited.
    void Promise.resolve(iterator.return?.()).catch(() => undefined)
  }
}

async function before<T>(work: Promise<T>, waitMs: number): Promise<T | 'late'> {
  const { promise, resolve } = Promise.withResolvers<'late'>()
  const timer = setTimeout(resolve, Math.max(0, waitMs), 'late')
  work.catch(() => undefined)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}
