/**
 * Which folder below the system folder belongs to a data folder. A file in the data folder says so, not its path: a
 * fresh clone in the place of an earlier one must not meet the earlier one's data.
 */
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { ServiceError } from '../../errors/index.ts'
import { fileFailure } from './failures.ts'

const NAME = /^[0-9a-f]{16}$/

/** The name of the folder in use; undefined when none was ever needed. */
export function findLocation(dataDir: string): string | undefined {
  const file = locationFile(dataDir)
  try {
    const name = readFileSync(file, 'utf8').trim()
    if (NAME.test(name)) return name
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw fileFailure(error, `${file} cannot be read`)
  }
  throw new ServiceError('invalid_state', `${file} is damaged; it holds the name of the database's folder, restore it`)
}

/** As `findLocation`, and a new name where there is none. Of simultaneous calls all get the same. */
export function ensureLocation(dataDir: string): string {
  const known = findLocation(dataDir)
  if (known !== undefined) return known
  const name = randomBytes(8).toString('hex')
  const file = locationFile(dataDir)
  const fresh = `${file}.${name}`
  try {
    writeFileSync(fresh, `${name}\n`, { mode: 0o600, flag: 'wx' })
    // A link comes with its content and never replaces another.
    linkSync(fresh, file)
    return name
  } catch (error) {
    const winner = findLocation(dataDir)
    if (winner !== undefined) return winner
    throw fileFailure(error, `${file} cannot be written`)
  } finally {
    rmSync(fresh, { force: true })
  }
}

function locationFile(dataDir: string): string {
  return join(dataDir, 'postgres.location')
}
