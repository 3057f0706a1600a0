/** Keeps and forwards the first bytes that a guest writes to stdout or stderr, and counts the rest. */
import { concatenate, textOrBytes, wholeCharactersLength } from '#core/bytes/index.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'

const LINE_FEED = 0x0a
/** The end of an output that explains a failure. */
const MAX_LAST_BYTES = 2 * 1024

export class BoundedOutput {
  readonly #maxBytes: number
  readonly #onKept: (data: Uint8Array) => void
  readonly #chunks: Uint8Array[] = []
  #keptBytes = 0
  #droppedBytes = 0
  /** The last of the dropped bytes. */
  #droppedEnd: Uint8Array = new Uint8Array()

  constructor(maxBytes: number, onKept: (data: Uint8Array) => void) {
    this.#maxBytes = maxBytes
    this.#onKept = onKept
  }

  get isTruncated(): boolean {
    return this.#droppedBytes > 0
  }

  /** Reports all bytes as written: a guest that gets "disk full" would behave differently. */
  write(data: Uint8Array): void {
    const kept = data.subarray(0, this.#maxBytes - this.#keptBytes)
    if (kept.length > 0) {
      this.#chunks.push(kept)
      this.#onKept(kept)
    }
    this.#keptBytes += kept.length
    this.#droppedBytes += data.length - kept.length
    if (data.length === kept.length) return
    const dropped = data.subarray(kept.length).subarray(-MAX_LAST_BYTES)
    this.#droppedEnd = concatenate([this.#droppedEnd, dropped]).subarray(-MAX_LAST_BYTES)
  }

  /** The kept bytes: text if they are UTF-8, with a mark where it was truncated. */
  content(): TextOrBytes {
    const bytes = concatenate(this.#chunks)
    const whole = this.isTruncated ? bytes.subarray(0, wholeCharactersLength(bytes)) : bytes
    const content = textOrBytes(whole)
    if (typeof content !== 'string') return textOrBytes(bytes)
    return this.isTruncated ? `${content}\n[truncated: ${this.#droppedBytes} more bytes]\n` : content
  }

  /** The last lines, at most 2 KiB, for an error message: bytes that are not UTF-8 are shown as `?`. */
  lastLines(): string {
    const ends: Uint8Array[] = [this.#droppedEnd]
    for (let at = this.#chunks.length - 1, bytes = 0; at >= 0 && bytes < MAX_LAST_BYTES; at--) {
      const chunk = this.#chunks[at] as Uint8Array
      ends.unshift(chunk.subarray(-MAX_LAST_BYTES))
      bytes += chunk.length
    }
    const all = concatenate(ends)
    const last = all.subarray(-MAX_LAST_BYTES)
    const isCut = this.#keptBytes + this.#droppedBytes > last.length
    const lineEnd = isCut ? last.indexOf(LINE_FEED) : -1
    const text = new TextDecoder().decode(last.subarray(lineEnd + 1)).replaceAll('\uFFFD', '?')
    return text.replaceAll(/[^\P{C}\n\t]/gu, '').trim()
  }
}
