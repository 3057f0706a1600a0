/** Restores a backup into an empty database in one transaction. */
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { zstdDecompress } from 'node:zlib'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { applyMigrations, withMigrationLock } from '#core/database/index.ts'
import type { Migration } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { damaged, readArchive } from './archive.ts'
import type { Member } from './archive.ts'
import { NO_EXTENSION_MEMBER, quoted } from './catalog.ts'
import { COUNTS, newer, parseCounts, parseManifest } from './manifest.ts'
import type { Counts, Manifest } from './schema.ts'

/** The maximum size of a decompressed part; larger parts are not from a backup. */
const MAX_PART_BYTES = 1024 * 1024 * 1024
const PART = /^tables\/([a-z0-9_]+)\/\d{6,9}\.copy\.zst$/
/** The memory for building indexes after the rows were loaded. */
const INDEX_MEMORY = '256MB'
const decompress = promisify(zstdDecompress)

export type CheckedBackup = { path: string; manifest: Manifest; counts: Counts }

/**
 * Reads the whole file. Throws `malformed` when it is not a backup, damaged or truncated, and `invalid_state` when it is from a newer
 * version or another build.
 */
export async function checkBackup(path: string, migrations: readonly Migration[]): Promise<CheckedBackup> {
  let manifest: Manifest | undefined
  let counts: Counts | undefined
  for await (const member of readArchive(path)) {
    // Checked before the rest of a large file is read.
    if (manifest === undefined) requireKnown(path, (manifest = parseManifest(path, member)), migrations)
    else if (member.name === COUNTS) counts = parseCounts(path, member)
    else if (!PART.test(member.name)) throw damaged(path)
  }
  if (manifest === undefined || counts === undefined) throw damaged(path)
  return { path, manifest, counts }
}

function requireKnown(path: string, manifest: Manifest, migrations: readonly Migration[]): void {
  if (manifest.migrations.length > migrations.length) throw newer(path, manifest.skein_version)
  for (const [index, { name, digest }] of manifest.migrations.entries()) {
    if (migrations[index]?.digest !== digest)
      throw new ServiceError(
        'invalid_state',
        `${path} was written by another build of Skein ${manifest.skein_version}: its migration ${index + 1} "${name}" differs from that of this build`,
      )
  }
}

/** Throws `invalid_state` when the database holds tables. */
export async function requireEmpty(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(`
    SELECT c.relname AS name FROM pg_class c
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S') AND ${NO_EXTENSION_MEMBER}
     ORDER BY c.relname LIMIT 1`)
  if (rows[0] !== undefined)
    throw new ServiceError(
      'invalid_state',
      `the database is not empty (it has ${rows[0].name}): set SKEIN_DATA_DIR to a new folder, or SKEIN_DATABASE_URL to an empty database`,
    )
}

/**
 * `onLoaded` is called after loading and before the commit; an error from it rolls the restore back. Returns the number of rows. Programs
 * that start meanwhile wait.
 */
export async function restoreBackup(
  client: pg.Client,
  { path, manifest, counts }: CheckedBackup,
  {
    migrations,
    logger,
    signal,
    statements,
    onLoaded,
  }: {
    migrations: readonly Migration[]
    logger: Logger
    signal: AbortSignal
    /** Of the newest schema, executed on the restored rows. */
    statements: readonly string[]
    onLoaded: () => Promise<void>
  },
): Promise<number> {
  return await withMigrationLock(client, logger, async () => {
    await requireEmpty(client)
    await client.query(`BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
      SET LOCAL maintenance_work_mem = '${INDEX_MEMORY}'`)
    try {
      await applyMigrations(client, migrations.slice(0, manifest.migrations.length))
      await createPartitions(client, manifest)
      const rebuild = await setAside(client)
      const rows = await load(client, { path, manifest, counts }, signal)
      for (const { name, value, is_called } of manifest.sequences)
        await client.query('SELECT setval($1::regclass, $2::bigint, $3)', [quoted(name), value, is_called])
      for (const statement of rebuild) {
        signal.throwIfAborted()
        await client.query(statement)
      }
      await applyMigrations(client, migrations.slice(manifest.migrations.length))
      for (const statement of statements) await client.query(statement)
      await onLoaded()
      await client.query('COMMIT')
      // Until autovacuum runs, the planner would have no statistics of the rows.
      await client.query('ANALYZE')
      return rows
    } catch (error) {
      await client.query('ROLLBACK').catch(() => undefined)
      throw error
    }
  })
}

async function createPartitions(client: pg.Client, { partitions }: Manifest): Promise<void> {
  for (const { parent, name, bound, fillfactor } of partitions)
    await client.query(
      `CREATE TABLE IF NOT EXISTS ${quoted(name)} PARTITION OF ${quoted(parent)} ${bound} WITH (fillfactor = ${fillfactor})`,
    )
}

/**
 * Drops triggers, foreign keys and indexes without a constraint: they slow down loading, and triggers would repeat changes that the rows
 * already contain. Returns the statements that create them again.
 */
async function setAside(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query<{ before: string; after: string }>(`
    SELECT format('ALTER TABLE %I DISABLE TRIGGER USER', c.relname) AS before, format('ALTER TABLE %I ENABLE TRIGGER USER', c.relname) AS after, 3 AS turn
      FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition
       AND EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)
    UNION ALL
    SELECT format('ALTER TABLE %I DROP CONSTRAINT %I', c.relname, f.conname),
           format('ALTER TABLE %I ADD CONSTRAINT %I %s', c.relname, f.conname, pg_get_constraintdef(f.oid)), 2
      FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid
     WHERE c.relnamespace = current_schema()::regnamespace AND f.contype = 'f' AND f.conparentid = 0
    UNION ALL
    SELECT format('DROP INDEX %I', i.relname), replace(pg_get_indexdef(i.oid), ' ON ONLY ', ' ON '), 1
      FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
     WHERE c.relnamespace = current_schema()::regnamespace AND NOT i.relispartition
       AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.oid AND k.contype IN ('p', 'u', 'x'))
     ORDER BY 3, 2`)
  for (const { before } of rows.toReversed()) await client.query(before)
  return rows.map(({ after }) => after)
}

/** Throws `malformed` unless each table has as many rows as the backup counted. */
async function load(
  client: pg.Client,
  { path, manifest, counts }: CheckedBackup,
  signal: AbortSignal,
): Promise<number> {
  const columns = new Map(manifest.tables.map((table) => [table.name, table.columns]))
  const members = readArchive(path)
  const rows = new Map<string, number>()
  let next = await members.next()
  while (next.done !== true) {
    const name = tableOf(next.value)
    if (name === undefined) {
      next = await members.next()
      continue
    }
    const list = columns.get(name)
    if (list === undefined) throw damaged(path)
    let member: Member | undefined = next.value
    const parts = async function* () {
      while (member !== undefined) {
        signal.throwIfAborted()
        yield await decompress(member.data, { maxOutputLength: MAX_PART_BYTES })
        next = await members.next()
        member = next.done !== true && tableOf(next.value) === name ? next.value : undefined
      }
    }
    const into = client.query(
      copyFrom(`COPY ${quoted(name)} (${list.map((column) => quoted(column)).join(', ')}) FROM STDIN`),
    )
    await pipeline(parts(), into)
    rows.set(name, (rows.get(name) ?? 0) + into.rowCount)
  }
  for (const one of counts.rows) if ((rows.get(one.name) ?? 0) !== one.rows) throw damaged(path)
  return [...rows.values()].reduce((sum, one) => sum + one, 0)
}

const tableOf = ({ name }: Member) => PART.exec(name)?.[1]
