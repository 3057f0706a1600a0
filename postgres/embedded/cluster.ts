/** The database cluster on disk: created completely or not at all, with the major version of the binaries. */
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { newToken } from '#core/ids.ts'
import { syncFolder, syncTree } from '#core/sync-folder.ts'
import { giveTo } from './account.ts'
import { fileFailure } from './failures.ts'
import { ensurePassword } from './password.ts'
import { clusterDirOf } from './server-home.ts'
import type { ServerHome } from './server-home.ts'
import { runProgram } from './run-program.ts'

export const DATABASE_USER = 'skein'
export const DATABASE_NAME = 'skein'
/**
 * The database that initdb creates for administrators. It becomes ours: the copy of another database takes as long as the start of the
 * server.
 */
const INITIAL_DATABASE = 'postgres'

const PROGRAM_DEADLINE_MS = 120_000
/**
 * The system's locale decides which characters are letters, and pg_trgm indexes letters only: with `C`, only ASCII letters. The
 * first locale that the system has is used; every system has `C`.
 */
const CHARACTER_TYPES = ['C.UTF-8', 'en_US.UTF-8', 'C'] as const

export type ClusterOptions = {
  home: ServerHome
  environment: Record<string, string>
  isUnsafe: boolean
  log: (line: string) => void
  signal: AbortSignal | undefined
}

export type Cluster = { clusterDir: string; password: string }

/** Creates the server's folder, which contains the cluster and the socket. */
export function ensurePostgresDir(home: ServerHome): string {
  const folder = dirname(clusterDirOf(home.baseDir))
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    giveTo(home.account, folder)
    return folder
  } catch (error) {
    throw fileFailure(error, `the folder ${folder} cannot be created`)
  }
}

/**
 * Requires the folder's lock and no running server. Throws `invalid_state` for a cluster of another major version, and
 * `unavailable` when it cannot be created.
 */
export async function ensureCluster(options: ClusterOptions): Promise<Cluster> {
  const { home } = options
  const clusterDir = clusterDirOf(home.baseDir)
  const password = ensurePassword(home.baseDir)
  if (existsSync(clusterDir)) {
    requireVersion(clusterDir, home.binaries.majorVersion)
    // A copy or a restored backup may have lost its permissions, without which PostgreSQL does not start.
    chmodSync(clusterDir, 0o700)
    if (password.isNew) {
      options.log('the password file of the database was missing; setting a new password')
      await runSingle(options, clusterDir, DATABASE_NAME, [`ALTER ROLE ${DATABASE_USER} PASSWORD '${password.text}'`])
      password.keep()
    }
    return { clusterDir, password: password.text }
  }
  password.keep()
  await createCluster(options, clusterDir, password.text)
  return { clusterDir, password: password.text }
}

function requireVersion(clusterDir: string, majorVersion: number): void {
  const found = readVersion(clusterDir)
  if (found === majorVersion) return
  const reason =
    found > majorVersion
      ? `was created by the newer PostgreSQL ${found}, and this version of Skein includes ${majorVersion}; start a newer version of Skein`
      : `was created by PostgreSQL ${found}, and this version of Skein includes ${majorVersion}; start the version of Skein that created it`
  throw new ServiceError(
    'invalid_state',
    `the database in ${clusterDir} ${reason}, serve it with PostgreSQL ${found} and set SKEIN_DATABASE_URL, ` +
      'or set SKEIN_DATA_DIR to another folder',
  )
}

function readVersion(clusterDir: string): number {
  try {
    const version = Number.parseInt(readFileSync(join(clusterDir, 'PG_VERSION'), 'utf8'), 10)
    if (Number.isSafeInteger(version)) return version
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw fileFailure(error, `${clusterDir} cannot be read`)
  }
  throw new ServiceError(
    'invalid_state',
    `${clusterDir} contains no PostgreSQL database; move it away, or set SKEIN_DATA_DIR to another folder`,
  )
}

