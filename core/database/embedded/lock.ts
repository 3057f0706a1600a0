/**
 * One Skein per data folder. The lock is one of the operating system (fcntl, taken through the SQLite library that is
 * part of Node): it ends with the process, however that ends, it needs no guess about recycled process ids, and of two
 * simultaneous starts exactly one gets it. Containers that share the folder see it as well. Nothing else of this process
 * may open the lock file: closing it again would give the lock away (fcntl(2)).
 */
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { ServiceError } from '../../errors/index.ts'
import { monotonicMs, sleep } from '../../time.ts'
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
const DYING_DEADLINE_MS = 3000
const DYING_PAUSE_MS = 10
/** A process that was killed this moment still looks alive: whoever starts right after it must not be turned away. */
const LIVING_DEADLINE_MS = 1000
const held = new Map<string, Held>()

/**
 * Throws `invalid_state` naming the process that holds the folder. A holder that dies meanwhile is waited for: the
 * system gives the lock of a killed process back only when it has cleared the rest of it away.
 */
export async function lockFolder(baseDir: string, signal?: AbortSignal): Promise<FolderLock> {
  const beganMs = monotonicMs()
  for (;;) {
    const lock = tryLock(baseDir)
    if (lock !== undefined) return lock
    const pid = readHolder(baseDir)
    const waitedMs = monotonicMs() - beganMs
    if (pid !== undefined && isAlive(pid) && waitedMs > LIVING_DEADLINE_MS) {
      throw inUse(baseDir, `another Skein (pid ${pid})`)
    }
    if (waitedMs > DYING_DEADLINE_MS) throw inUse(baseDir, 'another Skein, which this system does not show')
    await sleep(DYING_PAUSE_MS, signal)
  }
}

/** Undefined when another process has it. */
function tryLock(baseDir: string): FolderLock | undefined {
  const owner = Symbol(baseDir)
  const known = held.get(baseDir)
  if (known === undefined) {
    const database = takeLock(baseDir)
    if (database === undefined) return undefined
    held.set(baseDir, { database, owner, isVacant: false })
  } else {
    if (!known.isVacant) throw inUse(baseDir, `this process (pid ${process.pid})`)
    known.owner = owner
    known.isVacant = false
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

function takeLock(baseDir: string): DatabaseSync | undefined {
  const file = join(baseDir, 'postgres.lock')
  const database = open(file, baseDir)
  try {
    // Nothing is ever written through it, so that it locks on a full disk as well.
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
  } catch (error) {
    database.close()
    if ((error as { errcode?: unknown }).errcode === SQLITE_BUSY) return undefined
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

/** A holder that has only just got the lock may not have written its id over the one before. */
function readHolder(baseDir: string): number | undefined {
  try {
    return Number(readFileSync(holderFile(baseDir), 'utf8'))
  } catch {
    return undefined
  }
}

function inUse(baseDir: string, holder: string): ServiceError {
  return new ServiceError(
    'invalid_state',
    `the data folder ${baseDir} is in use by ${holder}; stop that one, or set SKEIN_DATA_DIR to another folder`,
  )
}
