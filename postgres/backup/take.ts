/** Writes a backup: one snapshot of the whole database, while programs continue to write. */
import { existsSync } from 'node:fs'
import { open, link, rm } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { promisify } from 'node:util'
import { constants, zstdCompress } from 'node:zlib'
import type pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import { NO_EXTENSION_MEMBER, quoted } from './catalog.ts'
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { syncPath } from '#core/sync-folder.ts'
import { ArchiveWriter } from './archive.ts'
import { COUNTS, FORMAT_VERSION, MANIFEST } from './manifest.ts'
import type { Counts, Manifest } from './schema.ts'

/** Rows are compressed in parts of about this size. */
const PART_BYTES = 4 * 1024 * 1024
const COMPRESSION_LEVEL = 3
const compress = promisify(zstdCompress)

export type TakenBackup = { bytes: number; rows: number; secretKeyFingerprint: string | undefined }

/**
 * Writes the backup to `path`, which appears when the file is complete and synced. `check` is called with the fingerprint of the secret key
 * before anything is written. Throws `invalid_state` when the file exists, and when the database does not belong to Skein.
 */
export async function takeBackup(
  client: pg.Client,
  {
    path,
    version,
    signal,
    check,
  }: { path: string; version: string; signal: AbortSignal; check: (fingerprint: string | null) => void },
): Promise<TakenBackup> {
  // This check runs before the whole database is read. `keep` decides: the file can still appear during the backup.
  if (existsSync(path)) throw alreadyExists(path)
  const fingerprint = await begin(client)
  check(fingerprint)
  // Linked to its name at the end, which never replaces a file.
  const draft = `${path}.${newId()}.part`
  const file = await open(draft, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    throw new ServiceError('invalid_state', `${path} cannot be written: ${error.message}`, { cause: error })
  })
  try {
    const archive = new ArchiveWriter(file)
    const manifest = await describe(client, version, fingerprint)
    await archive.add(MANIFEST, Buffer.from(JSON.stringify(manifest, undefined, 2)))
    const counts: Counts = { rows: [] }
    for (const { name, columns } of manifest.tables) {
      signal.throwIfAborted()
      counts.rows.push({ name, rows: await addTable(client, archive, name, columns, signal) })
    }
    await archive.add(COUNTS, Buffer.from(JSON.stringify(counts)))
    await archive.finish()
    await client.query('ROLLBACK')
    await file.close()
    await keep(draft, path)
    return {
      bytes: archive.bytes,
      rows: counts.rows.reduce((sum, { rows }) => sum + rows, 0),
      secretKeyFingerprint: fingerprint ?? undefined,
    }
  } catch (error) {
    await file.close().catch(() => undefined)
    await rm(draft, { force: true })
    throw error
  }
}

/** Begins the snapshot, and returns the fingerprint of the secret key. Locks prevent changes of the schema. */
async function begin(client: pg.Client): Promise<string | null> {
  // There are no timeouts: the duration depends on the number of rows.
  await client.query(`START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL extra_float_digits = 1;
    SET LOCAL datestyle = 'ISO'; SET LOCAL intervalstyle = 'postgres'; SET LOCAL bytea_output = 'hex'`)
  const { rows } = await client.query<{ is_ours: boolean }>(
    "SELECT to_regclass('migrations') IS NOT NULL AND to_regclass('installation') IS NOT NULL AS is_ours",
  )
  if (rows[0]?.is_ours !== true)
    throw new ServiceError('invalid_state', 'there is nothing to back up: Skein was never started on this database')
  const { rows: facts } = await client.query<{ name: string; value: string }>(
    "SELECT name, value FROM installation WHERE name IN ('secret_key_fingerprint', 'secret_key_rotation')",
  )
  const known = new Map(facts.map(({ name, value }) => [name, value]))
  if (known.has('secret_key_rotation'))
    throw new ServiceError(
      'invalid_state',
      'a change of the secret key was not finished: start Skein with both keys, and back up when it runs',
    )
  return known.get('secret_key_fingerprint') ?? null
}

