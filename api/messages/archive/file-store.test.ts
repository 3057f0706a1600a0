import { chmodSync, chownSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createFolderOf, isHiddenFromGroup, writeNewFile } from './file-store.ts'
import { isStoreExhausted, storeFailure } from './open-store.ts'

const [NOBODY, OTHER_GROUP] = [65_534, 54_321]

/** Runs the work in a new folder as a user who is not in its group. */
async function asOther(mode: number, umask: number, work: (path: string) => Promise<void>): Promise<void> {
  const path = mkdtempSync(join(tmpdir(), 'skein-modes-'))
  chownSync(path, NOBODY, OTHER_GROUP)
  chmodSync(path, mode)
  const before = process.umask(umask)
  process.setegid?.(NOBODY)
  process.seteuid?.(NOBODY)
  try {
    await work(path)
  } finally {
    process.seteuid?.(0)
    process.setegid?.(0)
    process.umask(before)
    rmSync(path, { recursive: true })
  }
}

const facts = (path: string) => {
  const { mode, gid } = statSync(path)
  return [(mode & 0o7777).toString(8), gid]
}

const isRoot = process.getuid?.() === 0

test.runIf(isRoot)('a folder with the set-group-id bit passes it and its group on to everything below', async () => {
  await asOther(0o2750, 0o027, async (path) => {
    await writeNewFile(`file://${path}/a/b/file`, Buffer.from('x'))
    expect(facts(join(path, 'a'))).toEqual(['2750', OTHER_GROUP])
    expect(facts(join(path, 'a/b'))).toEqual(['2750', OTHER_GROUP])
    expect(facts(join(path, 'a/b/file'))).toEqual(['640', OTHER_GROUP])
    expect(await isHiddenFromGroup(`file://${path}/a`)).toBe(false)
  })
})

test.runIf(isRoot)('a umask that hides such a folder from its group is no failure, and is seen', async () => {
  await asOther(0o2750, 0o077, async (path) => {
    await createFolderOf(`file://${path}/a/b/file`)
    expect(facts(join(path, 'a/b'))).toEqual(['2700', OTHER_GROUP])
    expect(await isHiddenFromGroup(`file://${path}/a`)).toBe(true)
  })
})

test.runIf(isRoot)('without the bit the umask does not matter', async () => {
  for (const umask of [0o000, 0o077])
    await asOther(0o750, umask, async (path) => {
      await writeNewFile(`file://${path}/a/file`, Buffer.from('x'))
      expect(facts(join(path, 'a'))).toEqual(['750', NOBODY])
      expect(facts(join(path, 'a/file'))).toEqual(['640', NOBODY])
      expect(await isHiddenFromGroup(`file://${path}/a`)).toBe(false)
    })
})

test('a connection error is not an error of the store', () => {
  const errorOf = (code: string, syscall: string) => Object.assign(new Error(`${syscall} ${code}`), { code, syscall })
  for (const [code, syscall] of [
    ['ECONNRESET', 'read'],
    ['EPIPE', 'write'],
    ['ETIMEDOUT', 'read'],
    ['ECONNREFUSED', 'connect'],
  ] as const)
    expect(storeFailure(errorOf(code, syscall))).toBeUndefined()
  expect(storeFailure(new Error('failed', { cause: errorOf('ENOSPC', 'write') }))).toBe('it is full (ENOSPC, write)')
  expect(storeFailure(errorOf('EMFILE', 'open'))).toBe('it cannot be used (EMFILE, open)')
  expect(isStoreExhausted(errorOf('EIO', 'read'))).toBe(true)
})
