/**
 * Numbered SQL migrations, append-only. The first is the whole schema of the first release, the others are steps from there. The
 * first line of each says `-- expand: why` or `-- contract: why`. An expand only adds, so an older version starts on a database that
 * has one. A contract takes something away: it is refused while a node of an older version is alive, and an older version is refused
 * once it was applied.
 */
import { createHash } from 'node:crypto'
import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Client } from 'pg'
import { ServiceError } from '../errors/index.ts'
import { HOME } from '../installation.ts'
import type { Logger } from '../logging/index.ts'
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'
import { isDatabaseUnavailable, translateDatabaseError } from './errors.ts'

export const MIGRATIONS_FOLDER = join(HOME, 'migrations')

export type Migration = { number: number; name: string; kind: 'expand' | 'contract'; sql: string; digest: string }

/** A row of `migrations`. */
type Applied = Pick<Migration, 'number' | 'name' | 'digest'> & { kind?: string }

/** Key of the advisory lock that one migrating process holds. */
const MIGRATION_LOCK = 0x5ce1_0001
/** How long a process waits for another one that migrates before its start fails. */
const LOCK_DEADLINE_MS = 600_000
/** Longer than this, another process migrates, which the log says. */
const USUAL_LOCK_MS = 2_000
const LOCK_NOT_AVAILABLE = '55P03'
/** The whole schema. A database with another text of it cannot be upgraded. */
const SCHEMA_NUMBER = 1
const LEDGER = `CREATE TABLE IF NOT EXISTS migrations (
  number integer CONSTRAINT migrations_pkey PRIMARY KEY,
  name text NOT NULL,
  kind text NOT NULL,
  digest text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now())`
const ENTRY = 'INSERT INTO migrations (number, name, kind, digest) VALUES ($1, $2, $3, $4)'
/** A node that was not seen for this long does not count as alive. */
const NODE_ALIVE_SECONDS = 30

/** A condition: a process is alive whose build does not know the migration of this name. It reads and writes the older form. */
export const hasOlderNodes = (migration: string): Sql<boolean> => sql<boolean>`EXISTS (SELECT FROM nodes n
  WHERE n.seen_at > now() - make_interval(secs => ${NODE_ALIVE_SECONDS}) AND n.migration < (SELECT number FROM migrations WHERE name = ${migration}))`

/** Reads `NNNN_name.sql` files in order; throws when a number is missing or repeated, or a first line names no kind. */
export async function readMigrations(folder: string): Promise<Migration[]> {
  const files = (await readdir(folder)).filter((file) => /^\d{4}_[a-z0-9_]+\.sql$/.test(file)).toSorted()
  const migrations: Migration[] = []
  for (const [index, file] of files.entries()) {
    const number = Number(file.slice(0, 4))
    if (number !== index + 1)
      throw new Error(`migration ${file} must have number ${index + 1}: numbers have no gap and no repetition`)
    const sql = await readFile(join(folder, file), 'utf8')
    const kind = /^-- (expand|contract): \S/.exec(sql)?.[1]
    if (kind !== 'expand' && kind !== 'contract')
      throw new Error(`the first line of migration ${file} must be "-- expand: why" or "-- contract: why"`)
    migrations.push({
      number,
      name: file.slice(5, -4),
      kind,
      sql,
      digest: createHash('sha256').update(sql).digest('hex'),
    })
  }
  return migrations
}

/**
 * Brings the database to the version of this program, each migration in a transaction of its own. Several processes
 * may call it at once: one works, the others wait. A newer database is left as it is. Throws `invalid_state` when what is newer takes
 * away what this version uses.
 */
export async function migrate(
  client: Client,
  migrations: readonly Migration[],
  logger: Logger,
  lockDeadlineMs: number = LOCK_DEADLINE_MS,
): Promise<void> {
  await withMigrationLock(client, logger, () => migrateLocked(client, migrations, logger), lockDeadlineMs)
}

/** Runs the work while no other process migrates this database. Throws `unavailable` when one does for longer than the deadline. */
export async function withMigrationLock<T>(
  client: Client,
  logger: Logger,
  work: () => Promise<T>,
  lockDeadlineMs: number = LOCK_DEADLINE_MS,
): Promise<T> {
  await takeLock(client, logger, lockDeadlineMs)
  try {
    return await work()
  } finally {
    await client.query('SELECT pg_advisory_unlock($1)', [MIGRATION_LOCK]).catch(() => undefined)
  }
}

