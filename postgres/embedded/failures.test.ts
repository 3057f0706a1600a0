import { describe, expect, it } from 'vitest'
import { fileFailure, isLeftoverConflict, programFailure, spawnFailure } from './failures.ts'

describe('the message of a failure', () => {
  it.each([
    ['FATAL:  could not write lock file "postmaster.pid": No space left on device', 'the disk is full'],
    ['FATAL:  could not extend file "base/1/2691": wrote only 4096 of 8192 bytes at block 9', 'the disk is full'],
    ['initdb: error: could not look up effective user ID 1234: user does not exist', 'user id 1234 has no name'],
    ['postgres: error while loading shared libraries: libicuuc.so.60: cannot open', 'run npm ci'],
    ['FATAL:  could not resize shared memory segment "/PostgreSQL.1": No space left on device', 'enlarge /dev/shm'],
    ['PANIC:  could not locate a valid checkpoint record at 0/1', 'restore a backup'],
    ['[postmaster] FATAL:  something else', 'it: something else'],
    ['', 'it ended without output'],
  ])('explains %j', (output, expected) => {
    const failure = programFailure('it', output)
    expect(failure.kind).toBe('unavailable')
    expect(failure.message).toContain(expected)
  })

  it('recognizes a conflict with an earlier server that has not ended', () => {
    expect(isLeftoverConflict('FATAL:  lock file "postmaster.pid" already exists')).toBe(true)
    expect(isLeftoverConflict('FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use')).toBe(true)
    expect(isLeftoverConflict('FATAL:  could not write lock file "postmaster.pid": No space left on device')).toBe(
      false,
    )
  })

  it('distinguishes a missing C library from a missing program', () => {
    const error = Object.assign(new Error('spawn'), { code: 'ENOENT' })
    expect(spawnFailure(error, process.execPath).message).toContain('GNU C library')
    expect(spawnFailure(error, '/does/not/exist').message).toContain('run npm ci')
  })

  it('maps the error codes of Node and SQLite to advice', () => {
    const of = (codes: { code: string; errcode?: number }) =>
      fileFailure(Object.assign(new Error('?'), codes), 'x').message
    expect(of({ code: 'EROFS' })).toContain('read-only')
    expect(of({ code: 'EACCES' })).toContain('permission denied')
    expect(of({ code: 'ERR_SQLITE_ERROR', errcode: 14 })).toContain('permission denied')
    expect(of({ code: 'ERR_SQLITE_ERROR', errcode: 8 + 256 })).toContain('read-only')
  })
})
