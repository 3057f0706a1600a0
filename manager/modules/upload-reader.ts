/** Reads uploads from the database for the module proxy, which presents a ticket or runs in the same process. */
import { bearerTokenOf } from '#core/authorization.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { countPassing } from '#core/passing-buffers.ts'
import { Slots } from '#core/slots.ts'
import type { SentBytes } from '#core/transfer/index.ts'
import { MAX_CHUNK_BYTES } from '../model/limits.ts'
import { findModule, readChunk } from '../store/modules.ts'
import type { TicketIssuer } from './tickets.ts'

/** Uploads that are read at the same time, and per reader. */
const MAX_READ = 64
const MAX_READ_PER_READER = 16

export class UploadReader {
  readonly #database: Database
  readonly #tickets: TicketIssuer
  readonly #slots = new Slots({
    what: 'uploads being read',
    max: MAX_READ,
    share: MAX_READ_PER_READER,
    per: 'reader',
    shareKind: 'unavailable',
  })

  constructor(database: Database, tickets: TicketIssuer) {
    this.#database = database
    this.#tickets = tickets
  }

  /** Whether the header has a valid ticket, of whatever module. */
  isTicket(authorization: string | undefined): boolean {
    return this.#tickets.check(bearerTokenOf(authorization) ?? '') !== undefined
  }

  /** The caller must close it. Throws `unauthenticated` without a ticket of this module, `not_found`, `unavailable`. */
  async open(digest: string, authorization: string | undefined): Promise<SentBytes & { close: () => void }> {
    const grant = this.#tickets.check(bearerTokenOf(authorization) ?? '')
    if (grant === undefined || grant.digest !== digest || grant.reference !== '') {
      throw new ServiceError('unauthenticated', 'the ticket is missing, has expired, or is of another module')
    }
    const release = await this.#slots.take(grant.reader)
    try {
      return { ...(await this.bytesOf(digest)), close: release }
    } catch (error) {
      release()
      throw error
    }
  }

  /** Reads from an offset. Throws `not_found`. */
  async *read(digest: string, offset: number, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { sizeBytes, chunkAt } = await this.bytesOf(digest)
    for (let position = offset; position < sizeBytes;) {
      signal.throwIfAborted()
      const data = await chunkAt(position)
      countPassing(data.length)
      position += data.length
      yield data
    }
  }

  /** The bytes of an upload, for a caller who was authorized. Throws `not_found`. */
  async bytesOf(digest: string): Promise<SentBytes & { chunkAt: (position: number) => Promise<Buffer> }> {
    const database = this.#database
    const module = await findModule(database.db, digest)
    if (module === undefined) throw new ServiceError('not_found', 'no such upload')
    const chunkAt = async (position: number) => {
      const chunk = await readChunk(database, module.key, Math.floor(position / MAX_CHUNK_BYTES))
      const data = chunk?.subarray(position % MAX_CHUNK_BYTES)
      if (data === undefined || data.length === 0)
        throw new Error(`module ${digest} has no bytes at position ${position}`)
      return data
    }
    return {
      sizeBytes: module.sizeBytes,
      chunkAt,
      read: async (into, position) => {
        const copied = (await chunkAt(position)).copy(into)
        countPassing(copied)
        return copied
      },
    }
  }
}
