/** Copies the records of one range from its partition into Parquet files. */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import type { Database } from '#core/database/index.ts'
import { PROTOCOLS } from '../model/message.ts'
import { ParquetFiles } from './parquet-files.ts'
import { conditionOf, piecesOf } from './pieces.ts'
import type { Piece, PieceLimits } from './pieces.ts'
import { insertFile } from './repository.ts'
import type { ArchivedChannel, DueRange, TableRow } from './repository.ts'
import type { ArchiveStore } from './store.ts'
import type { NewDataFile, Step } from './table-commit.ts'

/** Channels that are divided into pieces at once. */
const CHANNELS_AT_ONCE = 50
/**
 * What a statement may hold in memory, whatever the server allows: most pieces fit, and a larger one is sorted on disk. The transaction is idle
 * while a file goes to a slow disk.
 */
const BOUNDED =
  "SET work_mem = '64MB'; SET max_parallel_workers_per_gather = 0; SET idle_in_transaction_session_timeout = '10min'"
/** A file is closed when it has so many, or the bytes that the store allows. */
const MAX_FILE_ROWS = 10_000_000
/** What is passed to the thread at once. */
const PIECE_BYTES = 512 * 1024

export type ExportedRange = { files: NewDataFile[]; records: number; channelKeys: number[] }

export type ExportDeps = {
  database: Database
  store: ArchiveStore
  /** A connection of its own: a statement may take long. */
  client: pg.Client
  atStep: (step: Step) => Promise<void>
  signal: AbortSignal
  check: () => Promise<void>
  limits: PieceLimits
}

export async function exportRange(
  deps: ExportDeps,
  table: TableRow,
  range: DueRange,
  channels: readonly ArchivedChannel[],
): Promise<ExportedRange> {
  const files: NewDataFile[] = []
  const channelKeys: number[] = []
  let records = 0
  let open: { key: number; path: string } | undefined
  let parquet: ParquetFiles | undefined
  const begin = async () => {
    if (open !== undefined) return parquet as ParquetFiles
    const path = `${table.location}/data/arrived_month=${monthText(range.month)}/${randomUUID()}.parquet`
    const key = await insertFile(deps.database.db, table.domainKey, 'data', path)
    await deps.check()
    parquet ??= new ParquetFiles()
    await parquet.open(await deps.store.beginFile(path))
    open = { key, path }
    await deps.atStep('data file begun')
    return parquet
  }
  const close = async () => {
    if (open === undefined || parquet === undefined) return
    const { rows, bytes, statistics } = await parquet.close()
    files.push({ ...open, month: range.month, records: rows, bytes, statistics })
    records += rows
    open = undefined
    await deps.atStep('data file written')
  }
  try {
    await deps.client.query(BOUNDED)
    const of = (some: readonly number[]) => ofRange(range, some)
    for (let first = 0; first < channels.length; first += CHANNELS_AT_ONCE) {
      const keys = channels.slice(first, first + CHANNELS_AT_ONCE).map(({ key }) => key)
      await beginSnapshot(deps.client)
      for (const piece of await piecesOf({ ...deps, of }, keys)) {
        const file = await begin()
        const [key] = piece.channelKeys
        // All pieces of a channel are read in one snapshot, and no snapshot is held for longer.
        if (key !== channelKeys.at(-1)) {
          await deps.client.query('COMMIT')
          await beginSnapshot(deps.client)
        }
        const before = await rowsOf(file)
        const { copied, size } = await copy(deps, file, range, piece)
        if (size.rows - before !== copied)
          throw new Error(`the server sent ${copied} records, and ${size.rows - before} were written`)
        if (key !== channelKeys.at(-1)) channelKeys.push(...piece.channelKeys)
        if (size.bytes >= deps.store.maxFileBytes || size.rows >= MAX_FILE_ROWS) await close()
      }
      await deps.client.query('COMMIT')
    }
    await close()
    return { files, records, channelKeys }
  } finally {
    await parquet?.end()
  }
}

/** A deletion writes the rest of a chunk again, which may belong to another piece of its channel then. */
const beginSnapshot = (client: pg.Client) => client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')

const EMPTY = new Uint8Array(0)

async function rowsOf(parquet: ParquetFiles): Promise<number> {
  await parquet.beginCopy()
  return (await parquet.add(EMPTY.slice())).rows
}

/** `2026-11`. */
function monthText(month: number): string {
  return `${1970 + Math.floor(month / 12)}-${String((month % 12) + 1).padStart(2, '0')}`
}

const ofRange = ({ leaf, from, to }: DueRange, keys: readonly number[]) =>
  `FROM ${quoted(leaf)} m WHERE m.channel_key = ANY ('{${keys.join(',')}}'::bigint[])
     AND m.arrived_at >= '${from}' AND m.arrived_at < '${to}'`

/** COPY takes no parameters: everything in it is a number or comes from the catalogue of the server. */
function copyStatement(range: DueRange, piece: Piece): string {
  const protocols = PROTOCOLS.slice(1).map((name) => `'${name}'`)
  return `COPY (
    SELECT c.id::text, s.publisher_id, coalesce((ARRAY[${protocols.join(',')}])[m.protocol], ''), nullif(s.subtopic, ''), s.name,
           nullif(s.unit, ''), r.time, r.value, r.string_value, r.bool_value, r.data_value, r.sum, r.update_time, m.arrived_at, m.batch_seq,
           m.message
      FROM (SELECT * ${ofRange(range, piece.channelKeys)} AND ${conditionOf(piece)} OFFSET 0) m
     CROSS JOIN LATERAL unnest(m.series_keys, m.times, m."values", m.sums, m.update_times, m.bool_values, m.string_values, m.data_values)
           WITH ORDINALITY AS r(series_key, time, value, sum, update_time, bool_value, string_value, data_value, place)
      JOIN series s ON s.key = r.series_key
      JOIN channels c ON c.key = m.channel_key
     ORDER BY c.id, s.name COLLATE "C", s.publisher_id COLLATE "C", r.time, m.batch_seq, m.message, m.chunk, r.place
  ) TO STDOUT (FORMAT binary)`
}

/** The number of rows that the server says it sent, and the size of the file with them. */
async function copy(
  { client, signal }: ExportDeps,
  parquet: ParquetFiles,
  range: DueRange,
  piece: Piece,
): Promise<{ copied: number; size: { rows: number; bytes: number } }> {
  const rows = client.query(copyTo(copyStatement(range, piece)))
  let waiting: Buffer[] = []
  let bytes = 0
  let written: Promise<unknown> = Promise.resolve()
  // The next piece is read while the previous one is written; at most one waits.
  const pass = async () => {
    const piece = new Uint8Array(bytes)
    let at = 0
    for (const part of waiting) {
      piece.set(part, at)
      at += part.length
    }
    waiting = []
    bytes = 0
    await written
    written = parquet.add(piece)
    written.catch(() => undefined)
  }
  for await (const chunk of rows) {
    signal.throwIfAborted()
    waiting.push(chunk as Buffer)
    bytes += (chunk as Buffer).length
    if (bytes >= PIECE_BYTES) await pass()
  }
  if (bytes > 0) await pass()
  await written
  return { copied: rows.rowCount, size: await parquet.endCopy() }
}

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`
