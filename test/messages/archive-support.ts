/** Archived records for tests: records whose arrival is moved into the past, and rounds of the archiver. */
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { zstdDecompressSync } from 'node:zlib'
import { parquetReadObjects } from 'hyparquet'
import type { TestApi } from '../harness/api.ts'
import { silentLogger } from '../harness/database.ts'
import { sql } from '#core/sql.ts'
import { lockProjections } from '../../api/messages/projections/lock.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import { archiveOnce } from '../../api/messages/archive/archiver.ts'
import type { ArchiverOptions, Round } from '../../api/messages/archive/archiver.ts'

const HOUR_MS = 3_600_000

export type ArchiveFolder = Disposable & { readonly url: string; readonly path: string }

export function newArchiveFolder(): ArchiveFolder {
  const path = mkdtempSync(join(tmpdir(), 'skein-archive-'))
  return {
    path,
    url: `file://${path}`,
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  }
}

/** Files of the tables, without the one that says whose folder it is. */
export function filesBelow(path: string): string[] {
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== 'owner')
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
}

export type DataFile = { path: string; bytes: number; records: number }

/** Of all domains. */
export async function dataFilesOf({ database }: Pick<TestApi, 'database'>): Promise<DataFile[]> {
  const { rows } = await database.pool.query<DataFile>(
    `SELECT path, bytes, records FROM archive_files WHERE state = 'live' AND kind = 'data' ORDER BY key`,
  )
  return rows.map((row) => ({ ...row, path: row.path.slice('file://'.length) }))
}

export async function rowsOfFile(path: string): Promise<Record<string, unknown>[]> {
  return await rowsOfBytes(readFileSync(path))
}

export async function rowsOfBytes(bytes: Uint8Array): Promise<Record<string, unknown>[]> {
  return await parquetReadObjects({
    file: new Uint8Array(bytes).buffer,
    compressors: { ZSTD: (bytes: Uint8Array) => new Uint8Array(zstdDecompressSync(bytes)) },
    utf8: false,
    // Dates have no microseconds.
    parsers: { timestampFromMicroseconds: (micros: bigint) => micros as unknown as Date },
  })
}

/** Records that arrived in this hour arrived so many weeks earlier, with everything that is derived from them. */
export async function moveArrivals({ database }: Pick<TestApi, 'database'>, weeks: number): Promise<void> {
  await projectPending(database)
  await database.transaction(async (tx) => {
    await lockProjections(tx)
    await sql`SELECT create_message_partitions(now() - make_interval(weeks => ${weeks + 1}::integer), now() - make_interval(weeks => ${weeks - 1}::integer))`.execute(
      tx,
    )
    await sql`
      UPDATE records SET arrived_at = arrived_at - make_interval(weeks => ${weeks}::integer)
       WHERE arrived_at > now() - interval '1 hour'`.execute(tx)
    for (const table of ['rollups', 'rollup_weeks', 'domain_stored_records'])
      await sql`
        UPDATE ${sql.table(table)} SET arrived_on = arrived_on - make_interval(weeks => ${weeks}::integer)
         WHERE arrived_on >= date_trunc('week', now() - interval '1 hour', 'UTC')`.execute(tx)
  })
}

/**
 * A round of the archiver, whatever age the records have beyond an hour. A process trusts its folder at once here. Undefined when the round
 * waits, or another process has the lock.
 */
export function tryArchive(
  { database }: Pick<TestApi, 'database'>,
  url: string,
  options: Partial<ArchiverOptions> = {},
): Promise<Round | undefined> {
  return archiveOnce(
    { database, logger: silentLogger, url, afterMs: HOUR_MS, confirmMs: 0, ...options },
    new AbortController().signal,
  )
}

export async function archive(...given: Parameters<typeof tryArchive>): Promise<Round> {
  const round = await tryArchive(...given)
  if (round === undefined) throw new Error('another process holds the lock of the archive')
  return round
}