/** Creates the cluster in a temporary folder and renames it when everything is written and synced. */
async function createCluster(options: ClusterOptions, clusterDir: string, password: string): Promise<void> {
  const { home, isUnsafe, signal } = options
  const postgresDir = dirname(clusterDir)
  await removeUnfinished(postgresDir)
  const unique = newToken(6)
  const fresh = `${clusterDir}.new-${unique}`
  const passwordFile = join(postgresDir, `password.new-${unique}`)
  options.log(`creating a new database in ${clusterDir}`)
  try {
    writeFileSync(passwordFile, password, { mode: 0o600, flag: 'wx' })
    giveTo(home.account, passwordFile)
    await runInitdb(options, fresh, passwordFile)
    await runSingle({ ...options, isUnsafe: true }, fresh, 'template1', [
      `ALTER DATABASE ${INITIAL_DATABASE} RENAME TO ${DATABASE_NAME}`,
      `COMMENT ON DATABASE ${DATABASE_NAME} IS NULL`,
    ])
    // The files are synced once and several at a time: both programs would sync what they wrote one file after the other.
    if (!isUnsafe) await syncTree(fresh, undefined, signal)
    await rename(fresh, clusterDir)
    syncFolder(postgresDir)
  } catch (error) {
    await rm(fresh, { recursive: true, force: true })
    throw signal?.aborted ? error : fileFailure(error, 'failed to create a new database')
  } finally {
    await rm(passwordFile, { force: true })
  }
}

/** Tries each locale; throws the error of the last one. The files are not synced. */
async function runInitdb(options: ClusterOptions, clusterDir: string, passwordFile: string): Promise<void> {
  const { home, environment, signal } = options
  for (const characterType of CHARACTER_TYPES) {
    try {
      await runProgram({
        file: home.binaries.initdb,
        args: [
          `--pgdata=${clusterDir}`,
          `--username=${DATABASE_USER}`,
          `--pwfile=${passwordFile}`,
          '--auth=scram-sha-256',
          '--encoding=UTF8',
          '--locale=C',
          `--lc-ctype=${characterType}`,
          '--locale-provider=builtin',
          '--builtin-locale=C.UTF-8',
          '--data-checksums',
          '--no-instructions',
          '--no-sync',
        ],
        account: home.account,
        environment,
        purpose: 'failed to create a new database',
        deadlineMs: PROGRAM_DEADLINE_MS,
        signal,
      })
      return
    } catch (error) {
      if (characterType === CHARACTER_TYPES.at(-1) || kindOf(error) !== 'unavailable') throw error
      await rm(clusterDir, { recursive: true, force: true })
    }
  }
}

/** Runs statements of one line each in single-user mode; any error ends the program with a failure. */
async function runSingle(
  options: ClusterOptions,
  clusterDir: string,
  database: string,
  statements: readonly string[],
): Promise<void> {
  const { home, environment, signal, isUnsafe } = options
  const settings = ['exit_on_error=on', 'log_min_error_statement=panic', `fsync=${isUnsafe ? 'off' : 'on'}`]
  await runProgram({
    file: home.binaries.postgres,
    args: ['--single', '-D', clusterDir, ...settings.flatMap((setting) => ['-c', setting]), database],
    account: home.account,
    environment,
    input: statements.map((statement) => `${statement};\n`).join(''),
    purpose: 'failed to prepare the database',
    deadlineMs: PROGRAM_DEADLINE_MS,
    signal,
  })
}

/** Removes the files of a killed start. A program that still writes to them fails when its folder is removed. */
async function removeUnfinished(postgresDir: string): Promise<void> {
  for (const name of readdirSync(postgresDir)) {
    if (!/^(cluster|password)\.new-/.test(name)) continue
    await rm(join(postgresDir, name), { recursive: true, force: true, maxRetries: 3 })
  }
}