function refuseNewer({ number, name }: Applied): ServiceError {
  return new ServiceError(
    'invalid_state',
    `a newer version of Skein removed from the database what this one uses (migration ${number} "${name}"): start that version, or restore a backup from before the upgrade`,
  )
}

/** Applies the migrations in the transaction of the caller, who holds the lock; the ones before them must have been applied. */
export async function applyMigrations(client: Client, migrations: readonly Migration[]): Promise<void> {
  await client.query(LEDGER)
  for (const { number, name, kind, sql, digest } of migrations) {
    await client.query(sql)
    await client.query(ENTRY, [number, name, kind, digest])
  }
}

async function migrateLocked(client: Client, migrations: readonly Migration[], logger: Logger): Promise<void> {
  await client.query(LEDGER)
  const { rows } = await client.query<Applied>('SELECT * FROM migrations ORDER BY number')
  for (const row of rows) {
    const ours = migrations[row.number - 1]
    if (ours === undefined && row.kind !== 'expand') throw refuseNewer(row)
    if (ours !== undefined && ours.digest !== row.digest) throw refuseOtherText(row)
  }
  const newest = rows.at(-1)
  if (newest !== undefined && newest.number > migrations.length)
    logger.info(
      { migration: `${newest.number} ${newest.name}` },
      'a newer version of Skein migrated the database; this version is compatible with it',
    )
  const missing = migrations.slice(rows.length)
  for (const migration of missing) {
    if (migration.kind === 'contract') await refuseBesideOlderNodes(client, migration)
    // The commit of the last one brings all of them to disk; what a crash takes away before is made again.
    await applyOne(client, migration, migration === missing.at(-1))
    logger.info({ migration: `${migration.number} ${migration.name}` }, 'applied a migration')
  }
}

function refuseOtherText({ number, name }: Applied): ServiceError {
  return new ServiceError(
    'invalid_state',
    number === SCHEMA_NUMBER
      ? 'the database was created by an older or unreleased build of Skein and cannot be upgraded; export its messages with that build (skein messages export), then set SKEIN_DATA_DIR to a new folder, or SKEIN_DATABASE_URL to an empty database'
      : `migration ${number} "${name}" differs from the migration that was applied; the database belongs to another build of Skein`,
  )
}

async function takeLock(client: Client, logger: Logger, deadlineMs: number): Promise<void> {
  // Processes that start together only look at the schema, one after the other.
  if (await tryLock(client, Math.min(USUAL_LOCK_MS, deadlineMs))) return
  logger.info('another process is migrating the database; waiting for it')
  if (await tryLock(client, deadlineMs)) return
  throw new ServiceError(
    'unavailable',
    'another process is still migrating the database; check its log, and start again when it has finished',
  )
}

/** False when another process holds the lock for longer than this time. */
async function tryLock(client: Client, deadlineMs: number): Promise<boolean> {
  try {
    await client.query(`SET lock_timeout = ${deadlineMs}`)
    await client.query('SELECT pg_advisory_lock($1)', [MIGRATION_LOCK])
    return true
  } catch (error) {
    if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE) throw translateDatabaseError(error)
    return false
  } finally {
    await client.query('RESET lock_timeout').catch(() => undefined)
  }
}

/** One migration and its entry, both or neither. */
async function applyOne(
  client: Client,
  { number, name, kind, sql, digest }: Migration,
  isDurable: boolean,
): Promise<void> {
  try {
    await client.query(isDurable ? 'BEGIN' : 'BEGIN; SET LOCAL synchronous_commit = off')
    await client.query(sql)
    await client.query(ENTRY, [number, name, kind, digest])
    await client.query('COMMIT')
  } catch (error) {
    // On a broken connection the server rolls back.
    await client.query('ROLLBACK').catch(() => undefined)
    if (isDatabaseUnavailable(error)) throw translateDatabaseError(error)
    throw new ServiceError(
      'invalid_state',
      `migration ${number} "${name}" failed and was rolled back: ${(error as Error).message}`,
      { cause: error },
    )
  }
}

async function refuseBesideOlderNodes(client: Client, migration: Migration): Promise<void> {
  const { rows } = await client.query<{ id: string; migration: number }>(
    'SELECT id, migration FROM nodes WHERE migration < $1 AND seen_at > now() - make_interval(secs => $2)',
    [migration.number, NODE_ALIVE_SECONDS],
  )
  if (rows.length > 0) {
    const names = rows.map((row) => row.id).join(', ')
    throw new ServiceError(
      'invalid_state',
      `migration ${migration.number} "${migration.name}" removes columns or tables that older nodes use; stop ${names} first`,
    )
  }
}
