/**
 * Messages that are larger than a block leave in several (RFC 7959 section 2.4). The rest is asked for later, when there may
 * be a newer message: what a peer has the first block of is kept for it a while, so that it gets a whole.
 */
import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Block } from './blocks.ts'
import { MAX_EXPONENT, blockValue, sizeOf } from './blocks.ts'
import { CoapRefusal, OPTIONS, uintOption } from './options.ts'
import { codeOfKind } from './message.ts'
import type { CoapOption } from './message.ts'

const MAX_KEPT_BYTES = 32 * 1024 * 1024
/** Two blocks are not further apart. */
const KEPT_MS = 60_000
const ETAG_BYTES = 4

/** A payload with the number of its format, if it has one. */
export type Representation = { payload: Buffer; contentFormat: number | undefined }

export class Representations {
  readonly #kept = new LRUCache<string, Representation>({
    maxSize: MAX_KEPT_BYTES,
    sizeCalculation: ({ payload }) => payload.length + 200,
    ttl: KEPT_MS,
  })

  /** What the peer has the first block of. */
  find(key: string): Representation | undefined {
    return this.#kept.get(key)
  }

  /** Options and payload of the block that is asked for, or of the whole where it fits one block. */
  part(
    key: string,
    representation: Representation,
    wanted: Block | undefined,
  ): { options: CoapOption[]; payload: Buffer } {
    const { payload, contentFormat } = representation
    const options = contentFormat === undefined ? [] : [uintOption(OPTIONS.contentFormat, contentFormat)]
    const block = wanted ?? { number: 0, hasMore: false, exponent: MAX_EXPONENT }
    const size = sizeOf(block)
    const at = block.number * size
    if (payload.length <= size && block.number === 0) return { options, payload }
    if (at >= payload.length) throw new CoapRefusal(codeOfKind('malformed'), 'the message has no such block')
    const hasMore = at + size < payload.length
    if (hasMore && block.number === 0) this.#kept.set(key, representation)
    const etag = createHash('sha256').update(payload).digest().subarray(0, ETAG_BYTES)
    return {
      options: [
        ...options,
        { number: OPTIONS.etag, value: etag },
        uintOption(OPTIONS.block2, blockValue({ ...block, hasMore })),
      ],
      payload: payload.subarray(at, at + size),
    }
  }
}
