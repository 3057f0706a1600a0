/** The password of the embedded server: random, in a file that only the user of Skein can read. */
import { chmodSync, closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { newToken } from '#core/ids.ts'
import { giveToFolderOwner } from './account.ts'
import { fileFailure } from './failures.ts'

export type Password = {
  text: string
  /** True if it is not on disk yet: an existing cluster must be given the password first. */
  isNew: boolean
  /** Writes it to disk; has no effect when it is already there. */
  keep(): void
}

const PASSWORD = /^[A-Za-z0-9_-]{20,}$/

/** The password in the folder's file, or a new one when the file is missing or damaged. */
export function ensurePassword(baseDir: string): Password {
  const file = join(baseDir, 'postgres.password')
  const known = readPassword(file)
  const text = known ?? newToken()
  return {
    text,
    isNew: known === undefined,
    keep() {
      if (known === undefined) writePassword(file, text)
    },
  }
}

function readPassword(file: string): string | undefined {
  try {
    const text = readFileSync(file, 'utf8').trim()
    chmodSync(file, 0o600)
    return PASSWORD.test(text) ? text : undefined
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw fileFailure(error, `the password file ${file} cannot be read`)
  }
}

function writePassword(file: string, text: string): void {
  const fresh = `${file}.${process.pid}`
  try {
    rmSync(fresh, { force: true })
    const descriptor = openSync(fresh, 'wx', 0o600)
    try {
      writeSync(descriptor, text)
      fsyncSync(descriptor)
    } finally {
      closeSync(descriptor)
    }
    giveToFolderOwner(fresh)
    renameSync(fresh, file)
  } catch (error) {
    throw fileFailure(error, `the password file ${file} cannot be written`)
  }
}
