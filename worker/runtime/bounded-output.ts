/** Keeps the first bytes that a guest writes to stdout or stderr and passes them on, and counts the rest. */

export class BoundedOutput {
  readonly #maxBytes: number
  readonly #onKept: (data: Uint8Array) => void
  readonly #chunks: Uint8Array[] = []
  #keptBytes = 0
  #droppedBytes = 0

  constructor(maxBytes: number, onKept: (data: Uint8Array) => void) {
    this.#maxBytes = maxBytes
    this.#onKept = onKept
  }

  get isTruncated(): boolean {
    return this.#droppedBytes > 0
  }

  /** Takes all of it as written: a guest that is told "disk full" behaves differently from one that is not heard. */
  write(data: Uint8Array): void {
    const kept = data.subarray(0, this.#maxBytes - this.#keptBytes)
    if (kept.length > 0) {
      this.#chunks.push(kept)
      this.#onKept(kept)
    }
    this.#keptBytes += kept.length
    this.#droppedBytes += data.length - kept.length
  }

  /**
   * The text, with a mark where it was cut. Bytes that are not UTF-8 become U+FFFD, and so does NUL, which no text of
   * the database can hold.
   */
  text(): string {
    const text = new TextDecoder().decode(Buffer.concat(this.#chunks)).replaceAll('\u0000', '\uFFFD')
    return this.isTruncated ? `${text}\n[truncated: ${this.#droppedBytes} more bytes]\n` : text
  }
}
