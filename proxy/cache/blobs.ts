/**
 * Blobs on disk by digest, bounded in bytes, with LRU eviction. A blob appears under its name only when all its bytes are
 * written, hashed and synced; several processes can share the folder. A disk can return corrupted bytes, so a file that
 * this process did not write, or that has changed since, is hashed before it is served.
 */
import { createHash } from 'node:crypto'
import { mkdir, open, readdir, rm, stat, utimes } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { countPassing } from '#core/passing-buffers.ts'
import { SingleFlight } from '#core/single-flight.ts'
import { digestOfHash, digestOfHex, hexOf, isDigest } from '#core/digest.ts'
import { moduleInvalid } from '../oci/index.ts'
import { abandon, asDiskError, createTemporary, isMissing, moveIntoPlace, removeAbandoned } from './files.ts'

export type Blob = { digest: string; sizeBytes: number }
export type OpenBlob = Blob & {
  /** The caller must close it. It stays readable if the blob is evicted meanwhile. */
  handle: FileHandle
}
/** Temporary bytes on disk, such as an archive before it is unpacked. */
export type Scratch = { read(): AsyncIterable<Buffer>; remove(): Promise<void> }

export type BlobCacheOptions = { folder: string; maxBytes: number }

/** Metadata of a file. */
type Known = { sizeBytes: number; touchedMs: number; verifiedVersion: string | undefined }

/** The time of use is written at most this often per blob: it only orders evictions after a restart. */
const TOUCH_INTERVAL_MS = 60_000
/** The size of one read. */
const PIECE_BYTES = 256 * 1024

export class BlobCache {
  readonly #maxBytes: number
  readonly #blobFolder: string
  readonly #temporaryFolder: string
  /** Insertion order is the order of use. */
  readonly #known = new Map<string, Known>()
  readonly #verifying = new SingleFlight<boolean>()
  #usedBytes = 0

  private constructor({ folder, maxBytes }: BlobCacheOptions) {
    this.#maxBytes = maxBytes
    this.#blobFolder = join(folder, 'sha256')
    this.#temporaryFolder = join(folder, 'tmp')
  }

