/**
 * Modules on disk by digest, bounded in bytes, the least recently used going first. A blob appears under its name only
 * when all its bytes are written, hashed and forced to disk; several processes may share the folder.
 */
import { createHash } from 'node:crypto'
import { mkdir, open, readdir, rm, stat, utimes } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { countPassing } from '#core/passing-buffers.ts'
import { hexOf, isDigest, moduleInvalid } from '../oci/index.ts'
import { abandon, asDiskError, createTemporary, isMissing, publish, removeAbandoned } from './files.ts'

export type Blob = { digest: string; sizeBytes: number }
export type OpenBlob = Blob & {
  /** The caller closes it. It stays readable when the blob is evicted meanwhile. */
  handle: FileHandle
  /** Another one whenever the file was written or used; equal versions have equal bytes. */
  version: string
}
/** Bytes on disk that are no blob: an archive that is to be unpacked. */
export type Scratch = { read(): AsyncIterable<Buffer>; remove(): Promise<void> }

export type BlobCache = {
  /** Opens a blob and counts it as used now; undefined when it is not here. */
  open(digest: string): Promise<OpenBlob | undefined>
  /**
   * Stores bytes under their digest. With `expected`, other bytes are `malformed` and nothing is stored. When the source
   * throws nothing is stored either.
   */
  store(bytes: AsyncIterable<Buffer>, expected?: string): Promise<Blob>
  /** Writes bytes to a file without a name, to be read again by the caller. */
  scratch(bytes: AsyncIterable<Buffer>): Promise<Scratch>
  /** Removes a blob; nothing happens when it is not here. */
  remove(digest: string): Promise<void>
  /** Opens a blob without counting it as used; undefined when it is not here. */
  peek(digest: string): Promise<(Blob & { handle: FileHandle; usedMs: number }) | undefined>
  /** What is here, least recently used first. */
  list(): Blob[]
  usedBytes(): number
}

export type BlobCacheOptions = { folder: string; maxBytes: number }

/** Recency reaches the disk at most this often per blob: it only orders evictions after a restart. */
const TOUCH_INTERVAL_MS = 60_000
/** Of a file, and of a module on its way to a worker (`FetchResponse`). */
export const PIECE_BYTES = 256 * 1024

