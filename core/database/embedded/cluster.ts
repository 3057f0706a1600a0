/** The cluster on disk: made once and whole or not at all, of the major version that the binaries serve. */
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { ServiceError, kindOf } from '../../errors/index.ts'
import { newToken } from '../../ids.ts'
import { giveTo } from './account.ts'
import { fileFailure } from './failures.ts'
import { ensurePassword } from './password.ts'
import { clusterDirOf } from './place.ts'
import type { Place } from './place.ts'
import { runProgram } from './run-program.ts'
import { syncFolder } from './sync-folder.ts'

export const DATABASE_USER = 'skein'
export const DATABASE_NAME = 'skein'

const PROGRAM_DEADLINE_MS = 120_000
/**
 * Which characters are letters is asked of the system, and pg_trgm has trigrams of letters alone: with `C` of those of ASCII. The first
 * of these that the system has; `C`, which it always has, comes last.
 */
const CHARACTER_TYPES = ['C.UTF-8', 'en_US.UTF-8', 'C'] as const

export type ClusterOptions = {
  place: Place
  environment: Record<string, string>
  isUnsafe: boolean
  log: (line: string) => void
  signal: AbortSignal | undefined
}

export type Cluster = { clusterDir: string; password: string }

/** Makes the folder that is the server's own; the cluster and the socket lie in it. */
export function ensurePostgresDir(place: Place): string {
  const folder = dirname(clusterDirOf(place.baseDir))
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    giveTo(place.account, folder)
    return folder
  } catch (error) {
    throw fileFailure(error, `the folder ${folder} cannot be made`)
  }
}

/**
 * Call while holding the folder's lock and with no server running. Throws `invalid_state` for a cluster of another
 * major version, `unavailable` when it cannot be made.
 */
export async function ensureCluster(options: ClusterOptions): Promise<Cluster> {
  const { place } = options
  const clusterDir = clusterDirOf(place.baseDir)
  const password = ensurePassword(place.baseDir)
  if (existsSync(clusterDir)) {
    requireVersion(clusterDir, place.binaries.majorVersion)
    // A copy or a restored backup may have lost its permissions, and PostgreSQL starts on no others.
    chmodSync(clusterDir, 0o700)
    if (password.isNew) {
      options.log('the password file of the database was missing; setting a new password')
      await runSingle(options, clusterDir, `ALTER ROLE ${DATABASE_USER} PASSWORD '${password.text}'`)
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
      ? `was made by the newer PostgreSQL ${found}, and this Skein brings ${majorVersion}; start a newer Skein on it`
      : `was made by PostgreSQL ${found}, and this Skein brings ${majorVersion}; start the Skein that made it`
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
    `${clusterDir} holds no PostgreSQL database; move it away, or set SKEIN_DATA_DIR to another folder`,
  )
}

/** In a folder of another name, which gets the final one when everything is in it and on disk. */
async function createCluster(options: ClusterOptions, clusterDir: string, password: string): Promise<void> {
  const { place, signal } = options
  const postgresDir = dirname(clusterDir)
  await removeUnfinished(postgresDir)
  const unique = newToken(6)
  const fresh = `${clusterDir}.new-${unique}`
  const passwordFile = join(postgresDir, `password.new-${unique}`)
  options.log(`making a new database in ${clusterDir}`)
  try {
    writeFileSync(passwordFile, password, { mode: 0o600, flag: 'wx' })
    giveTo(place.account, passwordFile)
    await runInitdb(options, fresh, passwordFile)
    // Copied as files: nobody writes meanwhile, and the log need not hold it all.
    await runSingle(options, fresh, `CREATE DATABASE ${DATABASE_NAME} STRATEGY file_copy`)
    await rename(fresh, clusterDir)
    syncFolder(postgresDir)
  } catch (error) {
    await rm(fresh, { recursive: true, force: true })
    throw signal?.aborted ? error : fileFailure(error, 'a new database cannot be made')
  } finally {
    await rm(passwordFile, { force: true })
  }
}

/** With the first character type that the system has; throws what the last of them fails with. */
async function runInitdb(options: ClusterOptions, clusterDir: string, passwordFile: string): Promise<void> {
  const { place, environment, signal } = options
  for (const characterType of CHARACTER_TYPES) {
    try {
      await runProgram({
        file: place.binaries.initdb,
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
          ...(options.isUnsafe ? ['--no-sync'] : []),
        ],
        account: place.account,
        environment,
        purpose: 'a new database cannot be made',
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

/** One statement without a server; any error of it ends the program with a failure. */
async function runSingle(options: ClusterOptions, clusterDir: string, statement: string): Promise<void> {
  const { place, environment, signal, isUnsafe } = options
  const settings = ['exit_on_error=on', 'log_min_error_statement=panic', `fsync=${isUnsafe ? 'off' : 'on'}`]
  await runProgram({
    file: place.binaries.postgres,
    args: ['--single', '-D', clusterDir, ...settings.flatMap((setting) => ['-c', setting]), 'postgres'],
    account: place.account,
    environment,
    input: `${statement};\n`,
    purpose: 'the database cannot be prepared',
    deadlineMs: PROGRAM_DEADLINE_MS,
    signal,
  })
}

/** What a killed start left. A program that still writes there fails by itself once its folder is gone. */
async function removeUnfinished(postgresDir: string): Promise<void> {
  for (const name of readdirSync(postgresDir)) {
    if (!/^(cluster|password)\.new-/.test(name)) continue
    await rm(join(postgresDir, name), { recursive: true, force: true, maxRetries: 3 })
  }
}