  /** Opens the cache, creating its folders. Incomplete files of killed processes are removed, never served. */
  static async open(options: BlobCacheOptions): Promise<BlobCache> {
    const cache = new BlobCache(options)
    await mkdir(cache.#blobFolder, { recursive: true, mode: 0o700 })
    await mkdir(cache.#temporaryFolder, { recursive: true, mode: 0o700 })
    await removeAbandoned(cache.#temporaryFolder, Date.now())
    for (const { digest, sizeBytes, usedMs } of await scan(cache.#blobFolder)) {
      cache.#remember(digest, { sizeBytes, touchedMs: usedMs, verifiedVersion: undefined })
    }
    await cache.#evict('')
    return cache
  }

  get usedBytes(): number {
    return this.#usedBytes
  }

  /** The cached blobs, least recently used first. */
  list(): Blob[] {
    return [...this.#known].map(([digest, { sizeBytes }]) => ({ digest, sizeBytes }))
  }

  /** Opens a blob and marks it as used; undefined if it is not cached, or was corrupted, in which case it is removed. */
  async open(digest: string): Promise<OpenBlob | undefined> {
    const handle = await this.#openFile(digest)
    if (handle === undefined) return undefined
    try {
      const { size } = await handle.stat()
      if (!(await this.#isWhole(digest, handle))) {
        await handle.close()
        await this.remove(digest)
        return undefined
      }
      await this.#touch(digest, size, handle)
      return { digest, sizeBytes: size, handle }
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  /**
   * Stores bytes under their digest. With `expected`, other bytes are `malformed` and not stored. If the source throws,
   * nothing is stored either.
   */
  async store(bytes: AsyncIterable<Buffer>, expected?: string): Promise<Blob> {
    const file = await createTemporary(this.#temporaryFolder)
    try {
      const hash = createHash('sha256')
      let sizeBytes = 0
      for await (const piece of bytes) {
        hash.update(piece)
        await file.handle.writeFile(piece)
        sizeBytes += piece.length
        countPassing(piece.length)
      }
      const digest = digestOfHash(hash)
      if (expected !== undefined && digest !== expected) {
        throw moduleInvalid(`module digest mismatch: the digest is ${digest}, not ${expected}`)
      }
      const verifiedVersion = await versionOf(file.handle)
      await moveIntoPlace(file, this.#pathOf(digest))
      this.#remember(digest, { sizeBytes, touchedMs: Date.now(), verifiedVersion })
      await this.#evict(digest)
      return { digest, sizeBytes }
    } catch (error) {
      await abandon(file)
      throw asDiskError(error)
    }
  }

  /** Writes bytes to a temporary file for the caller. */
  async scratch(bytes: AsyncIterable<Buffer>): Promise<Scratch> {
    const file = await createTemporary(this.#temporaryFolder)
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
  }

  /** Removes a blob; no effect if it is not cached. */
  async remove(digest: string): Promise<void> {
    this.#removeEntry(digest)
    await rm(this.#pathOf(digest), { force: true })
  }

  /** Opens a blob without marking it as used; undefined if it is not cached. */
  async peek(digest: string): Promise<(OpenBlob & { usedMs: number }) | undefined> {
    const handle = await this.#openFile(digest)
    if (handle === undefined) return undefined
    const { size, mtimeMs } = await handle.stat()
    return { digest, sizeBytes: size, handle, usedMs: this.#known.get(digest)?.touchedMs ?? mtimeMs }
  }

  async #openFile(digest: string): Promise<FileHandle | undefined> {
    if (!isDigest(digest)) return undefined
    try {
      return await open(this.#pathOf(digest), 'r')
    } catch (error) {
      if (!isMissing(error)) throw error
      this.#removeEntry(digest)
      return undefined
    }
  }

  async #isWhole(digest: string, handle: FileHandle): Promise<boolean> {
    const version = await versionOf(handle)
    if (this.#known.get(digest)?.verifiedVersion === version) return true
    return await this.#verifying.run(`${digest} ${version}`, async () => {
      const hash = createHash('sha256')
      for await (const piece of readInPieces(handle)) hash.update(piece)
      return digestOfHash(hash) === digest
    })
  }

  /** The file was verified. */
  async #touch(digest: string, sizeBytes: number, handle: FileHandle): Promise<void> {
    const nowMs = Date.now()
    const touchedMs = this.#known.get(digest)?.touchedMs ?? 0
    const isDue = nowMs - touchedMs >= TOUCH_INTERVAL_MS
    // Another process may have evicted it; the open handle can still read it.
    if (isDue) await utimes(this.#pathOf(digest), nowMs / 1000, nowMs / 1000).catch(() => undefined)
    const verifiedVersion = await versionOf(handle)
    this.#remember(digest, { sizeBytes, touchedMs: isDue ? nowMs : touchedMs, verifiedVersion })
  }

  #remember(digest: string, known: Known): void {
    this.#removeEntry(digest)
    this.#known.set(digest, known)
    this.#usedBytes += known.sizeBytes
  }

  #removeEntry(digest: string): void {
    this.#usedBytes -= this.#known.get(digest)?.sizeBytes ?? 0
    this.#known.delete(digest)
  }

  async #evict(keep: string): Promise<void> {
    for (const digest of this.#known.keys()) {
      if (this.#usedBytes <= this.#maxBytes) return
      if (digest === keep) continue
      this.#removeEntry(digest)
      await rm(this.#pathOf(digest), { force: true })
    }
  }

  #pathOf(digest: string): string {
    return join(this.#blobFolder, hexOf(digest))
  }
}

/** Changes with every write of the file; equal versions have equal bytes. */
async function versionOf(handle: FileHandle): Promise<string> {
  const { ino, mtimeMs, size } = await handle.stat()
  return `${ino}:${mtimeMs}:${size}`
}

/** The content of an open file, in pieces of at most `PIECE_BYTES`. */
export async function* readInPieces(handle: FileHandle): AsyncGenerator<Buffer> {
  for (let position = 0; ;) {
    const piece = Buffer.allocUnsafe(PIECE_BYTES)
    const { bytesRead } = await handle.read(piece, 0, PIECE_BYTES, position)
    if (bytesRead === 0) return
    position += bytesRead
    countPassing(bytesRead)
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
    const digest = digestOfHex(name)
    if (!isDigest(digest)) continue
    const file = await stat(join(folder, name)).catch(() => undefined) // another process evicted it just now
    if (file !== undefined) found.push({ digest, sizeBytes: file.size, usedMs: file.mtimeMs })
  }
  return found.toSorted((left, right) => left.usedMs - right.usedMs)
}