/** Opens the cache, creating its folders. What killed processes left half written is removed, never served. */
export async function openBlobCache({ folder, maxBytes }: BlobCacheOptions): Promise<BlobCache> {
  const blobFolder = join(folder, 'sha256')
  const temporaryFolder = join(folder, 'tmp')
  await mkdir(blobFolder, { recursive: true, mode: 0o700 })
  await mkdir(temporaryFolder, { recursive: true, mode: 0o700 })
  await removeAbandoned(temporaryFolder, Date.now())
  /** Order of insertion is order of use. */
  const known = new Map<string, { sizeBytes: number; touchedMs: number }>()
  let used = 0

  function remember(digest: string, sizeBytes: number, touchedMs: number): void {
    forget(digest)
    known.set(digest, { sizeBytes, touchedMs })
    used += sizeBytes
  }

  function forget(digest: string): void {
    used -= known.get(digest)?.sizeBytes ?? 0
    known.delete(digest)
  }

  async function evict(keep: string): Promise<void> {
    for (const digest of known.keys()) {
      if (used <= maxBytes) return
      if (digest === keep) continue
      forget(digest)
      await rm(pathOf(digest), { force: true })
    }
  }

  function pathOf(digest: string): string {
    return join(blobFolder, hexOf(digest))
  }

  async function openFile(digest: string): Promise<FileHandle | undefined> {
    if (!isDigest(digest)) return undefined
    try {
      return await open(pathOf(digest), 'r')
    } catch (error) {
      if (!isMissing(error)) throw error
      forget(digest)
      return undefined
    }
  }

  async function touch(digest: string, sizeBytes: number): Promise<void> {
    const nowMs = Date.now()
    const touchedMs = known.get(digest)?.touchedMs ?? 0
    const isDue = nowMs - touchedMs >= TOUCH_INTERVAL_MS
    remember(digest, sizeBytes, isDue ? nowMs : touchedMs)
    // Another process may have evicted it just now; the open handle still reads it.
    if (isDue) await utimes(pathOf(digest), nowMs / 1000, nowMs / 1000).catch(() => undefined)
  }

  for (const blob of await scan(blobFolder)) remember(blob.digest, blob.sizeBytes, blob.usedMs)
  await evict('')

  return {
    async open(digest) {
      const handle = await openFile(digest)
      if (handle === undefined) return undefined
      try {
        const { size, ino, mtimeMs } = await handle.stat()
        await touch(digest, size)
        return { digest, sizeBytes: size, handle, version: `${ino}:${mtimeMs}` }
      } catch (error) {
        await handle.close()
        throw error
      }
    },

    async store(bytes, expected) {
      const file = await createTemporary(temporaryFolder)
      try {
        const hash = createHash('sha256')
        let sizeBytes = 0
        for await (const piece of bytes) {
          hash.update(piece)
          await file.handle.writeFile(piece)
          sizeBytes += piece.length
          countPassing(piece.length)
        }
        const digest = `sha256:${hash.digest('hex')}`
        if (expected !== undefined && digest !== expected) {
          throw moduleInvalid(`module has other bytes: their digest is ${digest}, not ${expected}`)
        }
        await publish(file, pathOf(digest))
        remember(digest, sizeBytes, Date.now())
        await evict(digest)
        return { digest, sizeBytes }
      } catch (error) {
        await abandon(file)
        throw asDiskError(error)
      }
    },

    async scratch(bytes) {
      const file = await createTemporary(temporaryFolder)
      try {
        for await (const piece of bytes) {
          await file.handle.writeFile(piece)
          countPassing(piece.length)
        }
        await file.handle.close()
      } catch (error) {
        await abandon(file)
        throw asDiskError(error)
      }
      return {
        read: () => readFileInPieces(file.path),
        remove: () => rm(file.path, { force: true }),
      }
    },

    async remove(digest) {
      forget(digest)
      await rm(pathOf(digest), { force: true })
    },

    async peek(digest) {
      const handle = await openFile(digest)
      if (handle === undefined) return undefined
      const { size, mtimeMs } = await handle.stat()
      return { digest, sizeBytes: size, handle, usedMs: known.get(digest)?.touchedMs ?? mtimeMs }
    },

    list: () => [...known].map(([digest, { sizeBytes }]) => ({ digest, sizeBytes })),
    usedBytes: () => used,
  }
}

/** The content of an open file, in pieces of at most `PIECE_BYTES`. */
export async function* readInPieces(handle: FileHandle): AsyncGenerator<Buffer> {
  for (let position = 0; ;) {
    const piece = Buffer.allocUnsafe(PIECE_BYTES)
    const { bytesRead } = await handle.read(piece, 0, PIECE_BYTES, position)
    if (bytesRead === 0) return
    position += bytesRead
    yield piece.subarray(0, bytesRead)
  }
}

async function* readFileInPieces(path: string): AsyncGenerator<Buffer> {
  const handle = await open(path, 'r')
  try {
    yield* readInPieces(handle)
  } finally {
    await handle.close()
  }
}

async function scan(folder: string): Promise<(Blob & { usedMs: number })[]> {
  const found: (Blob & { usedMs: number })[] = []
  for (const name of await readdir(folder)) {
    const digest = `sha256:${name}`
    if (!isDigest(digest)) continue
    const file = await stat(join(folder, name)).catch(() => undefined) // another process evicted it just now
    if (file !== undefined) found.push({ digest, sizeBytes: file.size, usedMs: file.mtimeMs })
  }
  return found.toSorted((left, right) => left.usedMs - right.usedMs)
}
