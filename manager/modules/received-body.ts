/**
 * A module on its way in: received into a file without a name, so that one that trickles costs the disk a little and nobody
 * else anything. Work on it begins when it is there.
 */
import { open, mkdir, unlink } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { atMinimumRate } from '#core/streams/index.ts'

/** Largest module that can be sent. */
export const MAX_MODULE_BYTES = 64 * 1024 * 1024
/** Bodies that are being received by this process, and of one domain: so much of the disk they take at the most. */
const MAX_RECEIVED = 64
const MAX_RECEIVED_PER_DOMAIN = 8
/** Many small modules at once have their turn within this; nothing of them is read before. */
const RECEIVE_WAIT_MS = 5_000
const MAX_WAITING_PER_DOMAIN = 256
/** Modules that are read and stored, or handed on to the proxy, at a time: each is in memory whole. */
const MAX_WORKED_ON = 4
const MAX_WORKED_ON_PER_DOMAIN = 2
const WORK_WAIT_MS = 60_000
/** A body may begin slowly; then it comes at the minimum rate. */
const GRACE_MS = 10_000
const READ_BYTES = 1024 * 1024

export type ReceivedBody = {
  readonly sizeBytes: number
  /** The whole, in memory of its own. */
  read(): Promise<Buffer<ArrayBuffer>>
  /** Piece by piece. */
  pieces(): AsyncGenerator<Buffer, void, void>
}

export type BodyReceiver = {
  /**
   * Receives the body and then works on it, in a slot. Throws `too_large`, `timeout` for a body that comes too slowly,
   * `rate_limited` and `unavailable` where the slots are taken, and what the work throws.
   */
  receive<T>(domainId: string | null, body: AsyncIterable<Buffer>, work: (body: ReceivedBody) => Promise<T>): Promise<T>
}

export type BodyReceiverOptions = {
  /** Made when it is needed. */
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
    what: 'uploaded modules being worked on',
    max: MAX_WORKED_ON,
    share: MAX_WORKED_ON_PER_DOMAIN,
    waitMs: WORK_WAIT_MS,
    maxWaiting: MAX_RECEIVED_PER_DOMAIN,
  })

  return {
    receive: (domainId, body, work) =>
      receiving.run(domainId, async () => {
        await using file = await openNameless(folder)
        const sizeBytes = await store(atMinimumRate(body, graceMs), file)
        return await working.run(domainId, () => work(receivedIn(file, sizeBytes)))
      }),
  }
}

async function openNameless(folder: string): Promise<FileHandle> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const path = join(folder, `body-${newId()}`)
  const file = await open(path, 'wx+', 0o600)
  // From here on it is gone as soon as nobody has it open, also when this process is killed.
  await unlink(path)
  return file
}

async function store(body: AsyncIterable<Buffer>, file: FileHandle): Promise<number> {
  let sizeBytes = 0
  for await (const piece of body) {
    if (sizeBytes + piece.length > MAX_MODULE_BYTES)
      throw new ServiceError('too_large', `a module may have at most ${MAX_MODULE_BYTES} bytes`)
    await file.write(piece, 0, piece.length, sizeBytes)
    sizeBytes += piece.length
  }
  return sizeBytes
}

function receivedIn(file: FileHandle, sizeBytes: number): ReceivedBody {
  async function readAt(position: number, bytes: Buffer<ArrayBuffer>): Promise<Buffer<ArrayBuffer>> {
    for (let at = 0; at < bytes.length;) {
      const { bytesRead } = await file.read(bytes, at, bytes.length - at, position + at)
      if (bytesRead === 0) throw new Error('a received module is shorter than it was')
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
