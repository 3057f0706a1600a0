/** Cuts the bytes of a connection into packets (section 2.1): what lies whole in a chunk is read where it lies. */
import { REASON } from './reason-codes.ts'
import { ProtocolError, malformed } from './wire.ts'

/** `first` is the first byte of the fixed header; the packet's other bytes lie between `start` and `end`. */
export type TakeFrame = (first: number, bytes: Buffer, start: number, end: number) => void

/** Type and flags, and up to four bytes of the remaining length. */
const MAX_HEADER_BYTES = 5

export class Frames {
  /** The beginning of a packet whose end has not come: its parts, and how many bytes they have. */
  #parts: Buffer[] = []
  #collected = 0
  /** Bytes of the packet that is being collected; 0: its header is not whole. */
  #wanted = 0
  /** Larger packets are refused by their header alone. */
  maxPacketBytes: number

  constructor(maxPacketBytes: number) {
    this.maxPacketBytes = maxPacketBytes
  }

  /** Bytes that wait for the rest of their packet. */
  get collectedBytes(): number {
    return this.#collected
  }

  /** Throws `ProtocolError` for a length that is none or too large, and what `take` throws; nothing may follow then. */
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
      // A copy, so that a few bytes do not keep the whole chunk.
      this.#parts = [Buffer.from(bytes.subarray(at))]
      this.#collected = bytes.length - at
    }
  }

  #join(): Buffer {
    return this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts)
  }
}

/** Undefined: the header is not whole. */
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
