/** Files of modules as they are written: at once while the disk is quick, by another thread while it is not. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { FileWriter } from '#worker/modules/module-files.ts'

let folder: string
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'skein-files-'))))
afterAll(() => rmSync(folder, { recursive: true }))

/** A clock of which every other look comes so much later. */
function clockOf(tookMs: readonly number[]): () => number {
  let [nowMs, looks] = [0, 0]
  return () => {
    if (looks % 2 === 1) nowMs += tookMs[(looks - 1) / 2] ?? 0
    looks++
    return nowMs
  }
}

test('the thread writes until a write was slow, and again after a fast write of another thread', async () => {
  await using file = await open(join(folder, 'turns'), 'w')
  const writer = new FileWriter(file, clockOf([1, 1, 1, 400, 300, 200, 1, 1]))
  const parts = Array.from({ length: 8 }, () => randomBytes(1_000))
  const isAside: boolean[] = []
  for (const part of parts) {
    const written = writer.write(part)
    isAside.push(written !== undefined)
    await written
  }
  expect(isAside).toEqual([true, false, false, false, true, true, true, false])
  expect(readFileSync(join(folder, 'turns'))).toEqual(Buffer.concat(parts))
})

test('written bytes follow the existing ones', async () => {
  const path = join(folder, 'part')
  for (const text of ['begun ', 'and ', 'ended']) {
    await using file = await open(path, 'a')
    const writer = new FileWriter(file, clockOf([]))
    await writer.write(Buffer.from(text.slice(0, 2)))
    await writer.write(Buffer.from(text.slice(2)))
  }
  expect(readFileSync(path, 'utf8')).toBe('begun and ended')
})

test.runIf(process.platform === 'linux')('a full disk is reported by every writer', async () => {
  await using file = await open('/dev/full', 'w')
  const writer = new FileWriter(file, clockOf([]))
  await expect(writer.write(Buffer.from('a'))).rejects.toMatchObject({ code: 'ENOSPC' })
  expect(await writer.write(Buffer.alloc(0))).toBeUndefined()
  expect(() => writer.write(Buffer.from('a'))).toThrow(expect.objectContaining({ code: 'ENOSPC' }))
})
