import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { syncTree } from './sync-folder.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-sync-'))
  mkdirSync(join(folder, 'base', '1'), { recursive: true })
  mkdirSync(join(folder, 'empty'))
  for (const path of ['PG_VERSION', 'base/1/112', 'base/1/113']) writeFileSync(join(folder, path), path)
})
afterEach(() => rmSync(folder, { recursive: true }))

test('syncs the folder and every file and folder below it, once', async () => {
  const synced: string[] = []
  await syncTree(folder, async (path) => {
    await Promise.resolve()
    synced.push(path)
  })
  const below = ['PG_VERSION', 'base', 'base/1', 'base/1/112', 'base/1/113', 'empty'].map((path) => join(folder, path))
  expect(synced.toSorted()).toEqual([folder, ...below].toSorted())
})

test('rejects when one of them cannot be synced', async () => {
  const refuse = (path: string) => (path.endsWith('113') ? Promise.reject(new Error('EIO')) : Promise.resolve())
  await expect(syncTree(folder, refuse)).rejects.toThrow('EIO')
})

test('syncs real files', async () => {
  await expect(syncTree(folder)).resolves.toBeUndefined()
})
