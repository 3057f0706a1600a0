/** Byte ranges (RFC 9110 section 14), for clients and servers. */
import { ServiceError } from '../errors/index.ts'
import { discard } from './client.ts'
import type { TransferResponse, TransferClient } from './client.ts'

/** Offsets of the first byte and of the byte after the last. */
export type ByteRange = { start: number; end: number }

const RANGE = /^bytes=(\d{0,15})-(\d{0,15})$/

/**
 * The range of a `Range` header. Undefined for the whole body, also when the header is invalid or has several ranges (RFC 9110
 * section 14.2 allows ignoring it). 'beyond' when the range is outside of the body.
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

/** The header that requests everything from an offset on, or up to the byte before `end`. */
export function rangeFrom(offset: number, end?: number): Record<string, string> {
  if (end !== undefined) return { range: `bytes=${offset}-${end - 1}` }
  return offset === 0 ? {} : { range: `bytes=${offset}-` }
}

/**
 * The body of the response to `rangeFrom`, from the offset on, whether the server applied the range or sends everything. Throws
 * the errors of `chunksOf`, and `unavailable` for a different range.
 */
export async function* bodyFrom(
  client: TransferClient,
  answer: TransferResponse,
  offset: number,
  stallMs?: number,
): AsyncGenerator<Buffer> {
  let skipBytes = offset - startOf(answer, offset)
  for await (const piece of client.chunksOf(answer, stallMs)) {
    if (skipBytes < piece.length) yield skipBytes === 0 ? piece : piece.subarray(skipBytes)
    skipBytes = Math.max(0, skipBytes - piece.length)
  }
}

/** The offset at which the body of this response begins. It may be lower than requested, but not higher. */
function startOf(answer: TransferResponse, wanted: number): number {
  if (answer.status !== 206) return 0
  const start = /^bytes (\d+)-/.exec(answer.headers['content-range'] ?? '')?.[1]
  if (start === undefined || Number(start) > wanted) {
    discard(answer)
    throw new ServiceError('unavailable', `${answer.url.host} returned a different range than requested`)
  }
  return Number(start)
}
