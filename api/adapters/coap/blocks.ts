/** Block options (RFC 7959 section 2.2): which part of a body a message carries. */
import { ServiceError } from '#core/errors/index.ts'

export type Block = {
  number: number
  /** Further blocks follow. */
  hasMore: boolean
  /** The exponent of the size: 0 is 16 bytes, 6 is 1,024. */
  exponent: number
}

/** The exponent of the largest block; 7 is reserved over UDP. */
export const MAX_SIZE_EXPONENT = 6
const RESERVED_EXPONENT = 7

export const blockSize = ({ exponent }: Block): number => 2 ** (exponent + 4)

/**
 * Returns a block at the same offset with at most `maxBytes` bytes (RFC 7959 section 2.4). The smallest block has 16 bytes,
 * also when `maxBytes` is smaller.
 */
export function reduceBlockSize(block: Block, maxBytes: number): Block {
  let { number, exponent } = block
  while (exponent > 0 && 2 ** (exponent + 4) > maxBytes) {
    exponent--
    number *= 2
  }
  return { ...block, number, exponent }
}

/** Throws `malformed` for the reserved size. */
export function parseBlock(value: number | undefined): Block | undefined {
  if (value === undefined) return undefined
  const exponent = value & 7
  if (exponent === RESERVED_EXPONENT) throw new ServiceError('malformed', 'a block must have 16 to 1024 bytes')
  return { number: value >> 4, hasMore: (value & 8) !== 0, exponent }
}

/** Returns the value of the block option. */
export function blockValue({ number, hasMore, exponent }: Block): number {
  return (number << 4) | (hasMore ? 8 : 0) | exponent
}