async function describe(client: pg.Client, version: string, fingerprint: string | null): Promise<Manifest> {
  const { rows: tables } = await client.query<{ name: string; columns: string[] }>(`
    SELECT c.relname AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
       AND c.relpersistence = 'p' AND c.relname <> 'migrations' AND ${NO_EXTENSION_MEMBER}
     GROUP BY c.relname ORDER BY c.relname`)
  if (tables.length > 0)
    await client.query(`LOCK TABLE ${tables.map(({ name }) => quoted(name)).join(', ')} IN ACCESS SHARE MODE`)
  const { rows: migrations } = await client.query<{ name: string; digest: string }>(
    'SELECT name, digest FROM migrations ORDER BY number',
  )
  const { rows: partitions } = await client.query<Manifest['partitions'][number]>(`
    SELECT parent.relname AS parent, c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bound,
           coalesce((SELECT option_value::int FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor'), 100) AS fillfactor
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class parent ON parent.oid = i.inhparent
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relispartition AND NOT i.inhdetachpending
       AND pg_get_expr(c.relpartbound, c.oid) LIKE 'FOR VALUES FROM %' ORDER BY c.relname`)
  // Sequences are not transactional: they are read after the snapshot, so they are above every number in it.
  const { rows: sequences } = await client.query<{ name: string }>(`
    SELECT c.relname AS name FROM pg_class c
     WHERE c.relkind = 'S' AND c.relnamespace = current_schema()::regnamespace AND ${NO_EXTENSION_MEMBER} ORDER BY c.relname`)
  const values: Manifest['sequences'] = []
  for (const { name } of sequences) {
    const { rows } = await client.query<{ value: string; is_called: boolean }>(
      `SELECT last_value::text AS value, is_called FROM ${quoted(name)}`,
    )
    for (const row of rows) values.push({ name, ...row })
  }
  const { rows: times } = await client.query<{ now: string }>(
    `SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS now`,
  )
  return {
    format: 'skein backup',
    format_version: FORMAT_VERSION,
    skein_version: version,
    taken_at: times[0]?.now ?? '',
    migrations,
    secret_key_fingerprint: fingerprint,
    tables,
    partitions,
    sequences: values,
  }
}

/** Returns the number of rows. */
async function addTable(
  client: pg.Client,
  archive: ArchiveWriter,
  name: string,
  columns: readonly string[],
  signal: AbortSignal,
): Promise<number> {
  const list = columns.map((column) => quoted(column)).join(', ')
  const rows = client.query(copyTo(`COPY (SELECT ${list} FROM ${quoted(name)}) TO STDOUT`))
  let parts = 0
  let waiting: Buffer[] = []
  let bytes = 0
  let written: Promise<void> = Promise.resolve()
  // The next part is read while the previous one is compressed; at most one waits.
  const flush = async () => {
    const data = Buffer.concat(waiting)
    const member = `tables/${name}/${String((parts += 1)).padStart(6, '0')}.copy.zst`
    waiting = []
    bytes = 0
    await written
    written = compress(data, { params: { [constants.ZSTD_c_compressionLevel]: COMPRESSION_LEVEL } }).then(
      (compressed) => archive.add(member, compressed),
    )
    // Awaited before the next part.
    written.catch(() => undefined)
  }
  for await (const chunk of rows) {
    signal.throwIfAborted()
    waiting.push(chunk as Buffer)
    bytes += (chunk as Buffer).length
    if (bytes >= PART_BYTES) await flush()
  }
  if (bytes > 0) await flush()
  await written
  return rows.rowCount
}

const alreadyExists = (path: string) =>
  new ServiceError('invalid_state', `${path} exists: a backup never replaces a file, choose another name`)

/** Gives the file its name, unless a file with this name exists. */
async function keep(draft: string, path: string): Promise<void> {
  try {
    await link(draft, path)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw alreadyExists(path)
    throw new ServiceError('invalid_state', `${path} cannot be written: ${message}`, { cause: error })
  }
  await rm(draft)
  await syncPath(dirname(resolve(path)))
}
