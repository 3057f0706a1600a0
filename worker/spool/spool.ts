/**
 * Results until the manager acknowledged them, on disk unless that happens at once. An append-only file: a record per
 * result and per acknowledgement, each with its length and a checksum. Results of one turn of the event loop share a
 * write and a sync; acknowledgements are written with the next result, or a moment later. A file without unacknowledged
 * results is truncated. The bound refuses new runs and removes no result: what a failing disk can lose is in docs/guides/join-a-worker.md.
 */
import { open, rename, rm } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'
import { crc32 } from 'node:zlib'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { syncPath } from '#core/sync-folder.ts'

export type SpooledResult = { key: string; payload: Uint8Array }

/** Beyond this size, a file with mostly acknowledged results is compacted. */
const COMPACT_BYTES = 32 * 1024 * 1024
/** A result with a probable acknowledgement is written if none arrived within this time. */
export const SPOOL_WRITE_DELAY_MS = 100
/** An acknowledgement without a following result is written after this. */
const ACKNOWLEDGE_DELAY_MS = 250
/** Results that could not be written are tried again after this. */
const RETRY_MS = 5_000
/** Length of payload, length of key, kind, checksum. */
const HEADER_BYTES = 4 + 2 + 1 + 4
const KIND_RESULT = 1
const KIND_ACKNOWLEDGED = 2
/** A staged result is at most 16 MiB; a longer record is invalid. */
const MAX_PAYLOAD_BYTES = 32 * 1024 * 1024

/** What a file had besides whole records. */
export type SpoolDamage = {
  /** Bytes that are no record. */
  bytes: number
  /** Whole records follow them: the file was changed. Otherwise its last write did not finish, or it was cut or changed. */
  isInside: boolean
}

type Unwritten = SpooledResult & { dueMs: number; resolve: () => void; reject: (error: unknown) => void }

export class Spool {
  readonly #path: string
  readonly #maxBytes: number
  readonly #held = new Map<string, Uint8Array>()
  #file: FileHandle
  #fileBytes: number
  #heldBytes = 0
  /** The times when the held results came, in the same order. */
  readonly #sinceMs = new Map<string, number>()
  /** Results that wait for their acknowledgement before they are written, oldest first. */
  readonly #deferred = new Map<string, Unwritten>()
  #deferTimer: NodeJS.Timeout | undefined
  /** Results for the next write. */
  #due: Unwritten[] = []
  /** Records of acknowledgements for the next write. */
  #acknowledgements: Uint8Array[] = []
  #writing: Promise<void> | undefined
  /** Unacknowledged results that the disk refused. They are in memory, and are written again later. */
  readonly #refused = new Map<string, Unwritten>()
  /** While it is set, the refused results wait for their next try. */
  #retryTimer: NodeJS.Timeout | undefined
  /** The file is not compacted before this time, because that failed. */
  #noCompactionUntilMs = 0
  /** Undefined: the file was whole when it was opened. */
  damage: SpoolDamage | undefined
  #acknowledging: NodeJS.Timeout | undefined

  private constructor(path: string, file: FileHandle, maxBytes: number) {
    this.#path = path
    this.#file = file
    this.#fileBytes = 0
    this.#maxBytes = maxBytes
  }

  /** Opens or creates the file. What is no whole record is dropped, and told by `damage`. */
  static async open(path: string, options: { maxBytes: number }): Promise<Spool> {
    // Of a process that was killed while it compacted the file.
    await rm(draftOf(path), { force: true })
    const file = await open(path, 'a+', 0o600)
    const spool = new Spool(path, file, options.maxBytes)
    try {
      await spool.#recover()
    } catch (error) {
      await file.close()
      throw error
    }
    return spool
  }

  get size(): number {
    return this.#held.size
  }

  /** Size of the results, in bytes. */
  get bytes(): number {
    return this.#heldBytes
  }

