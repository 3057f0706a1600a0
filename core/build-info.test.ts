// contract section 11: /health names the commit
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { commitOf } from './build-info.ts'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'skein-build-info-'))
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true })
  writeFileSync(join(root, path), `${text}\n`)
}

test('the commit of a clone is read from its branch, from packed references, or from a detached HEAD', () => {
  write('.git/HEAD', 'ref: refs/heads/main')
  write('.git/packed-refs', '# pack-refs with: peeled\naaaa refs/heads/main')
  expect(commitOf(root)).toBe('aaaa')
  write('.git/refs/heads/main', 'bbbb')
  expect(commitOf(root)).toBe('bbbb')
  write('.git/HEAD', 'cccc')
  expect(commitOf(root)).toBe('cccc')
})

test('the commit of a worktree is read from its own branch', () => {
  write('clone/.git/HEAD', 'ref: refs/heads/main')
  write('clone/.git/refs/heads/side', 'dddd')
  write('clone/.git/worktrees/side/HEAD', 'ref: refs/heads/side')
  write('clone/.git/worktrees/side/commondir', '../..')
  write('side/.git', `gitdir: ${join(root, 'clone/.git/worktrees/side')}`)
  expect(commitOf(join(root, 'side'))).toBe('dddd')
})

test('a folder without a repository has no commit', () => {
  expect(commitOf(root)).toBe('unknown')
})
