/** Whose folder the archive is: copies of an installation, other nodes of it, and folders that go away (decision 0151). */
import { mkdirSync, readFileSync, rmdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { archive, newArchiveFolder, tryArchive } from './archive-support.ts'
import type { ArchiveFolder } from './archive-support.ts'

const HOUR_MS = 3_600_000
const OTHER = 'last written by another installation'

let original: TestDatabase
let copy: TestDatabase
let folder: ArchiveFolder
beforeEach(async () => {
  ;[original, copy, folder] = [await createTestDatabase(), await createTestDatabase(), newArchiveFolder()]
})
afterEach(async () => {
  await original[Symbol.asyncDispose]()
  await copy[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

const word = () => readFileSync(join(folder.path, 'owner'), 'utf8')

/** What the original knows of the folder, in the database of the copy: as a restored backup or a promoted standby has it. */
async function copyOwner(): Promise<void> {
  const { rows } = await original.database.pool.query<{ value: object }>(
    `SELECT value FROM installation WHERE name = 'archive_owner'`,
  )
  await copy.database.pool.query(
    `INSERT INTO installation (name, value) VALUES ('archive_owner', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
    [JSON.stringify(rows[0]?.value)],
  )
}

test('a copy that begins before the next round of its original takes nothing from it', async () => {
  const ofOriginal = { memory: {} }
  const ofCopy = { memory: {}, confirmMs: HOUR_MS }
  await archive(original, folder.url, ofOriginal)
  await copyOwner()
  const before = word()
  // The word is the same: it does not say whose the folder is.
  expect(await tryArchive(copy, folder.url, ofCopy)).toBeUndefined()
  expect(await tryArchive(copy, folder.url, ofCopy)).toBeUndefined()
  expect(word()).toBe(before)
  await archive(original, folder.url, ofOriginal)
  await expect(archive(copy, folder.url, ofCopy)).rejects.toThrow(OTHER)
  // Neither does time: the original changes it.
  await expect(archive(copy, folder.url, { ...ofCopy, confirmMs: 0 })).rejects.toThrow(OTHER)
  expect(await archive(original, folder.url, ofOriginal)).toMatchObject({ failures: [] })
})

test('a node begins when another one of its installation has written the word, or when it has not changed', async () => {
  const [first, second] = [{ memory: {} }, { memory: {}, confirmMs: HOUR_MS }]
  await archive(original, folder.url, first)
  expect(await tryArchive(original, folder.url, second)).toBeUndefined()
  await archive(original, folder.url, first)
  await archive(original, folder.url, second)
  // Each of them goes on at once from now on.
  await archive(original, folder.url, { ...first, confirmMs: HOUR_MS })
  await archive(original, folder.url, second)
  const third = { memory: {} }
  expect(await tryArchive(original, folder.url, { ...third, confirmMs: HOUR_MS })).toBeUndefined()
  await archive(original, folder.url, { ...third, confirmMs: 0 })
})

test('a takeover that could not write its word has not happened', async () => {
  await archive(original, folder.url)
  const before = word()
  const inTheWay = join(folder.path, 'owner.new')
  mkdirSync(inTheWay)
  await expect(archive(copy, folder.url, { takeoverMs: 0 })).rejects.toMatchObject({ code: 'EISDIR' })
  rmdirSync(inTheWay)
  expect(word()).toBe(before)
  // The word of the other installation did not become a known one.
  await expect(archive(copy, folder.url)).rejects.toThrow(OTHER)
  await archive(original, folder.url)
})
