/** Ranges of bytes (RFC 9110 section 14), as one side asks for them and the other gives them. */
import { ServiceError } from '../errors/index.ts'
import { discard } from './client.ts'
import type { Answer, TransferClient } from './client.ts'

/** Positions of the first byte and of the one behind the last. */
export type ByteRange = { start: number; end: number }

const RANGE = /^bytes=(\d{0,15})-(\d{0,15})$/

/**
 * What a `Range` header asks for. Undefined: all of it, also where the header is none that is understood, or names several
 * ranges (RFC 9110 section 14.2 lets it be ignored). 'beyond': nothing that is there.
 */
export function parseRange(header: string | undefined, sizeBytes: number): ByteRange | 'beyond' | undefined {
  const [, first = '', last = ''] = RANGE.exec(header ?? '') ?? []
  if (first === '' && last === '') return undefined
  if (first === '') {
    const suffix = Math.min(Number(last), sizeBytes)
    return suffix === 0 ? 'beyond' : { start: sizeBytes - suffix, end: sizeBytes }
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return undefined
  if (start >= sizeBytes) return 'beyond'
  return { start, end: last === '' ? sizeBytes : Math.min(Number(last) + 1, sizeBytes) }
}

/** The header that asks for everything from an offset on. */
export function rangeFrom(offset: number): Record<string, string> {
  return offset === 0 ? {} : { range: `bytes=${offset}-` }
}

/**
 * The body of the answer to `rangeFrom`, from the offset on, whether the server heeded the range or sends everything. Throws
 * what `chunksOf` throws, and `unavailable` for another range than the one asked for.
 */
export async function* bodyFrom(
  client: TransferClient,
  answer: Answer,
  offset: number,
  stallMs?: number,
): AsyncGenerator<Buffer> {
  let skipBytes = offset - startOf(answer, offset)
  for await (const piece of client.chunksOf(answer, stallMs)) {
    if (skipBytes < piece.length) yield skipBytes === 0 ? piece : piece.subarray(skipBytes)
    skipBytes = Math.max(0, skipBytes - piece.length)
  }
}

/** Where the body of this answer begins. More than was asked for may come before the offset, but never less. */
function startOf(answer: Answer, wanted: number): number {
  if (answer.status !== 206) return 0
  const start = /^bytes (\d+)-/.exec(answer.headers['content-range'] ?? '')?.[1]
  if (start === undefined || Number(start) > wanted) {
    discard(answer)
    throw new ServiceError('unavailable', `${answer.url.host} answered another range than the one asked for`)
  }
  return Number(start)
}
