/**
 * One process per folder. The lock is one of the operating system (fcntl, taken through the SQLite library that is part of
 * Node): it ends with the process, however that ends, it needs no guess about recycled process ids, and of two simultaneous
 * starts exactly one gets it. Containers that share the folder see it as well. Nothing else of this process may open the
 * lock file: closing it again would give the lock away (fcntl(2)).
 */
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { ServiceError } from './errors/index.ts'
import { isAlive } from './processes.ts'
import { monotonicMs, sleep } from './time.ts'

export type FolderLockOptions = {
  /** The lock is the file `<path>.lock`; `<path>.holder` names its holder. */
  path: string
  /** As sentences say it: `the data folder /data`. */
  folder: string
  /** Who else may hold it: `another Skein`. */
  holder: string
  /** What to do then: `stop that one, or …`. */
  advice: string
  /** The error for a file that cannot be read or written. */
  failure?: ((error: unknown, what: string) => Error) | undefined
  /** Called with each file that was made. */
  onMade?: ((file: string) => void) | undefined
}

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
export async function lockFolder(options: FolderLockOptions, signal?: AbortSignal): Promise<FolderLock> {
  const beganMs = monotonicMs()
  for (;;) {
    const lock = tryLock(options)
    if (lock !== undefined) return lock
    const pid = readHolder(options)
    const waitedMs = monotonicMs() - beganMs
    if (pid !== undefined && isAlive(pid) && waitedMs > LIVING_DEADLINE_MS) {
      throw inUse(options, `${options.holder} (pid ${pid})`)
    }
    if (waitedMs > DYING_DEADLINE_MS) throw inUse(options, `${options.holder}, which this system does not show`)
    await sleep(DYING_PAUSE_MS, signal)
  }
}

/** Undefined when another process has it. */
function tryLock(options: FolderLockOptions): FolderLock | undefined {
  const { path } = options
  const owner = Symbol(path)
  const known = held.get(path)
  if (known === undefined) {
    const database = takeLock(options)
    if (database === undefined) return undefined
    held.set(path, { database, owner, isVacant: false })
  } else {
    if (!known.isVacant) throw inUse(options, `this process (pid ${process.pid})`)
    known.owner = owner
    known.isVacant = false
  }
  return {
    vacate() {
      const mine = held.get(path)
      if (mine?.owner === owner) mine.isVacant = true
    },
    release() {
      const mine = held.get(path)
      if (mine?.owner !== owner) return
      held.delete(path)
      mine.database.close()
    },
  }
}

function takeLock(options: FolderLockOptions): DatabaseSync | undefined {
  const file = `${options.path}.lock`
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(file, { timeout: 0 })
    // Nothing is ever written through it, so that it locks on a full disk as well.
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    chmodSync(file, 0o600)
    options.onMade?.(file)
    writeHolder(options)
    return database
  } catch (error) {
    database?.close()
    if ((error as { errcode?: unknown }).errcode === SQLITE_BUSY) return undefined
    throw options.failure?.(error, `${options.folder} cannot be locked`) ?? error
  }
}

/** For the message alone: who holds the lock is decided by the lock. */
function writeHolder({ path, onMade }: FolderLockOptions): void {
  const fresh = `${path}.holder.${process.pid}`
  writeFileSync(fresh, `${process.pid}\n`, { mode: 0o600 })
  onMade?.(fresh)
  renameSync(fresh, `${path}.holder`)
}

/** A holder that has only just got the lock may not have written its id over the one before. */
function readHolder({ path }: FolderLockOptions): number | undefined {
  try {
    return Number(readFileSync(`${path}.holder`, 'utf8'))
  } catch {
    return undefined
  }
}

function inUse({ folder, advice }: FolderLockOptions, holder: string): ServiceError {
  return new ServiceError('invalid_state', `${folder} is in use by ${holder}; ${advice}`)
}
