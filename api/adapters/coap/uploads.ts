/** Blockwise uploads (RFC 7959 section 2.5), within limits of memory. */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Block } from './blocks.ts'
import { blockSize } from './blocks.ts'
import { CODES } from './message.ts'
import { CoapRefusal } from './options.ts'

/** The limit of all unfinished bodies; above it, the one that has waited longest for its next block is dropped. */
const MAX_WAITING_BYTES = 64 * 1024 * 1024
const MAX_UPLOADS = 10_000
/** EXCHANGE_LIFETIME (RFC 7252 section 4.8.2): after this silence, the upload must start again. */
const IDLE_MS = 247_000
const FIRST_BYTES = 4096

type Upload = { bytes: Buffer; length: number; lastAt: number }

export class Uploads {
  /** The upload that has waited longest comes first. */
  readonly #uploads = new Map<string, Upload>()
  readonly #maxBodyBytes: number
  #waitingBytes = 0

  constructor(maxBodyBytes: number) {
    this.#maxBodyBytes = maxBodyBytes
  }

  get size(): number {
    return this.#uploads.size
  }

  /**
   * Adds a block of the body that `key` identifies by peer and resource; returns the whole body with the last block, undefined before. A
   * repeated block replaces its bytes, and the body continues after it. Throws `too_large`, `malformed`, and a refusal when blocks are
   * missing.
   */
  take(key: string, block: Block, payload: Buffer, declaredBytes: number | undefined): Buffer | undefined {
    const size = blockSize(block)
    const at = block.number * size
    if (payload.length > size || (block.hasMore && payload.length !== size)) {
      throw new ServiceError('malformed', 'a block must have the size in its Block1 option')
    }
    if (at + payload.length > this.#maxBodyBytes || (declaredBytes ?? 0) > this.#maxBodyBytes) {
      this.#remove(key)
      throw new ServiceError('too_large', `the body must have at most ${this.#maxBodyBytes} bytes`)
    }
    if (block.number === 0 && !block.hasMore) {
      this.#remove(key)
      return payload
    }
    const upload = this.#begun(key, block.number)
    if (at > upload.length) throw new CoapRefusal(CODES.requestEntityIncomplete, 'blocks before this one are missing')
    this.#write(upload, at, payload)
    this.#touch(key, upload)
    if (block.hasMore) return undefined
    this.#remove(key)
    return upload.bytes.subarray(0, upload.length)
  }

  /** Removes abandoned uploads. */
  sweep(): void {
    const now = monotonicMs()
    for (const [key, { lastAt }] of this.#uploads) {
      if (now - lastAt < IDLE_MS) return
      this.#remove(key)
    }
  }

  /** Block 0 starts a new upload. */
  #begun(key: string, blockNumber: number): Upload {
    const found = this.#uploads.get(key)
    if (blockNumber > 0 && found !== undefined) return found
    if (blockNumber > 0) throw new CoapRefusal(CODES.requestEntityIncomplete, 'restart with the first block')
    this.#remove(key)
    this.#waitingBytes += FIRST_BYTES
    return { bytes: Buffer.allocUnsafeSlow(FIRST_BYTES), length: 0, lastAt: 0 }
  }

  #write(upload: Upload, at: number, payload: Buffer): void {
    const end = at + payload.length
    if (end > upload.bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.min(Math.max(end, upload.bytes.length * 2), this.#maxBodyBytes))
      upload.bytes.copy(larger, 0, 0, upload.length)
      this.#waitingBytes += larger.length - upload.bytes.length
      upload.bytes = larger
    }
    payload.copy(upload.bytes, at)
    upload.length = end
  }

  #touch(key: string, upload: Upload): void {
    upload.lastAt = monotonicMs()
    this.#uploads.delete(key)
    this.#uploads.set(key, upload)
    for (const [oldest] of this.#uploads) {
      if (oldest === key || (this.#waitingBytes <= MAX_WAITING_BYTES && this.#uploads.size <= MAX_UPLOADS)) return
      this.#remove(oldest)
    }
  }

  #remove(key: string): void {
    const upload = this.#uploads.get(key)
    if (upload === undefined) return
    this.#uploads.delete(key)
    this.#waitingBytes -= upload.bytes.length
  }
}
