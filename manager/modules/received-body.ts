/**
 * Receives a module into an unlinked file, so that a slow sender costs a little disk space and delays no one else.
 * Processing begins when the module is complete.
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
/** Bodies that this process receives at the same time, and per domain: this bounds the disk space. */
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
  /** Created on demand. */
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
        await using file = await openUnlinked(folder)
        const sizeBytes = await store(atMinimumRate(body, graceMs), file)
        return await working.run(domainId, () => work(receivedIn(file, sizeBytes)), undefined, sizeBytes)
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

async function store(body: AsyncIterable<Buffer>, file: FileHandle): Promise<number> {
  let sizeBytes = 0
  for await (const piece of body) {
    if (sizeBytes + piece.length > MAX_MODULE_BYTES)
      throw new ServiceError('too_large', `a module must be at most ${MAX_MODULE_BYTES} bytes`)
    await file.write(piece, 0, piece.length, sizeBytes)
    sizeBytes += piece.length
  }
  return sizeBytes
}

function receivedIn(file: FileHandle, sizeBytes: number): ReceivedBody {
  async function readAt(position: number, bytes: Buffer<ArrayBuffer>): Promise<Buffer<ArrayBuffer>> {
    for (let at = 0; at < bytes.length;) {
      const { bytesRead } = await file.read(bytes, at, bytes.length - at, position + at)
      if (bytesRead === 0) throw new Error('the file of a received module was truncated')
      at += bytesRead
    }
    return bytes
  }
  return {
    sizeBytes,
    read: () => readAt(0, Buffer.allocUnsafeSlow(sizeBytes)),
    async *pieces() {
      for (let position = 0; position < sizeBytes; position += READ_BYTES)
        yield await readAt(position, Buffer.allocUnsafe(Math.min(READ_BYTES, sizeBytes - position)))
    },
  }
}
