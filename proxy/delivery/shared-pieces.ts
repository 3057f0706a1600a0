/**
 * Pieces of modules on their way to workers. A hundred that start together ask for the same bytes at nearly the same
 * time: each piece is read from disk once for all that are about there, and its buffer is used again.
 */
import { createChunkBuffer } from '#proto/index.ts'
import type { ChunkBuffer } from '#proto/index.ts'
import { PIECE_BYTES } from '../cache/index.ts'
import type { OpenBlob } from '../cache/index.ts'

export type Piece = {
  buffer: ChunkBuffer
  /** Zero: the module ends before. */
  sizeBytes: number
  /** To be called once it was taken by the connection. */
  release(): void
  /** Instead of `release`, where the connection may still be reading: nobody writes into this buffer any more. */
  abandon(): void
}

export type SharedPieces = {
  /** The piece that begins at a position and ends at the next multiple of `PIECE_BYTES`, or with the module. */
  take(blob: OpenBlob, position: number): Promise<Piece>
}

type Entry = { buffer: ChunkBuffer; read: Promise<number>; users: number; isAbandoned: boolean }

/** Pieces that nobody is sending and that may be asked for next: 4 MiB. */
const MAX_IDLE = 16

export function createSharedPieces(): SharedPieces {
  const entries = new Map<string, Entry>()
  /** Keys in the order in which they became idle. */
  const idle = new Set<string>()

  /** A buffer that nobody reads: of the piece that was idle for longest once there are enough of them. */
  function freeBuffer(): ChunkBuffer {
    const [oldest] = idle
    if (idle.size < MAX_IDLE || oldest === undefined) return createChunkBuffer(PIECE_BYTES)
    const buffer = entries.get(oldest)?.buffer
    forget(oldest)
    return buffer ?? createChunkBuffer(PIECE_BYTES)
  }

  function forget(key: string): void {
    entries.delete(key)
    idle.delete(key)
  }

  function begin({ handle }: OpenBlob, key: string, position: number): Entry {
    const buffer = freeBuffer()
    const size = PIECE_BYTES - (position % PIECE_BYTES)
    const read = handle.read(buffer.space, 0, size, position).then(({ bytesRead }) => bytesRead)
    const entry = { buffer, read, users: 0, isAbandoned: false }
    entries.set(key, entry)
    return entry
  }

  return {
    async take(blob, position) {
      const key = `${blob.digest} ${blob.version} ${position}`
      const entry = entries.get(key) ?? begin(blob, key, position)
      entry.users += 1
      idle.delete(key)

      function leave(isAbandoned: boolean): void {
        entry.users -= 1
        entry.isAbandoned ||= isAbandoned
        if (entries.get(key) !== entry) return
        if (entry.isAbandoned) return forget(key)
        if (entry.users > 0) return
        idle.add(key)
        const [oldest] = idle
        if (idle.size > MAX_IDLE && oldest !== undefined) forget(oldest)
      }

      try {
        const sizeBytes = await entry.read
        return { buffer: entry.buffer, sizeBytes, release: () => leave(false), abandon: () => leave(true) }
      } catch (error) {
        leave(true)
        throw error
      }
    },
  }
}
