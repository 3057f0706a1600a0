/**
 * Messages that are larger than a block leave in several (RFC 7959 section 2.4). The rest is asked for later, when there may
 * be a newer message: what a peer has the first block of is kept for it a while, so that it gets a whole.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Block } from './blocks.ts'
import { MAX_EXPONENT, blockValue, narrowed, sizeOf } from './blocks.ts'
import type { Representation } from './content-formats.ts'
import { CoapRefusal, OPTIONS, uintOption } from './options.ts'
import { codeOfKind } from './message.ts'
import type { CoapOption } from './message.ts'

const MAX_KEPT_BYTES = 32 * 1024 * 1024
/** From the first block to the last it takes no longer. */
const KEPT_MS = 300_000
/** Too many to guess: a request with the ETag proves that the first block was received. */
const ETAG_BYTES = 6

type Kept = Representation & { etag: Buffer }

export class Representations {
  readonly #kept = new LRUCache<string, Kept>({
    maxSize: MAX_KEPT_BYTES,
    sizeCalculation: ({ payload }) => payload.length + 200,
    ttl: KEPT_MS,
  })

  /** What the peer has the first block of. */
  find(key: string): Representation | undefined {
    return this.#kept.get(key)
  }

  /** Whether one of them is the ETag that the peer was sent with the first block. */
  isKnown(key: string, etags: readonly Buffer[]): boolean {
    const etag = this.#kept.get(key)?.etag
    return etag !== undefined && etags.some((one) => one.length === ETAG_BYTES && timingSafeEqual(one, etag))
  }

  /**
   * Options and payload of the block that is asked for, or of the whole where it fits one block. The payload has at most
   * `maxBytes`, but may have 16.
   */
  part(
    key: string,
    representation: Representation,
    wanted: Block | undefined,
    maxBytes = Infinity,
  ): { options: CoapOption[]; payload: Buffer } {
    const { payload, contentFormat } = representation
    const options = contentFormat === undefined ? [] : [uintOption(OPTIONS.contentFormat, contentFormat)]
    const asked = wanted ?? { number: 0, hasMore: false, exponent: MAX_EXPONENT }
    if (asked.number === 0 && payload.length <= Math.min(sizeOf(asked), maxBytes)) return { options, payload }
    const block = narrowed(asked, maxBytes)
    const size = sizeOf(block)
    const at = block.number * size
    if (payload.length <= size && block.number === 0) return { options, payload }
    if (at >= payload.length) throw new CoapRefusal(codeOfKind('malformed'), 'the message has no such block')
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

  /** Of what is kept for the peer; a message with the same bytes is the same. */
  #etagOf(key: string, { payload, contentFormat }: Representation): Buffer {
    const kept = this.#kept.get(key)
    const isSame = kept?.payload === payload || kept?.payload.equals(payload) === true
    if (kept !== undefined && isSame && kept.contentFormat === contentFormat) return kept.etag
    const etag = randomBytes(ETAG_BYTES)
    this.#kept.set(key, { payload, contentFormat, etag })
    return etag
  }
}
