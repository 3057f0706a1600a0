/**
 * The folder below the system folder that belongs to a data folder. A file in the data folder names it, rather than its path: a
 * fresh clone at the path of an earlier one must not use the earlier one's data.
 */
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { fileFailure } from './failures.ts'

const NAME = /^[0-9a-f]{16}$/

/** The name of the folder in use; undefined when there is none. */
export function findServerFolderName(dataDir: string): string | undefined {
  const file = locationFile(dataDir)
  try {
    const name = readFileSync(file, 'utf8').trim()
    if (NAME.test(name)) return name
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw fileFailure(error, `${file} cannot be read`)
  }
  throw new ServiceError(
    'invalid_state',
    `${file} is damaged; restore it, because it contains the name of the database's folder`,
  )
}

/** Finds a name as `findServerFolderName` does, but creates a missing one. Concurrent calls return the same name. */
export function ensureServerFolderName(dataDir: string): string {
  const known = findServerFolderName(dataDir)
  if (known !== undefined) return known
  const name = randomBytes(8).toString('hex')
  const file = locationFile(dataDir)
  const fresh = `${file}.${name}`
  try {
    writeFileSync(fresh, `${name}\n`, { mode: 0o600, flag: 'wx' })
    // A hard link appears with its content and never replaces an existing file.
    linkSync(fresh, file)
    return name
  } catch (error) {
    const winner = findServerFolderName(dataDir)
    if (winner !== undefined) return winner
    throw fileFailure(error, `${file} cannot be written`)
  } finally {
    rmSync(fresh, { force: true })
  }
}

function locationFile(dataDir: string): string {
  return join(dataDir, 'postgres.location')
}
