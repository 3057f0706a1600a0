/** A primary and a standby of Debian's PostgreSQL for a test file: replication that is synchronous, and can be stopped. */
import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type pg from 'pg'
import { giveTo, nobodyAccount, ownAccount } from '#postgres/embedded/account.ts'
import { startPostmaster } from '#postgres/embedded/postmaster.ts'
import type { Postmaster } from '#postgres/embedded/postmaster.ts'
import { runProgram } from '#postgres/embedded/run-program.ts'

/** With `pg_basebackup`, which the embedded server lacks. */
const BINARIES = '/usr/lib/postgresql/15/bin'
const USER = 'skein'
const DEADLINE_MS = 120_000

export const HAS_DEBIAN_POSTGRES = existsSync(join(BINARIES, 'pg_basebackup'))

export type StandbyPair = {
  primary: pg.ClientConfig & { host: string; port: number }
  standby: pg.ClientConfig & { host: string; port: number }
  urlOf(server: 'primary' | 'standby'): string
  startStandby(): Promise<void>
  stopStandby(): Promise<void>
  stop(): Promise<void>
}

export async function startStandbyPair(folder: string): Promise<StandbyPair> {
  const account = process.getuid?.() === 0 ? nobodyAccount() : ownAccount()
  chmodSync(folder, 0o755)
  const socketDir = join(folder, 'sockets')
  mkdirSync(socketDir)
  const passwordFile = join(folder, 'password')
  writeFileSync(passwordFile, 'secret', { mode: 0o600 })
  for (const path of [folder, socketDir, passwordFile]) giveTo(account, path)
  const run = (program: string, args: string[]) =>
    runProgram({
      file: join(BINARIES, program),
      args,
      account,
      environment: { PGPASSWORD: 'secret' },
      purpose: `${program} failed`,
      deadlineMs: DEADLINE_MS,
    })
  const ports = { primary: 5432, standby: 5433 }
  const start = (server: 'primary' | 'standby') =>
    startPostmaster({
      file: join(BINARIES, 'postgres'),
      clusterDir: join(folder, server),
      args: [
        'listen_addresses=',
        `port=${ports[server]}`,
        `unix_socket_directories=${socketDir}`,
        'fsync=off',
        'max_connections=60',
        'wal_level=replica',
        'hot_standby=on',
        'shared_buffers=32MB',
        'cluster_name=standby',
      ].flatMap((setting) => ['-c', setting]),
      account,
      environment: {},
      log: () => undefined,
      onSpawn: undefined,
      signal: undefined,
    })
  await run('initdb', [
    `--pgdata=${join(folder, 'primary')}`,
    `--username=${USER}`,
    `--pwfile=${passwordFile}`,
    '--no-sync',
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--lc-ctype=C.UTF-8',
  ])
  const primary = await start('primary')
  const connection = `host=${socketDir} port=${ports.primary} user=${USER} password=secret`
  const address = (server: 'primary' | 'standby') => ({
    host: socketDir,
    port: ports[server],
    user: USER,
    password: 'secret',
    database: 'postgres',
  })
  let standby: Postmaster | undefined
  const stopStandby = async () => {
    await standby?.stop()
    standby = undefined
  }
  try {
    await run('pg_basebackup', [
      `--pgdata=${join(folder, 'standby')}`,
      '--write-recovery-conf',
      '--checkpoint=fast',
      '--no-sync',
      `--dbname=${connection}`,
    ])
    standby = await start('standby')
  } catch (error) {
    await primary.stop()
    throw error
  }
  return {
    primary: address('primary'),
    standby: address('standby'),
    urlOf: (server) =>
      `postgres://${USER}:secret@localhost/postgres?host=${encodeURIComponent(socketDir)}&port=${ports[server]}`,
    async startStandby() {
      standby ??= await start('standby')
    },
    stopStandby,
    async stop() {
      await stopStandby()
      await primary.stop()
    },
  }
}
