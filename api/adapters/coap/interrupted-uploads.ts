/**
 * Uploads that were replaced or ended while their sender may still send the next block. Requests of one endpoint that differ in nothing but
 * their payload cannot be told apart (RFC 7959 section 2.5), so their next blocks are recognized by position.
 */
import { createHash } from 'node:crypto'

/** MAX_TRANSMIT_SPAN (RFC 7252 section 4.8.2): a block is sent for the last time at most so long after the first. */
const RETRANSMITTED_MS = 45_000
/** The limit of one key, which is what one client can start at the same time. */
const MAX_OF_KEY = 256
/** The limit of all keys, about 200 bytes each; above it, the key that was interrupted least recently is dropped. */
const MAX_OF_ALL = 50_000

/** `digest`: of all bytes before the next block. */
type Interrupted = { digest: string; token: string; untilMs: number }

/** Uploads that would continue at one position, and how many of their senders were refused. It is unknown which. */
type Position = { uploads: Interrupted[]; refused: number }

export class InterruptedUploads {
  /** The inner key is the position of the next block. The key that was interrupted least recently comes first. */
  readonly #byKey = new Map<string, Map<number, Position>>()
  readonly #nowMs: () => number
  #count = 0

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  isFull(key: string): boolean {
    let count = 0
    for (const nextAt of this.#byKey.get(key)?.keys() ?? []) count += this.#at(key, nextAt)?.uploads.length ?? 0
    return count >= MAX_OF_KEY
  }

  add(key: string, bytes: Buffer, token: string): void {
    const positions = this.#byKey.get(key) ?? new Map<number, Position>()
    this.#byKey.delete(key)
    this.#byKey.set(key, positions)
    const position = this.#at(key, bytes.length) ?? { uploads: [], refused: 0 }
    positions.set(bytes.length, position)
    position.uploads.push({ digest: digestOf(bytes), token, untilMs: this.#nowMs() + RETRANSMITTED_MS })
    this.#count++
    for (const [oldest, dropped] of this.#byKey) {
      if (this.#count <= MAX_OF_ALL) return
      for (const [nextAt, { uploads }] of dropped) this.#drop(oldest, nextAt, uploads.length)
    }
  }

  /** The sender of an upload that would continue at `nextAt` received a refusal, so it restarts. */
  refused(key: string, nextAt: number): void {
    const position = this.#at(key, nextAt)
    if (position === undefined) return
    position.refused++
    if (position.refused >= position.uploads.length) this.#drop(key, nextAt, position.uploads.length)
  }

  /** Returns the uploads that would continue at `nextAt` but began with other bytes. */
  differing(key: string, nextAt: number, bytes: () => Buffer): readonly Interrupted[] {
    const position = this.#at(key, nextAt)
    if (position === undefined) return []
    const digest = digestOf(bytes())
    return position.uploads.filter((upload) => upload.digest !== digest)
  }

  /** True if an upload that began with these bytes would continue at `nextAt`. */
  hasEqual(key: string, nextAt: number, bytes: () => Buffer): boolean {
    const position = this.#at(key, nextAt)
    if (position === undefined) return false
    const digest = digestOf(bytes())
    return position.uploads.some((upload) => upload.digest === digest)
  }

  sweep(): void {
    for (const [key, positions] of this.#byKey) {
      for (const nextAt of positions.keys()) this.#at(key, nextAt)
      if (this.#byKey.has(key)) return
    }
  }

  /** Undefined when all have expired. */
  #at(key: string, nextAt: number): Position | undefined {
    const position = this.#byKey.get(key)?.get(nextAt)
    if (position === undefined) return undefined
    const last = position.uploads.at(-1)
    if (last !== undefined && this.#nowMs() < last.untilMs) return position
    this.#drop(key, nextAt, position.uploads.length)
    return undefined
  }

  #drop(key: string, nextAt: number, count: number): void {
    const positions = this.#byKey.get(key)
    positions?.delete(nextAt)
    if (positions?.size === 0) this.#byKey.delete(key)
    this.#count -= count
  }
}

const digestOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('base64')
