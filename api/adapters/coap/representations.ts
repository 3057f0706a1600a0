/**
 * Blockwise transfer of large messages (RFC 7959 section 2.4). Later blocks are requested when there may be a newer message, so the
 * message of the first block is cached for the peer for a while.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Block } from './blocks.ts'
import { MAX_SIZE_EXPONENT, blockValue, reduceBlockSize, blockSize } from './blocks.ts'
import type { Representation } from './content-formats.ts'
import { CoapRefusal, OPTIONS, uintOption } from './options.ts'
import { codeOfKind } from './message.ts'
import type { CoapOption } from './message.ts'

const MAX_CACHED_BYTES = 32 * 1024 * 1024
/** The maximum time from the first block to the last. */
const CACHE_TTL_MS = 300_000
/** Long enough not to be guessed: a request with the ETag proves that the first block was received. */
const ETAG_BYTES = 6

type CachedRepresentation = Representation & { etag: Buffer }

export class Representations {
  readonly #cached = new BoundedCache<string, CachedRepresentation>({
    maxSize: MAX_CACHED_BYTES,
    sizeOf: ({ payload }) => payload.length + 200,
    ttl: CACHE_TTL_MS,
  })

  /** The message of whose first block the peer has received. */
  find(key: string): Representation | undefined {
    return this.#cached.get(key)
  }

  /** Whether one of them is the ETag that the peer received with the first block. */
  isKnown(key: string, etags: readonly Buffer[]): boolean {
    const etag = this.#cached.get(key)?.etag
    return etag !== undefined && etags.some((one) => one.length === ETAG_BYTES && timingSafeEqual(one, etag))
  }

  /**
   * Options and payload of the requested block, or of the whole message when it fits one block. The payload has at most `maxBytes`, but
   * may always have 16.
   */
  part(
    key: string,
    representation: Representation,
    wanted: Block | undefined,
    maxBytes = Infinity,
  ): { options: CoapOption[]; payload: Buffer } {
    const { payload, contentFormat } = representation
    const options = contentFormat === undefined ? [] : [uintOption(OPTIONS.contentFormat, contentFormat)]
    const asked = wanted ?? { number: 0, hasMore: false, exponent: MAX_SIZE_EXPONENT }
    if (asked.number === 0 && payload.length <= Math.min(blockSize(asked), maxBytes)) return { options, payload }
    const block = reduceBlockSize(asked, maxBytes)
    const size = blockSize(block)
    const at = block.number * size
    if (payload.length <= size && block.number === 0) return { options, payload }
    if (at >= payload.length)
      throw new CoapRefusal(codeOfKind('malformed'), 'the block is beyond the end of the message')
    const hasMore = at + size < payload.length
    const etag = this.#etagOf(key, representation)
    return {
      options: [
        ...options,
        { number: OPTIONS.etag, value: etag },
        uintOption(OPTIONS.block2, blockValue({ ...block, hasMore })),
      ],
      payload: payload.subarray(at, at + size),
    }
  }

  /** The ETag of the cached message, if it has the same bytes; otherwise a new one. */
  #etagOf(key: string, { payload, contentFormat }: Representation): Buffer {
    const cached = this.#cached.get(key)
    const isSame = cached?.payload === payload || cached?.payload.equals(payload) === true
    if (cached !== undefined && isSame && cached.contentFormat === contentFormat) return cached.etag
    const etag = randomBytes(ETAG_BYTES)
    this.#cached.set(key, { payload, contentFormat, etag })
    return etag
  }
}
