/** Counts the frames of a stream, however it is split. */
export type Wire = { frames: number; bytes: number }

export type FrameFormat = {
  headerBytes: number
  /** Place and size of the length of what follows the header. */
  lengthAt: number
  lengthBytes: number
  isLittleEndian?: boolean
}

export class FrameCounter {
  readonly #wire: Wire
  readonly #format: FrameFormat
  readonly #header: Buffer
  #filled = 0
  #toSkip: number

  /** `prefaceBytes` come before the first frame. */
  constructor(wire: Wire, format: FrameFormat, prefaceBytes = 0) {
    this.#wire = wire
    this.#format = format
    this.#header = Buffer.alloc(format.headerBytes)
    this.#toSkip = prefaceBytes
  }

  push(chunk: Buffer): void {
    this.#wire.bytes += chunk.length
    for (let at = 0; at < chunk.length;) at += this.#take(chunk, at)
  }

  /** Returns the number of bytes taken. */
  #take(chunk: Buffer, at: number): number {
    if (this.#toSkip > 0) {
      const skipped = Math.min(this.#toSkip, chunk.length - at)
      this.#toSkip -= skipped
      return skipped
    }
    const { headerBytes, lengthAt, lengthBytes, isLittleEndian = false } = this.#format
    const part = Math.min(headerBytes - this.#filled, chunk.length - at)
    chunk.copy(this.#header, this.#filled, at, at + part)
    this.#filled += part
    if (this.#filled === headerBytes) {
      this.#wire.frames += 1
      this.#filled = 0
      this.#toSkip = isLittleEndian
        ? this.#header.readUIntLE(lengthAt, lengthBytes)
        : this.#header.readUIntBE(lengthAt, lengthBytes)
    }
    return part
  }
}
