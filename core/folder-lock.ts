/**
 * One process per folder. The lock belongs to the operating system (fcntl, taken through the SQLite library of Node): it ends with
 * the process in every case, does not depend on process ids, which are reused, and exactly one of two concurrent starts gets it.
 * It works between containers that share the folder. No other code of this process may open the lock file, because closing it
 * would release the lock (fcntl(2)).
 */
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { ServiceError } from './errors/index.ts'
import { isAlive } from './processes.ts'
import { monotonicMs, sleep } from './time.ts'

export type FolderLockOptions = {
  /** The lock is the file `<path>.lock`; `<path>.holder` names its holder. */
  path: string
  /** The name of the folder in messages: `the data folder /data`. */
  folder: string
  /** The name of another holder in messages: `another Skein process`. */
  holder: string
  /** The advice in messages: `stop it, or …`. */
  advice: string
  /** Creates the error for a file that cannot be read or written. */
  failure?: ((error: unknown, what: string) => Error) | undefined
  /** Called with each file that is created. */
  onCreated?: ((file: string) => void) | undefined
}

export type FolderLock = {
  /** The server has ended but this process keeps the folder: a later start takes the lock over. */
  vacate(): void
  /** Releases the lock, unless a later start of this process has taken it over. */
  release(): void
}

type HeldLock = { database: DatabaseSync; owner: symbol; isVacant: boolean }

const SQLITE_BUSY = 5
const DYING_DEADLINE_MS = 3000
const DYING_PAUSE_MS = 10
/** A process that was just killed still appears to be alive: a start right after it must wait. */
const LIVING_DEADLINE_MS = 1000
const held = new Map<string, HeldLock>()

/**
 * Throws `invalid_state` with the process that holds the folder. Waits for a holder that is ending: the system releases the lock
 * of a killed process only after its other resources.
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
    if (waitedMs > DYING_DEADLINE_MS) throw inUse(options, `${options.holder} whose process id is unknown`)
    await sleep(DYING_PAUSE_MS, signal)
  }
}

/** Undefined when another process holds it. */
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
    // Nothing is written through it, so locking works on a full disk too.
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    chmodSync(file, 0o600)
    options.onCreated?.(file)
    writeHolder(options)
    return database
  } catch (error) {
    database?.close()
    if ((error as { errcode?: unknown }).errcode === SQLITE_BUSY) return undefined
    throw options.failure?.(error, `${options.folder} failed to lock`) ?? error
  }
}

/** Writes who holds the lock. It is read for messages only; the lock itself decides. */
function writeHolder({ path, onCreated }: FolderLockOptions): void {
  const fresh = `${path}.holder.${process.pid}`
  writeFileSync(fresh, `${process.pid}\n`, { mode: 0o600 })
  onCreated?.(fresh)
  renameSync(fresh, `${path}.holder`)
}

/** A new holder may not have replaced the id of the previous one yet. */
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
