/**
 * Header compression of HTTP/2 (RFC 7541) as far as a caller needs it that allows the other side no dynamic table: fields
 * are written as literals, and read whichever way they were written.
 */

/** RFC 7541 Appendix B: bits of the code of each byte, and of the end. Codes of one length rise with their symbol. */
const CODE_BITS = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
  28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6,
  5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23,
  22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22,
  23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26,
  20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27,
  27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27,
  27, 27, 27, 26, 30,
]
const END_OF_STRING = 256
const MAX_CODE_BITS = 30
/** RFC 7541 Appendix A: `:status` has these values from index 8 on; what the other entries say does not matter here. */
const STATUS_INDEX = 8
const STATUSES = ['200', '204', '206', '304', '400', '404', '500']
const STATIC_ENTRIES = 61
const MAX_INTEGER = 2 ** 28

/** Writes a block of literals that nobody on the way may index (RFC 7541 section 6.2.3): a secret may be among them. */
export function encodeHeaders(fields: Readonly<Record<string, string>>): Buffer {
  const parts = Object.entries(fields).flatMap(([name, value]) => [
    Buffer.of(0x10),
    encodeText(Buffer.from(name, 'latin1')),
    encodeText(Buffer.from(value, 'latin1')),
  ])
  return Buffer.concat(parts)
}

/** As it is, without the Huffman code. */
function encodeText(text: Buffer): Buffer {
  if (text.length < 0x7f) return Buffer.concat([Buffer.of(text.length), text])
  const length = [0x7f]
  let rest = text.length - 0x7f
  for (; rest > 0x7f; rest >>= 7) length.push((rest & 0x7f) | 0x80)
  return Buffer.concat([Buffer.from([...length, rest]), text])
}

/** Fields of a block by name; names of the static table other than `:status` are left out. Throws when it is no such block. */
export function decodeHeaders(block: Buffer): Map<string, string> {
  const fields = new Map<string, string>()
  const reader = new BlockReader(block)
  while (!reader.isAtEnd) {
    const first = reader.peek()
    if ((first & 0x80) !== 0) {
      const status = STATUSES[staticEntry(reader.integer(7)) - STATUS_INDEX]
      if (status !== undefined) fields.set(':status', status)
    } else if ((first & 0xe0) === 0x20) {
      if (reader.integer(5) !== 0) throw new Error('headers: a dynamic table is used that was not offered')
    } else {
      // With indexing, too: a table of no size forgets the entry at once (RFC 7541 section 4.4).
      const index = reader.integer((first & 0x40) === 0 ? 4 : 6)
      const name = index === 0 ? reader.text() : nameOf(staticEntry(index))
      const value = reader.text()
      if (name !== '') fields.set(name, value)
    }
  }
  return fields
}

function nameOf(entry: number): string {
  return entry >= STATUS_INDEX && entry < STATUS_INDEX + STATUSES.length ? ':status' : ''
}

function staticEntry(index: number): number {
  if (index < 1 || index > STATIC_ENTRIES) throw new Error(`headers: there is no entry ${index}`)
  return index
}

class BlockReader {
  readonly #block: Buffer
  #position = 0

  constructor(block: Buffer) {
    this.#block = block
  }

  get isAtEnd(): boolean {
    return this.#position === this.#block.length
  }

  peek(): number {
    const byte = this.#block[this.#position]
    if (byte === undefined) throw new Error('headers: the block ends early')
    return byte
  }

  #next(): number {
    const byte = this.peek()
    this.#position += 1
    return byte
  }

  /** RFC 7541 section 5.1. */
  integer(prefixBits: number): number {
    const max = 2 ** prefixBits - 1
    let value = this.#next() & max
    if (value < max) return value
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#next()
      value += (byte & 0x7f) * scale
      if (value > MAX_INTEGER) throw new Error('headers: a number is too large')
      if (byte <= 0x7f) return value
    }
  }

  /** RFC 7541 section 5.2. */
  text(): string {
    const isCoded = (this.peek() & 0x80) !== 0
    const end = this.integer(7) + this.#position
    if (end > this.#block.length) throw new Error('headers: the block ends early')
    const bytes = this.#block.subarray(this.#position, end)
    this.#position = end
    return isCoded ? decodeHuffman(bytes) : bytes.toString('latin1')
  }
}

/** By number of bits: the first code, and the symbols in the order of their codes. */
type Lengths = { first: number; symbols: number[] }[]

const LENGTHS: Lengths = canonicalCodes()

function canonicalCodes(): Lengths {
  const lengths: Lengths = []
  let code = 0
  for (let bits = 0; bits <= MAX_CODE_BITS; bits++) {
    const symbols = CODE_BITS.flatMap((found, symbol) => (found === bits ? [symbol] : []))
    lengths.push({ first: code, symbols })
    code = (code + symbols.length) * 2
  }
  return lengths
}

function decodeHuffman(bytes: Buffer): string {
  const text: number[] = []
  let code = 0
  let bits = 0
  for (const byte of bytes) {
    for (let shift = 7; shift >= 0; shift--) {
      code = code * 2 + ((byte >> shift) & 1)
      bits += 1
      const length = LENGTHS[bits]
      const symbol = length?.symbols[code - length.first]
      if (symbol === END_OF_STRING || bits > MAX_CODE_BITS) throw new Error('headers: a text is wrongly coded')
      if (symbol === undefined) continue
      text.push(symbol)
      code = 0
      bits = 0
    }
  }
  // The rest is the beginning of the end's code, all ones (RFC 7541 section 5.2).
  if (bits > 7 || code !== 2 ** bits - 1) throw new Error('headers: a text ends within a code')
  return Buffer.from(text).toString('latin1')
}
