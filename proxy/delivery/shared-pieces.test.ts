import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { PIECE_BYTES } from '../cache/index.ts'
import { createSharedPieces } from './shared-pieces.ts'
import type { Piece } from './shared-pieces.ts'

const PIECES = 40
let folder: string
let handle: FileHandle
const bytes = Buffer.from(Uint8Array.from({ length: PIECES * PIECE_BYTES - 100 }, (_, at) => (at >> 10) & 0xff))

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-pieces-'))
  writeFileSync(join(folder, 'm'), bytes)
  handle = await open(join(folder, 'm'))
})
afterEach(async () => {
  await handle.close()
  rmSync(folder, { recursive: true })
})

const blobOf = (file: FileHandle, version = '1') => ({ digest: 'd', sizeBytes: bytes.length, handle: file, version })
const contentOf = ({ buffer, sizeBytes }: Piece) => Buffer.from(buffer.space.subarray(0, sizeBytes))

async function readAll(pieces: ReturnType<typeof createSharedPieces>, from: number): Promise<Buffer> {
  const found: Buffer[] = []
  for (let position = from; ;) {
    const piece = await pieces.take(blobOf(handle), position)
    found.push(contentOf(piece))
    piece.release()
    if (piece.sizeBytes === 0) return Buffer.concat(found)
    position += piece.sizeBytes
  }
}

test('a module is read in pieces from wherever one begins, and the second piece begins where others do', async () => {
  const pieces = createSharedPieces()
  for (const from of [0, 1, PIECE_BYTES - 1, 3 * PIECE_BYTES, bytes.length - 1, bytes.length]) {
    expect((await readAll(pieces, from)).equals(bytes.subarray(from)), `from ${from}`).toBe(true)
  }
  expect((await pieces.take(blobOf(handle), 1)).sizeBytes).toBe(PIECE_BYTES - 1)
})

test('a piece is read once for all that want it at the same time, and for those who come soon after', async () => {
  const pieces = createSharedPieces()
  const read = vi.spyOn(handle, 'read')
  const taken = await Promise.all(Array.from({ length: 100 }, () => pieces.take(blobOf(handle), 0)))
  for (const piece of taken) piece.release()
  ;(await pieces.take(blobOf(handle), 0)).release()
  expect(read).toHaveBeenCalledTimes(1)
  await pieces.take(blobOf(handle, '2'), 0)
  expect(read).toHaveBeenCalledTimes(2)
})

test('a piece that somebody is sending keeps its bytes, whatever else is read', async () => {
  const pieces = createSharedPieces()
  const [held, shared] = await Promise.all([pieces.take(blobOf(handle), 0), pieces.take(blobOf(handle), 0)])
  shared.release()
  await readAll(pieces, PIECE_BYTES)
  await readAll(pieces, PIECE_BYTES)
  expect(contentOf(held).equals(bytes.subarray(0, PIECE_BYTES))).toBe(true)
})

test('buffers are used again, but never one that a connection may still be reading', async () => {
  const pieces = createSharedPieces()
  const abandoned = await pieces.take(blobOf(handle), 0)
  abandoned.abandon()
  const buffers = new Set<unknown>()
  for (let round = 0; round < 3; round++) {
    for (let index = 1; index < PIECES; index++) {
      const piece = await pieces.take(blobOf(handle), index * PIECE_BYTES)
      buffers.add(piece.buffer)
      piece.release()
    }
  }
  expect(buffers.has(abandoned.buffer)).toBe(false)
  expect(buffers.size).toBeLessThan(PIECES - 1)
  expect(contentOf(abandoned).equals(bytes.subarray(0, PIECE_BYTES))).toBe(true)
})

test('a disk that fails is heard by all who wait, and asked again by the next', async () => {
  const pieces = createSharedPieces()
  const broken = await open(join(folder, 'm'))
  await broken.close()
  const both = [pieces.take(blobOf(broken), 0), pieces.take(blobOf(broken), 0)]
  for (const { status } of await Promise.allSettled(both)) expect(status).toBe('rejected')
  expect((await pieces.take(blobOf(handle), 0)).sizeBytes).toBe(PIECE_BYTES)
})