  /** Age of the oldest result in milliseconds, since the start of this process at most; 0: there is none. */
  get oldestMs(): number {
    const [oldest] = this.#sinceMs.values()
    return oldest === undefined ? 0 : monotonicMs() - oldest
  }

  /** True while unacknowledged results exceed the limit, or the disk refuses them: the worker must not accept runs. */
  get isFull(): boolean {
    return this.#heldBytes >= this.#maxBytes || this.isRefused
  }

  /** True while the only copy of a result is in memory, because the disk refused it. */
  get isRefused(): boolean {
    return this.#refused.size > 0
  }

  /** Oldest first. */
  results(): SpooledResult[] {
    return [...this.#held].map(([key, payload]) => ({ key, payload }))
  }

  find(key: string): Uint8Array | undefined {
    return this.#held.get(key)
  }

  /**
   * The result is synced or already acknowledged when this resolves: with `deferred` it waits a moment for that. An existing key is not
   * replaced and is written once.
   */
  add(key: string, payload: Uint8Array, urgency: 'now' | 'deferred' = 'now'): Promise<void> {
    if (this.#held.has(key)) return Promise.resolve()
    this.#hold(key, payload)
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const dueMs = monotonicMs() + SPOOL_WRITE_DELAY_MS
    const result = { key, payload, dueMs, resolve, reject }
    if (urgency === 'now') {
      this.#due.push(result)
      this.#startWriting()
    } else {
      this.#deferred.set(key, result)
      this.#deferTimer ??= setTimeout(() => this.#writeDeferred(), SPOOL_WRITE_DELAY_MS)
    }
    return promise
  }

  /** Removes the result. This is not synced: a lost acknowledgement costs one more delivery of a result, which is recorded once. */
  acknowledge(key: string): void {
    if (!this.#release(key)) return
    this.#refused.delete(key)
    const unwritten = this.#deferred.get(key)
    if (unwritten !== undefined) {
      this.#deferred.delete(key)
      unwritten.resolve()
      return
    }
    this.#acknowledgements.push(encodeRecord(KIND_ACKNOWLEDGED, key, new Uint8Array()))
    this.#writeLater()
  }

  /** Without a session there are no acknowledgements: deferred results are written now. */
  writeDeferredNow(): void {
    this.#due.push(...this.#deferred.values())
    this.#deferred.clear()
    if (this.#due.length > 0) this.#startWriting()
  }

  async close(): Promise<void> {
    clearTimeout(this.#deferTimer)
    // What the disk refused gets its last try now.
    clearTimeout(this.#retryTimer)
    this.#retryTimer = undefined
    this.writeDeferredNow()
    this.#startWriting()
    await this.#writing
    clearTimeout(this.#retryTimer)
    clearTimeout(this.#acknowledging)
    await this.#file.close()
  }

  async #recover(): Promise<void> {
    const content = await this.#file.readFile()
    let end = 0
    let lostInside = 0
    for (let offset = 0; ;) {
      const record = readRecord(content, offset)
      if (record === undefined) {
        // Only a record that is known to begin there is read: a result could contain what looks like one. Several side by side can be damaged.
        let next = endOf(content, offset)
        while (next !== undefined && readRecord(content, next) === undefined) next = endOf(content, next)
        if (next === undefined) break
        lostInside += next - offset
        offset = next
        continue
      }
      if (record.kind === KIND_ACKNOWLEDGED) this.#release(record.key)
      else if (!this.#held.has(record.key)) this.#hold(record.key, record.payload)
      offset = record.end
      end = record.end
    }
    await this.#file.truncate(end)
    this.#fileBytes = end
    const bytes = lostInside + content.length - end
    if (bytes > 0) this.damage = { bytes, isInside: lostInside > 0 }
    // Without the damaged records, which would be told again at each start. It stays as it is on a full disk.
    if (lostInside > 0) await this.#compact().catch(() => undefined)
  }

  #hold(key: string, payload: Uint8Array): void {
    this.#held.set(key, payload)
    this.#sinceMs.set(key, monotonicMs())
    this.#heldBytes += payload.length
  }

  #release(key: string): boolean {
    const payload = this.#held.get(key)
    if (payload === undefined) return false
    this.#heldBytes -= payload.length
    this.#sinceMs.delete(key)
    return this.#held.delete(key)
  }

  #writeDeferred(): void {
    this.#deferTimer = undefined
    const nowMs = monotonicMs()
    for (const result of this.#deferred.values()) {
      if (result.dueMs > nowMs) {
        this.#deferTimer = setTimeout(() => this.#writeDeferred(), Math.ceil(result.dueMs - nowMs))
        break
      }
      this.#deferred.delete(result.key)
      this.#due.push(result)
    }
    if (this.#due.length > 0) this.#startWriting()
  }

  #writeLater(): void {
    this.#acknowledging ??= setTimeout(() => this.#startWriting(), ACKNOWLEDGE_DELAY_MS).unref()
  }

  #startWriting(): void {
    this.#writing ??= this.#writeAll()
  }

  /** Never rejects. */
  async #writeAll(): Promise<void> {
    // Results of this turn of the event loop go into the same write.
    await new Promise(setImmediate)
    clearTimeout(this.#acknowledging)
    this.#acknowledging = undefined
    do {
      const results = this.#due
      const acknowledgements = this.#acknowledgements
      this.#due = []
      this.#acknowledgements = []
      try {
        await this.#writeNew(results, acknowledgements)
        for (const result of results) result.resolve()
      } catch (cause) {
        const error = new ServiceError('unavailable', `failed to write results to ${this.#path}`, { cause })
        for (const result of results) {
          if (this.#held.has(result.key)) this.#refused.set(result.key, result)
          result.reject(error)
        }
        this.#retryLater()
      }
      if (this.#isRetryDue) await this.#writeSmallestRefused()
    } while (this.#due.length > 0 || this.#isRetryDue)
    // This is in the same turn in which nothing is due any more, so that the next result starts a new write.
    this.#writing = undefined
    if (this.#acknowledgements.length > 0) this.#writeLater()
  }

  async #writeNew(results: readonly Unwritten[], acknowledgements: readonly Uint8Array[]): Promise<void> {
    if (this.#held.size === this.#deferred.size) await this.#truncate()
    else if (!(this.#isCompactionDue && (await this.#hasCompacted()))) await this.#write(results, acknowledgements)
  }

  get #isRetryDue(): boolean {
    return this.#refused.size > 0 && this.#retryTimer === undefined
  }

  /**
   * Each refused result has a write of its own, after the new ones: a large one that still does not fit takes no other with it. If the smallest does
   * not fit, none does.
   */
  async #writeSmallestRefused(): Promise<void> {
    const [first, ...others] = this.#refused.values()
    if (first === undefined) return
    const smallest = others.reduce((least, one) => (one.payload.length < least.payload.length ? one : least), first)
    try {
      await this.#write([smallest], [])
      this.#refused.delete(smallest.key)
    } catch {
      this.#retryLater()
    }
  }

  #retryLater(): void {
    this.#retryTimer ??= setTimeout(() => {
      this.#retryTimer = undefined
      this.#startWriting()
    }, RETRY_MS).unref()
  }

  get #isCompactionDue(): boolean {
    const isMostlyAcknowledged = this.#fileBytes > COMPACT_BYTES && this.#fileBytes > 2 * this.#heldBytes
    return isMostlyAcknowledged && monotonicMs() >= this.#noCompactionUntilMs
  }

  /** False if there is no space for a second file, which need not refuse what fits into the first one. */
  async #hasCompacted(): Promise<boolean> {
    const refused = [...this.#refused.keys()]
    try {
      await this.#compact()
    } catch {
      this.#noCompactionUntilMs = monotonicMs() + RETRY_MS
      return false
    }
    // These are in the new file too.
    for (const key of refused) this.#refused.delete(key)
    return true
  }

  /** A result comes before its acknowledgement, which can arrive while this write is queued. */
  async #write(results: readonly Unwritten[], acknowledgements: readonly Uint8Array[]): Promise<void> {
    if (results.length + acknowledgements.length === 0) return
    const bytes = Buffer.concat([
      ...results.map(({ key, payload }) => encodeRecord(KIND_RESULT, key, payload)),
      ...acknowledgements,
    ])
    try {
      await this.#file.appendFile(bytes)
      if (results.length > 0) await this.#file.datasync()
    } catch (error) {
      // A part may have been written. Later records must not follow it.
      await this.#file.truncate(this.#fileBytes).catch(() => undefined)
      throw error
    }
    this.#fileBytes += bytes.length
  }

  /** All results are acknowledged: the file is truncated. */
  async #truncate(): Promise<void> {
    if (this.#fileBytes === 0) return
    await this.#file.truncate(0)
    this.#fileBytes = 0
  }

  async #compact(): Promise<void> {
    const written = this.results().filter(({ key }) => !this.#deferred.has(key))
    const records = written.map(({ key, payload }) => encodeRecord(KIND_RESULT, key, payload))
    const draftPath = draftOf(this.#path)
    const draft = await open(draftPath, 'a+', 0o600)
    try {
      await draft.truncate(0)
      await draft.appendFile(Buffer.concat(records))
      await draft.sync()
      await rename(draftPath, this.#path)
    } catch (error) {
      await draft.close()
      await rm(draftPath, { force: true })
      throw error
    }
    const before = this.#file
    this.#file = draft
    this.#fileBytes = records.reduce((sum, record) => sum + record.length, 0)
    await before.close()
    // Without it a crash can bring back the old file, without later records.
    await syncPath(dirname(this.#path))
  }
}

function encodeRecord(kind: number, key: string, payload: Uint8Array): Uint8Array {
  const keyBytes = Buffer.from(key)
  const record = Buffer.allocUnsafe(HEADER_BYTES + keyBytes.length + payload.length)
  record.writeUInt32LE(payload.length, 0)
  record.writeUInt16LE(keyBytes.length, 4)
  record.writeUInt8(kind, 6)
  keyBytes.copy(record, HEADER_BYTES)
  record.set(payload, HEADER_BYTES + keyBytes.length)
  record.writeUInt32LE(checksum(record.subarray(0, 7), record.subarray(HEADER_BYTES)), 7)
  return record
}

type SpoolRecord = { kind: number; key: string; payload: Uint8Array; end: number }

const draftOf = (path: string) => `${path}.new`

/** The end of what begins there, as its header says; undefined if that is no header. */
function endOf(content: Buffer, offset: number): number | undefined {
  if (content.length - offset < HEADER_BYTES) return undefined
  const kind = content.readUInt8(offset + 6)
  const payloadBytes = content.readUInt32LE(offset)
  const keyBytes = content.readUInt16LE(offset + 4)
  if ((kind !== KIND_RESULT && kind !== KIND_ACKNOWLEDGED) || payloadBytes > MAX_PAYLOAD_BYTES) return undefined
  const end = offset + HEADER_BYTES + keyBytes + payloadBytes
  return end > content.length ? undefined : end
}

/** Undefined at the end, and for a truncated or changed record. */
function readRecord(content: Buffer, offset: number): SpoolRecord | undefined {
  const end = endOf(content, offset)
  if (end === undefined) return undefined
  const keyBytes = content.readUInt16LE(offset + 4)
  const body = content.subarray(offset + HEADER_BYTES, end)
  if (checksum(content.subarray(offset, offset + 7), body) !== content.readUInt32LE(offset + 7)) return undefined
  const payload = Uint8Array.from(body.subarray(keyBytes))
  return { kind: content.readUInt8(offset + 6), key: body.toString('utf8', 0, keyBytes), payload, end }
}

function checksum(head: Buffer, body: Buffer): number {
  return crc32(body, crc32(head))
}
