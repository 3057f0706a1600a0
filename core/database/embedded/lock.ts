/**
 * One Skein per data folder. The lock is one of the operating system (fcntl, taken through the SQLite library that is
 * part of Node): it ends with the process, however that ends, it needs no guess about recycled process ids, and of two
 * simultaneous starts exactly one gets it. Containers that share the folder see it as well.
 */
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { ServiceError } from '../../errors/index.ts'
import { giveToFolderOwner } from './account.ts'
import { fileFailure } from './failures.ts'
import { isAlive } from './processes.ts'

export type FolderLock = {
  /** The server ended but the folder stays ours: a later start of this process takes the lock over. */
  vacate(): void
  /** Lets others in, unless a later start of this process has taken the lock over. */
  release(): void
}

type Held = { database: DatabaseSync; owner: symbol; isVacant: boolean }

const SQLITE_BUSY = 5
const held = new Map<string, Held>()

/** Throws `invalid_state` naming the process that holds the folder. */
export function lockFolder(baseDir: string): FolderLock {
  const owner = Symbol(baseDir)
  const known = held.get(baseDir)
  if (known !== undefined) {
    if (!known.isVacant) throw inUse(baseDir, `this process (pid ${process.pid})`)
    known.owner = owner
    known.isVacant = false
  } else {
    held.set(baseDir, { database: takeLock(baseDir), owner, isVacant: false })
  }
  return {
    vacate() {
      const mine = held.get(baseDir)
      if (mine?.owner === owner) mine.isVacant = true
    },
    release() {
      const mine = held.get(baseDir)
      if (mine?.owner !== owner) return
      held.delete(baseDir)
      mine.database.close()
    },
  }
}

function takeLock(baseDir: string): DatabaseSync {
  const file = join(baseDir, 'postgres.lock')
  const database = open(file, baseDir)
  try {
    // Nothing is ever written through it, so that it locks on a full disk as well.
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
  } catch (error) {
    database.close()
    if ((error as { errcode?: unknown }).errcode === SQLITE_BUSY) throw inUse(baseDir, readHolder(baseDir))
    throw fileFailure(error, `the data folder ${baseDir} cannot be locked`)
  }
  try {
    chmodSync(file, 0o600)
    giveToFolderOwner(file)
    writeHolder(baseDir)
  } catch (error) {
    database.close()
    throw fileFailure(error, `the data folder ${baseDir} cannot be locked`)
  }
  return database
}

function open(file: string, baseDir: string): DatabaseSync {
  try {
    return new DatabaseSync(file, { timeout: 0 })
  } catch (error) {
    throw fileFailure(error, `the data folder ${baseDir} cannot be locked`)
  }
}

function holderFile(baseDir: string): string {
  return join(baseDir, 'postgres.holder')
}

/** For the message alone: who holds the lock is decided by the lock. */
function writeHolder(baseDir: string): void {
  const file = holderFile(baseDir)
  const fresh = `${file}.${process.pid}`
  writeFileSync(fresh, `${process.pid}\n`, { mode: 0o600 })
  giveToFolderOwner(fresh)
  renameSync(fresh, file)
}

function readHolder(baseDir: string): string {
  try {
    const pid = Number(readFileSync(holderFile(baseDir), 'utf8'))
    // A holder that has only just got the lock may not have written its id over the one before.
    return isAlive(pid) ? `another Skein (pid ${pid})` : 'another Skein, which is just starting'
  } catch {
    return 'another Skein, which is just starting'
  }
}

function inUse(baseDir: string, holder: string): ServiceError {
  return new ServiceError(
    'invalid_state',
    `the data folder ${baseDir} is in use by ${holder}; stop that one, or set SKEIN_DATA_DIR to another folder`,
  )
}
