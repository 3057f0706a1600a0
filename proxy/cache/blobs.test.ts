import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { BlobCache, readInPieces } from './blobs.ts'
import { ABANDONED_AFTER_MS } from './files.ts'

let folder: string
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'skein-blobs-'))))
afterEach(() => {
  vi.restoreAllMocks()
  rmSync(folder, { recursive: true })
})

const bytesOf = (letter: string, sizeBytes = 100) => Buffer.alloc(sizeBytes, letter)
const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

async function* piecesOf(...pieces: Buffer[]) {
  yield* pieces
}

async function store(cache: BlobCache, ...letters: string[]): Promise<string[]> {
  const digests: string[] = []
  for (const letter of letters) digests.push((await cache.store(piecesOf(bytesOf(letter)))).digest)
  return digests
}

async function read(cache: BlobCache, digest: string): Promise<Buffer | undefined> {
  const blob = await cache.open(digest)
  if (blob === undefined) return undefined
  const pieces: Buffer[] = []
  for await (const piece of readInPieces(blob.handle)) pieces.push(piece)
  await blob.handle.close()
  return Buffer.concat(pieces)
}

describe('the blob cache', () => {
  it('returns stored bytes by digest', async () => {
    const cache = await BlobCache.open({ folder, maxBytes: 1000 })
    const blob = await cache.store(piecesOf(bytesOf('a'), bytesOf('b')))
    expect(blob).toEqual({ digest: digestOf(Buffer.concat([bytesOf('a'), bytesOf('b')])), sizeBytes: 200 })
    expect(await read(cache, blob.digest)).toEqual(Buffer.concat([bytesOf('a'), bytesOf('b')]))
    expect(await read(cache, digestOf(bytesOf('c')))).toBeUndefined()
    expect(await read(cache, 'sha256:../../etc/passwd')).toBeUndefined()
  })

  it.each(['writeFile', 'sync'] as const)(
    'reports a full disk (%s), keeps no partial blob, and continues',
    async (step) => {
      const cache = await BlobCache.open({ folder, maxBytes: 1000 })
      await using handle = await open('/dev/null')
      const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })
      vi.spyOn(Object.getPrototypeOf(handle) as FileHandle, step).mockRejectedValueOnce(full)
      const refused = { kind: 'unavailable', message: 'the disk of the module cache is full' }
      await expect(cache.store(piecesOf(bytesOf('a')))).rejects.toMatchObject(refused)
      expect(readdirSync(join(folder, 'sha256'))).toEqual([])
      expect(readdirSync(join(folder, 'tmp'))).toEqual([])
      await store(cache, 'a')
      expect(await read(cache, digestOf(bytesOf('a')))).toEqual(bytesOf('a'))
    },
  )

  it('stores nothing if the digest differs or the source fails', async () => {
    const cache = await BlobCache.open({ folder, maxBytes: 1000 })
    await expect(cache.store(piecesOf(bytesOf('a')), digestOf(bytesOf('b')))).rejects.toMatchObject({
      kind: 'malformed',
    })
    async function* failing() {
      yield bytesOf('a')
      throw new Error('broke off')
    }
    await expect(cache.store(failing())).rejects.toThrow('broke off')
    await expect(cache.scratch(failing())).rejects.toThrow('broke off')
    expect(cache.list()).toEqual([])
    expect(readdirSync(join(folder, 'sha256'))).toEqual([])
    expect(readdirSync(join(folder, 'tmp'))).toEqual([])
  })

  it('evicts the least recently used blob first, and stays within its size', async () => {
    const cache = await BlobCache.open({ folder, maxBytes: 300 })
    const [a = '', b = '', c = ''] = await store(cache, 'a', 'b', 'c')
    await read(cache, a)
    const [d = ''] = await store(cache, 'd')
    expect(cache.list().map((blob) => blob.digest)).toEqual([c, a, d])
    expect(cache.usedBytes).toBe(300)
    expect(await read(cache, b)).toBeUndefined()
    expect(readdirSync(join(folder, 'sha256'))).toHaveLength(3)
  })

  it('counts a blob that is stored twice once', async () => {
    const cache = await BlobCache.open({ folder, maxBytes: 300 })
    await store(cache, 'a', 'a', 'a', 'a')
    expect(cache.usedBytes).toBe(100)
  })

  it('is one file after many writers of the same bytes', async () => {
    const caches = await Promise.all([1, 2, 3].map(() => BlobCache.open({ folder, maxBytes: 1000 })))
    await Promise.all(caches.flatMap((cache) => Array.from({ length: 10 }, () => store(cache, 'a'))))
    for (const cache of caches) expect(await read(cache, digestOf(bytesOf('a')))).toEqual(bytesOf('a'))
    expect(readdirSync(join(folder, 'sha256'))).toHaveLength(1)
    expect(readdirSync(join(folder, 'tmp'))).toEqual([])
  })

  it('finds what another process stored, and misses what another process evicted', async () => {
    const mine = await BlobCache.open({ folder, maxBytes: 1000 })
    const theirs = await BlobCache.open({ folder, maxBytes: 1000 })
    const [a = ''] = await store(theirs, 'a')
    expect(await read(mine, a)).toEqual(bytesOf('a'))
    await theirs.remove(a)
    expect(await read(mine, a)).toBeUndefined()
    expect(mine.usedBytes).toBe(0)
  })

  it('lets a reader finish a blob that is evicted meanwhile', async () => {
    const cache = await BlobCache.open({ folder, maxBytes: 100 })
    const [a = ''] = await store(cache, 'a')
    const open = await cache.open(a)
    await store(cache, 'b')
    expect(await open?.handle.readFile()).toEqual(bytesOf('a'))
    await open?.handle.close()
    expect(await read(cache, a)).toBeUndefined()
  })

  it('keeps its content and its order of use over a restart, and applies a smaller limit', async () => {
    const before = await BlobCache.open({ folder, maxBytes: 300 })
    const digests = await store(before, 'a', 'b', 'c')
    for (const [index, digest] of digests.entries()) {
      utimesSync(join(folder, 'sha256', digest.slice(7)), 1000 - index, 1000 - index)
    }
    const after = await BlobCache.open({ folder, maxBytes: 200 })
    expect(after.list().map((blob) => blob.digest)).toEqual([digests[1], digests[0]])
  })

  it('removes incomplete files of a killed process, and keeps files that another process is writing', async () => {
    await BlobCache.open({ folder, maxBytes: 300 })
    writeFileSync(join(folder, 'tmp', 'old'), 'half')
    writeFileSync(join(folder, 'tmp', 'new'), 'half')
    const seconds = Date.now() / 1000
    const abandoned = seconds - ABANDONED_AFTER_MS / 1000 - 60
    utimesSync(join(folder, 'tmp', 'old'), abandoned, abandoned)
    // The clock of the file system can differ from ours.
    utimesSync(join(folder, 'tmp', 'new'), seconds, seconds)
    const cache = await BlobCache.open({ folder, maxBytes: 300 })
    expect(readdirSync(join(folder, 'tmp'))).toEqual(['new'])
    expect(cache.list()).toEqual([])
  })
})
