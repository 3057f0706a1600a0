/**
 * Receives a module, a small one into memory and any other into an unlinked file, so that a slow sender costs a little memory or disk
 * space and delays no one else. Processing begins when the module is complete.
 */
import { open, mkdir, unlink } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { atMinimumRate } from '#core/streams/index.ts'

/** Largest module. */
export const MAX_MODULE_BYTES = 64 * 1024 * 1024
/** A larger body is in a file. The files of a small one would take longer than its upload. */
const MAX_HELD_BYTES = 256 * 1024
/** Bodies that this process receives at the same time, and per domain: this bounds the disk space and the memory. */
const MAX_RECEIVED = 64
const MAX_RECEIVED_PER_DOMAIN = 8
/** A burst of small modules gets its turn within this time; nothing of a module is read before. */
const RECEIVE_WAIT_MS = 5_000
const MAX_WAITING_PER_DOMAIN = 256
/** Bytes of the modules that are stored, or sent to the proxy, at the same time: each is in memory as a whole. */
const MAX_WORKED_ON_BYTES = 4 * MAX_MODULE_BYTES
const MAX_WORKED_ON_BYTES_PER_DOMAIN = 2 * MAX_MODULE_BYTES
const WORK_WAIT_MS = 60_000
/** A body can start slowly; then it must arrive at the minimum rate. */
const GRACE_MS = 10_000
const READ_BYTES = 1024 * 1024

export type ReceivedBody = {
  readonly sizeBytes: number
  /** The whole body, in a buffer of its own. */
  read(): Promise<Buffer<ArrayBuffer>>
  /** The body in pieces. */
  pieces(): AsyncGenerator<Buffer, void, void>
}

export type BodyReceiver = {
  /**
   * Receives the body and then runs `work`, in a slot. Throws `too_large`, `timeout` for a body that arrives too slowly,
   * `rate_limited` and `unavailable` if no slot is free, and the errors of `work`.
   */
  receive<T>(domainId: string | null, body: AsyncIterable<Buffer>, work: (body: ReceivedBody) => Promise<T>): Promise<T>
}

export type BodyReceiverOptions = {
  /** The folder is created on demand. */
  folder: string
  /** Tests shorten it. */
  graceMs?: number
}

export function createBodyReceiver({ folder, graceMs = GRACE_MS }: BodyReceiverOptions): BodyReceiver {
  const receiving = new Slots({
    what: 'modules being uploaded',
    max: MAX_RECEIVED,
    share: MAX_RECEIVED_PER_DOMAIN,
    waitMs: RECEIVE_WAIT_MS,
    maxWaiting: MAX_WAITING_PER_DOMAIN,
  })
  const working = new Slots({
    what: 'bytes of uploaded modules being processed',
    max: MAX_WORKED_ON_BYTES,
    share: MAX_WORKED_ON_BYTES_PER_DOMAIN,
    waitMs: WORK_WAIT_MS,
    maxWaiting: MAX_RECEIVED_PER_DOMAIN,
  })

  return {
    receive: (domainId, body, work) =>
      receiving.run(domainId, async () => {
        await using received = new Received(folder)
        for await (const piece of atMinimumRate(body, graceMs)) await received.add(piece)
        return await working.run(domainId, () => work(received), undefined, received.sizeBytes)
      }),
  }
}

async function openUnlinked(folder: string): Promise<FileHandle> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const path = join(folder, `body-${newId()}`)
  const file = await open(path, 'wx+', 0o600)
  // From here the file disappears when it is closed, also when this process is killed.
  await unlink(path)
  return file
}

class Received implements ReceivedBody, AsyncDisposable {
  readonly #folder: string
  sizeBytes = 0
  /** The whole body, unless there is a file. */
  #held: Buffer[] = []
  #file: FileHandle | undefined

  constructor(folder: string) {
    this.#folder = folder
  }

  async add(piece: Buffer): Promise<void> {
    const position = this.sizeBytes
    if (position + piece.length > MAX_MODULE_BYTES)
      throw new ServiceError('too_large', `a module must be at most ${MAX_MODULE_BYTES} bytes`)
    this.sizeBytes += piece.length
    if (this.#file === undefined && this.sizeBytes <= MAX_HELD_BYTES) this.#held.push(piece)
    else await (await this.#openFile()).write(piece, 0, piece.length, position)
  }

  async read(): Promise<Buffer<ArrayBuffer>> {
    const bytes = Buffer.allocUnsafeSlow(this.sizeBytes)
    if (this.#file !== undefined) return await readAt(this.#file, 0, bytes)
    let at = 0
    for (const piece of this.#held) at += piece.copy(bytes, at)
    return bytes
  }

  async *pieces(): AsyncGenerator<Buffer, void, void> {
    if (this.#file === undefined) yield* this.#held
    else
      for (let position = 0; position < this.sizeBytes; position += READ_BYTES)
        yield await readAt(this.#file, position, Buffer.allocUnsafe(Math.min(READ_BYTES, this.sizeBytes - position)))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file?.close()
  }

  /** The file, which begins with what was held. */
  async #openFile(): Promise<FileHandle> {
    if (this.#file !== undefined) return this.#file
    this.#file = await openUnlinked(this.#folder)
    const held = Buffer.concat(this.#held)
    this.#held = []
    await this.#file.write(held, 0, held.length, 0)
    return this.#file
  }
}

async function readAt(file: FileHandle, position: number, bytes: Buffer<ArrayBuffer>): Promise<Buffer<ArrayBuffer>> {
  for (let at = 0; at < bytes.length;) {
    const { bytesRead } = await file.read(bytes, at, bytes.length - at, position + at)
    if (bytesRead === 0) throw new Error('the file of a received module was truncated')
    at += bytesRead
  }
  return bytes
}
