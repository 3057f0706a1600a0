import { chownSync, mkdirSync, mkdtempDisposableSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ownAccount } from './account.ts'
import { ensureSocketDir } from './socket.ts'

const account = ownAccount()

function folderWith(put: (socketDir: string) => void) {
  const folder = mkdtempDisposableSync(join(tmpdir(), 'skein-'))
  put(join(folder.path, 'run'))
  return folder
}

it('refuses a link, also to a folder of the same user', () => {
  using folder = folderWith((path) => symlinkSync(tmpdir(), path))
  const socketDir = join(folder.path, 'run')
  expect(() => ensureSocketDir(folder.path, account)).toThrow(`${socketDir} is a link and not a folder; remove it`)
})

it('refuses a file', () => {
  using folder = folderWith((path) => writeFileSync(path, ''))
  expect(() => ensureSocketDir(folder.path, account)).toThrow('a file exists in its place')
})

it.runIf(account.uid === 0)('refuses a folder of another user, and names both', () => {
  using folder = folderWith((path) => {
    mkdirSync(path)
    chownSync(path, 1234, 1234)
  })
  expect(() => ensureSocketDir(folder.path, account)).toThrow('belongs to the user id 1234 and not to 0; remove it')
})
