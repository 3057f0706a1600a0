/** Parses and formats the data types of MQTT (5.0 section 1.5); only text is copied. */
import { isUtf8 } from 'node:buffer'
import { leb128, leb128Length, writeLeb128 } from '#core/bytes/index.ts'
import { REASON } from './reason-codes.ts'

/** The peer violated the protocol: the connection is closed, in 5.0 with a DISCONNECT that carries the code. */
export class ProtocolError extends Error {
  readonly reasonCode: number

  constructor(reasonCode: number, message: string) {
    super(message)
    this.reasonCode = reasonCode
  }
}

export function malformed(message: string): ProtocolError {
  return new ProtocolError(REASON.malformedPacket, message)
}

export function protocolError(message: string): ProtocolError {
  return new ProtocolError(REASON.protocolError, message)
}

/** The largest value of a variable byte integer (section 1.5.5). */
export const MAX_VARINT = 268_435_455

/** A cursor over the bytes of one packet. Throws `ProtocolError` for truncated and invalid values. */
export class PacketReader {
  readonly #bytes: Buffer
  readonly #end: number
  #at: number

  constructor(bytes: Buffer, start: number, end: number) {
    this.#bytes = bytes
    this.#at = start
    this.#end = end
  }

  get isAtEnd(): boolean {
    return this.#at === this.#end
  }

  get remaining(): number {
    return this.#end - this.#at
  }

  #take(length: number): number {
    const at = this.#at
    if (at + length > this.#end) throw malformed('the packet ends before its last field')
    this.#at = at + length
    return at
  }

  byte(): number {
    return this.#bytes[this.#take(1)] as number
  }

  uint16(): number {
    const at = this.#take(2)
    return ((this.#bytes[at] as number) << 8) | (this.#bytes[at + 1] as number)
  }

  uint32(): number {
    return this.#bytes.readUInt32BE(this.#take(4))
  }

  /** A packet identifier: not 0 [MQTT-2.2.1-3]. */
  packetId(): number {
    const id = this.uint16()
    if (id === 0) throw protocolError('a packet identifier must not be 0')
    return id
  }

  varint(): number {
    let value = 0
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.byte()
      value += (byte & 0x7f) * 2 ** shift
      if (byte < 0x80) return value
    }
    throw malformed('a variable byte integer has more than four bytes')
  }

  /** Well-formed text without U+0000 [MQTT-1.5.4-1, MQTT-1.5.4-2]. */
  text(): string {
    const length = this.uint16()
    const start = this.#take(length)
    const text = this.#bytes.toString('utf8', start, start + length)
    // Invalid UTF-8 is decoded as U+FFFD, which may also have been sent.
    if (text.includes('\u0000') || (text.includes('\uFFFD') && !isUtf8(this.#bytes.subarray(start, start + length))))
      throw malformed('text must be well-formed UTF-8 without the null character')
    return text
  }

  binary(): Buffer {
    const length = this.uint16()
    return Buffer.from(this.bytes(length))
  }

  /** A view of the next bytes. */
  bytes(length: number): Buffer {
    const start = this.#take(length)
    return this.#bytes.subarray(start, start + length)
  }

  /** A reader of the next bytes only. */
  part(length: number): PacketReader {
    const start = this.#take(length)
    return new PacketReader(this.#bytes, start, start + length)
  }

  requireEnd(): void {
    if (!this.isAtEnd) throw malformed('the packet has bytes after its last field')
  }
}

/** Collects the bytes of a packet after its fixed header. */
export class PacketWriter {
  #bytes = Buffer.allocUnsafe(128)
  #length = 0

  /** Returns the offset where the next bytes go. It may replace `#bytes`: call it before `#bytes` is read. */
  #room(length: number): number {
    const at = this.#length
    if (at + length > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, at + length))
      this.#bytes.copy(larger, 0, 0, at)
      this.#bytes = larger
    }
    this.#length = at + length
    return at
  }

  byte(value: number): this {
    const at = this.#room(1)
    this.#bytes[at] = value
    return this
  }

  uint16(value: number): this {
    const at = this.#room(2)
    this.#bytes.writeUInt16BE(value, at)
    return this
  }

  uint32(value: number): this {
    const at = this.#room(4)
    this.#bytes.writeUInt32BE(value, at)
    return this
  }

  varint(value: number): this {
    return this.bytes(leb128(value))
  }

  text(value: string): this {
    const length = Buffer.byteLength(value)
    this.uint16(length)
    const at = this.#room(length)
    this.#bytes.write(value, at, 'utf8')
    return this
  }

  binary(value: Uint8Array): this {
    return this.uint16(value.length).bytes(value)
  }

  bytes(value: Uint8Array): this {
    const at = this.#room(value.length)
    this.#bytes.set(value, at)
    return this
  }

  get length(): number {
    return this.#length
  }

  get written(): Buffer {
    return this.#bytes.subarray(0, this.#length)
  }

  /** The whole packet: fixed header (section 2.1) and the written bytes. */
  packet(type: number, flags = 0): Buffer {
    const head = leb128Length(this.#length) + 1
    const packet = Buffer.allocUnsafe(head + this.#length)
    packet[0] = (type << 4) | flags
    writeLeb128(packet, 1, this.#length)
    this.#bytes.copy(packet, head, 0, this.#length)
    return packet
  }
}
