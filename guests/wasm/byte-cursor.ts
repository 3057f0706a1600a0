/**
 * Reads the primitive values of the WebAssembly binary format (WebAssembly 3.0 section 5.2) from a range of bytes. It is as strict as the
 * specification: an engine must never read a different value from the same bytes.
 */
import { ModuleRefusal } from './module-refusal.ts'

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export class ByteCursor {
  readonly bytes: Uint8Array
  readonly end: number
  offset: number

  constructor(bytes: Uint8Array, offset = 0, end = bytes.length) {
    this.bytes = bytes
    this.offset = offset
    this.end = end
  }

  get isAtEnd(): boolean {
    return this.offset >= this.end
  }

  get remaining(): number {
    return this.end - this.offset
  }

  byte(): number {
    if (this.offset >= this.end) throw truncated(this.end)
    return this.bytes[this.offset++] as number
  }

  /** The next byte without consuming it. */
  peek(): number {
    if (this.offset >= this.end) throw truncated(this.end)
    return this.bytes[this.offset] as number
  }

  skip(count: number): void {
    if (count > this.remaining) throw truncated(this.end)
    this.offset += count
  }

  /** Unsigned LEB128 of 32 bits: at most five bytes, the unused bits of the last one zero (section 5.2.2). */
  u32(): number {
    let result = 0
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte()
      if (shift === 28 && byte > 0x0f) throw new ModuleRefusal(`not a 32-bit integer at byte ${this.offset - 1}`)
      result += (byte & 0x7f) * 2 ** shift
      if (byte < 0x80) return result
    }
    throw new ModuleRefusal(`not a 32-bit integer at byte ${this.offset - 1}`)
  }

  /** Unsigned LEB128 of 64 bits: at most ten bytes. */
  u64(): bigint {
    let result = 0n
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte()
      if (shift === 63n && byte > 0x01) break
      result |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return result
    }
    throw new ModuleRefusal(`not a 64-bit integer at byte ${this.offset - 1}`)
  }

  /** Skips a signed LEB128 of 33 bits, at most five bytes. */
  skipSigned33(): void {
    for (let taken = 0; taken < 5; taken++) if (this.byte() < 0x80) return
    throw new ModuleRefusal(`not a 33-bit integer at byte ${this.offset - 1}`)
  }

  /** The length of a vector. Elements take at least one byte each, so an excessive length is detected before it costs memory. */
  count(what: string, max: number): number {
    const count = this.u32()
    if (count > max) throw new ModuleRefusal(`the module has ${count} ${what}, at most ${max} are accepted`)
    if (count > this.remaining) throw truncated(this.end)
    return count
  }

  /** A name: a length in bytes and well-formed UTF-8 (section 5.2.4). */
  name(): string {
    const length = this.u32()
    const start = this.offset
    this.skip(length)
    try {
      return utf8.decode(this.bytes.subarray(start, this.offset))
    } catch {
      throw new ModuleRefusal(`a name at byte ${start} is not UTF-8`)
    }
  }
}

function truncated(at: number): ModuleRefusal {
  return new ModuleRefusal(`the module is truncated or has an invalid length near byte ${at}`)
}
