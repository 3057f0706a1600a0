/** Splits the bytes of a connection into packets (section 2.1); a packet within one chunk is not copied. */
import { REASON } from './reason-codes.ts'
import { ProtocolError, malformed } from './wire.ts'

/** `first` is the first byte of the fixed header; the packet's other bytes are between `start` and `end`. */
export type TakeFrame = (first: number, bytes: Buffer, start: number, end: number) => void

/** Type and flags, and up to four bytes of the remaining length. */
const MAX_HEADER_BYTES = 5

export class Frames {
  /** The parts of an incomplete packet, and their total length. */
  #parts: Buffer[] = []
  #collected = 0
  /** The length of the incomplete packet; 0: its header is incomplete. */
  #wanted = 0
  /** Larger packets are rejected by their header. */
  maxPacketBytes: number

  constructor(maxPacketBytes: number) {
    this.maxPacketBytes = maxPacketBytes
  }

  /** Bytes of the incomplete packet. */
  get collectedBytes(): number {
    return this.#collected
  }

  /** Throws `ProtocolError` for an invalid or excessive length, and the errors of `take`; do not call it again then. */
  push(chunk: Buffer, take: TakeFrame): void {
    let bytes = chunk
    if (this.#collected > 0) {
      this.#parts.push(chunk)
      this.#collected += chunk.length
      if (this.#wanted === 0 && this.#collected < MAX_HEADER_BYTES) bytes = this.#join()
      else if (this.#collected < this.#wanted) return
      else bytes = this.#join()
      this.#parts = []
      this.#collected = 0
      this.#wanted = 0
    }
    let at = 0
    while (at < bytes.length) {
      const header = readHeader(bytes, at)
      if (header === undefined) break
      const size = header.bodyAt - at + header.length
      if (size > this.maxPacketBytes)
        throw new ProtocolError(REASON.packetTooLarge, `a packet must not exceed ${this.maxPacketBytes} bytes`)
      if (at + size > bytes.length) {
        this.#wanted = size
        break
      }
      take(bytes[at] as number, bytes, header.bodyAt, at + size)
      at += size
    }
    if (at < bytes.length) {
      // A copy, so that a few bytes do not retain the whole chunk.
      this.#parts = [Buffer.from(bytes.subarray(at))]
      this.#collected = bytes.length - at
    }
  }

  #join(): Buffer {
    return this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts)
  }
}

/** Undefined: the header is incomplete. */
function readHeader(bytes: Buffer, at: number): { bodyAt: number; length: number } | undefined {
  let length = 0
  for (let index = 1; index < MAX_HEADER_BYTES; index++) {
    const byte = bytes[at + index]
    if (byte === undefined) return undefined
    length += (byte & 0x7f) * 2 ** (7 * (index - 1))
    if (byte < 0x80) return { bodyAt: at + index + 1, length }
  }
  throw malformed('the remaining length has more than four bytes')
}
