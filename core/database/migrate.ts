/**
 * Numbered SQL migrations, append-only. The first is the whole schema of the first release, the others are steps from there. The
 * first line of each says `-- expand: why` or `-- contract: why`; a contract takes something away, so it is refused while a node
 * of an older version is alive.
 */
import { createHash } from 'node:crypto'
import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Client } from 'pg'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { isDatabaseAway, translateDatabaseError } from './errors.ts'

export type Migration = { number: number; name: string; kind: 'expand' | 'contract'; sql: string; digest: string }

/** Key of the advisory lock that one migrating process holds. */
const MIGRATION_LOCK = 0x5ce1_0001
/** How long a process waits for another one that migrates before it gives up its start. */
const LOCK_DEADLINE_MS = 600_000
const LOCK_NOT_AVAILABLE = '55P03'
/** The whole schema; a database that began with another one has nothing to step on. */
const SCHEMA_NUMBER = 1
/** A node that was not seen for this long does not count as alive. */
const NODE_ALIVE_SECONDS = 30

/** Reads `NNNN_name.sql` files in order; throws when a number is missing, used twice, or a first line says no kind. */
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
 * may call it at once: one works, the others wait. Throws `invalid_state` for a database of a newer version.
 */
export async function migrate(
  client: Client,
  migrations: readonly Migration[],
  logger: Logger,
  lockDeadlineMs: number = LOCK_DEADLINE_MS,
): Promise<void> {
  await takeLock(client, logger, lockDeadlineMs)
  try {
    await client.query(`CREATE TABLE IF NOT EXISTS migrations (
      number integer CONSTRAINT migrations_pkey PRIMARY KEY,
      name text NOT NULL,
      digest text NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT now())`)
    const { rows } = await client.query<{ number: number; name: string; digest: string }>(
      'SELECT number, name, digest FROM migrations ORDER BY number',
    )
    for (const row of rows) {
      const ours = migrations[row.number - 1]
      if (ours === undefined) {
        throw new ServiceError(
          'invalid_state',
          `the database was made by a newer version of Skein (it has migration ${row.number} "${row.name}"): start that version, or restore a backup made by this one`,
        )
      }
      if (ours.digest !== row.digest) throw refuseOtherText(row)
    }
    const missing = migrations.slice(rows.length)
    for (const migration of missing) {
      if (migration.kind === 'contract') await refuseBesideOlderNodes(client, migration)
      // The commit of the last one brings all of them to disk; what a crash takes away before is made again.
      await applyOne(client, migration, migration === missing.at(-1))
      logger.info({ migration: `${migration.number} ${migration.name}` }, 'migrated')
    }
  } finally {
    await client.query('SELECT pg_advisory_unlock($1)', [MIGRATION_LOCK]).catch(() => undefined)
  }
}

function refuseOtherText({ number, name }: { number: number; name: string }): ServiceError {
  return new ServiceError(
    'invalid_state',
    number === SCHEMA_NUMBER
      ? 'the database was made by an older or unreleased build of Skein and cannot be upgraded: export its messages with that build (skein messages export), then set SKEIN_DATA_DIR to a new folder, or SKEIN_DATABASE_URL to an empty database'
      : `migration ${number} "${name}" was applied with another text than this version of Skein has: this database belongs to another build`,
  )
}

async function takeLock(client: Client, logger: Logger, deadlineMs: number): Promise<void> {
  const { rows } = await client.query<{ taken: boolean }>('SELECT pg_try_advisory_lock($1) AS taken', [MIGRATION_LOCK])
  if (rows[0]?.taken === true) return
  logger.info('another process is migrating the database; waiting for it')
  try {
    await client.query(`SET lock_timeout = ${deadlineMs}`)
    await client.query('SELECT pg_advisory_lock($1)', [MIGRATION_LOCK])
    await client.query('RESET lock_timeout')
  } catch (error) {
    if ((error as { code?: string }).code !== LOCK_NOT_AVAILABLE) throw translateDatabaseError(error)
    throw new ServiceError(
      'unavailable',
      'another process has been bringing the database up to date for too long: look at its log, and start again when it is done',
      { cause: error },
    )
  }
}

/** One migration and its entry, both or neither. */
async function applyOne(client: Client, { number, name, sql, digest }: Migration, isDurable: boolean): Promise<void> {
  try {
    await client.query(isDurable ? 'BEGIN' : 'BEGIN; SET LOCAL synchronous_commit = off')
    await client.query(sql)
    await client.query('INSERT INTO migrations (number, name, digest) VALUES ($1, $2, $3)', [number, name, digest])
    await client.query('COMMIT')
  } catch (error) {
    // On a broken connection the server rolls back by itself.
    await client.query('ROLLBACK').catch(() => undefined)
    if (isDatabaseAway(error)) throw translateDatabaseError(error)
    throw new ServiceError(
      'invalid_state',
      `migration ${number} "${name}" failed and left the database as it was: ${(error as Error).message}`,
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
      `migration ${migration.number} "${migration.name}" removes what older nodes use: stop ${names} first`,
    )
  }
}
