/** Blockwise uploads (RFC 7959 section 2.5), within limits of memory. */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Block } from './blocks.ts'
import { blockSize } from './blocks.ts'
import { CODES } from './message.ts'
import { InterruptedUploads } from './interrupted-uploads.ts'
import { CoapRefusal } from './options.ts'

/** The limit of all unfinished bodies; above it, the one that has waited longest for its next block is dropped. */
const MAX_WAITING_BYTES = 64 * 1024 * 1024
const MAX_UPLOADS = 10_000
/** EXCHANGE_LIFETIME (RFC 7252 section 4.8.2): after this silence, the upload must start again. */
const IDLE_MS = 247_000
const FIRST_BYTES = 4096

/** `token`: of the request with the first block. */
type Upload = { bytes: Buffer; length: number; token: string; lastAt: number }

/** A block of a request; `declaredBytes` is the size of the whole body according to the peer. */
export type UploadedBlock = {
  block: Block
  payload: Buffer
  token: Buffer
  declaredBytes: number | undefined
}

type Received = { at: number; payload: Buffer; sender: string }

export class Uploads {
  /** The upload that has waited longest comes first. */
  readonly #uploads = new Map<string, Upload>()
  readonly #maxBodyBytes: number
  readonly #interrupted: InterruptedUploads
  readonly #nowMs: () => number
  #waitingBytes = 0

  /** `nowMs`: a monotonic clock. */
  constructor(maxBodyBytes: number, nowMs: () => number = monotonicMs) {
    this.#maxBodyBytes = maxBodyBytes
    this.#nowMs = nowMs
    this.#interrupted = new InterruptedUploads(nowMs)
  }

  get size(): number {
    return this.#uploads.size
  }

  /**
   * Adds a block of the body that `key` identifies by peer and request; returns the whole body with the last block, undefined before. A first
   * block always starts a body. A repeated block must be equal, and the body continues after it. A block that does not follow is refused and
   * changes nothing. A block that differs from the received one, or that may belong to another upload, ends the upload: a body never has
   * blocks of two. Throws `too_large`, `malformed`, and a refusal with 4.08.
   */
  take(key: string, { block, payload, token, declaredBytes }: UploadedBlock): Buffer | undefined {
    const size = blockSize(block)
    const at = block.number * size
    if (payload.length > size || (block.hasMore && payload.length !== size)) {
      throw new ServiceError('malformed', 'a block must have the size in its Block1 option')
    }
    const isOnly = at === 0 && !block.hasMore
    if ((declaredBytes ?? 0) > this.#maxBodyBytes || (isOnly && payload.length > this.#maxBodyBytes))
      throw this.#tooLarge()
    // A body of one block leaves other uploads alone.
    if (isOnly) return payload
    const received = { at, payload, sender: token.toString('hex') }
    const upload = at === 0 ? this.#start(key, received) : this.#find(key, received)
    // Another upload began with the same bytes, so this may be a block of its sender, or of both.
    const isShared = at > 0 && this.#interrupted.hasEqual(key, at, () => upload.bytes.subarray(0, at))
    if (at < upload.length) this.#compare(key, upload, received)
    else this.#append(key, upload, received)
    this.#touch(key, upload)
    const body = upload.bytes.subarray(0, at + payload.length)
    if (block.hasMore) {
      // The sender of an equal block of another upload is behind this upload, or continues at its end when it is gone.
      if (isShared || body.length < upload.length) this.#interrupted.add(key, body, received.sender)
      return undefined
    }
    // A shorter body that begins equally.
    if (body.length < upload.length) this.#interrupt(key)
    this.#remove(key)
    return body
  }

  /** Removes abandoned uploads. */
  sweep(): void {
    const now = this.#nowMs()
    this.#interrupted.sweep()
    for (const [key, { lastAt }] of this.#uploads) {
      if (now - lastAt < IDLE_MS) return
      this.#remove(key)
    }
  }

  #start(key: string, { sender }: Received): Upload {
    if (this.#interrupted.isFull(key)) throw incomplete(`too many unfinished uploads: ${ONE_AT_A_TIME}`)
    this.#interrupt(key)
    this.#waitingBytes += FIRST_BYTES
    return { bytes: Buffer.allocUnsafeSlow(FIRST_BYTES), length: 0, token: sender, lastAt: 0 }
  }

  /** Throws when the block does not follow an upload, or may not belong to it. */
  #find(key: string, { at, sender }: Received): Upload {
    const upload = this.#uploads.get(key)
    if (upload === undefined || at > upload.length) {
      this.#interrupted.refused(key, at)
      throw incomplete(upload === undefined ? 'restart with the first block' : 'blocks before this one are missing')
    }
    const others = this.#interrupted.differing(key, at, () => upload.bytes.subarray(0, at))
    if (others.length === 0) return upload
    // Many clients use one token for all blocks of an upload. The standard does not require it.
    const isOfOther = others.some(({ token }) => token === sender)
    if (upload.token === sender && !isOfOther) return upload
    if (upload.token === sender || !isOfOther) this.#interrupt(key)
    this.#interrupted.refused(key, at)
    throw incomplete(`this block may belong to another upload: ${ONE_AT_A_TIME}`)
  }

  /** A repeated block. */
  #compare(key: string, upload: Upload, { at, payload }: Received): void {
    const end = at + payload.length
    if (end > upload.length || !upload.bytes.subarray(at, end).equals(payload)) {
      this.#interrupt(key)
      this.#interrupted.refused(key, at)
      throw incomplete(`this block differs from the one that was received: ${ONE_AT_A_TIME}`)
    }
  }

  #append(key: string, upload: Upload, { at, payload }: Received): void {
    if (at + payload.length > this.#maxBodyBytes) {
      this.#remove(key)
      throw this.#tooLarge()
    }
    this.#write(upload, at, payload)
  }

  /** Drops an upload whose sender does not know it. */
  #interrupt(key: string): void {
    const upload = this.#uploads.get(key)
    if (upload !== undefined) this.#interrupted.add(key, upload.bytes.subarray(0, upload.length), upload.token)
    this.#remove(key)
  }

  #tooLarge(): ServiceError {
    return new ServiceError('too_large', `the body must have at most ${this.#maxBodyBytes} bytes`)
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
    upload.lastAt = this.#nowMs()
    this.#uploads.delete(key)
    this.#uploads.set(key, upload)
    for (const [oldest] of this.#uploads) {
      if (oldest === key || (this.#waitingBytes <= MAX_WAITING_BYTES && this.#uploads.size <= MAX_UPLOADS)) return
      this.#interrupt(oldest)
    }
  }

  #remove(key: string): void {
    const upload = this.#uploads.get(key)
    if (upload === undefined) return
    this.#uploads.delete(key)
    this.#waitingBytes -= upload.bytes.length
  }
}

const ONE_AT_A_TIME = 'restart, and send one upload after another or with Request-Tag'

function incomplete(message: string): CoapRefusal {
  return new CoapRefusal(CODES.requestEntityIncomplete, message)
}
