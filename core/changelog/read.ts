/**
 * Two ways to read a changelog. `readSettled` returns rows in position order, up to the first position at which a transaction
 * may still commit: for consumers that process each row once and in order. `readNew` returns the rows that became visible
 * since an earlier read, each row once, at any position: for caches, which must be invalidated at once and cannot wait for long
 * transactions.
 *
 * A log is a table with `xid xid8 NOT NULL DEFAULT position_xid()`, `seq bigint` (identity) and an index on both.
 */
import type pg from 'pg'
import type { Queryable } from '../database/index.ts'
import type { Position } from './position.ts'
import { comparePositions } from './position.ts'
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'

export type LogTable = {
  /** Name of the table; a constant, never input. */
  name: string
  /** The columns to read beside the position. */
  columns: readonly string[]
}

export type LogRow = Record<string, unknown> & { position: Position }

type Positioned = { log_xid: string; log_seq: number }

function toRow({ log_xid: xid, log_seq: seq, ...values }: Record<string, unknown> & Positioned): LogRow {
  return { ...values, position: { xid: BigInt(xid), seq } }
}

/** Settled rows after `after` and up to `until` that meet `where`, oldest first, at most `limit`. */
export async function readSettled(
  db: Queryable,
  table: LogTable,
  after: Position,
  limit: number,
  { where = sql<boolean>`true`, until }: { where?: Sql<boolean>; until?: Position } = {},
): Promise<LogRow[]> {
  const end = until === undefined ? sql`true` : sql`(xid, seq) <= (${until.xid.toString()}::xid8, ${until.seq}::bigint)`
  const { rows } = await sql<Record<string, unknown> & Positioned>`
    SELECT ${sql.raw(table.columns.join(', '))}, xid::text AS log_xid, seq AS log_seq FROM ${sql.raw(table.name)}
     WHERE (xid, seq) > (${after.xid.toString()}::xid8, ${after.seq}::bigint)
       AND xid < position_xmin() AND ${where} AND ${end}
     ORDER BY xid, seq LIMIT ${limit}`.execute(db)
  return rows.map(toRow)
}

/**
 * The position after every settled row. A reader that begins here receives everything that commits from now on, and possibly
 * rows that were committed shortly before.
 */
export async function settledEnd(db: Queryable): Promise<Position> {
  const { rows } = await sql<{
    xid: string
  }>`SELECT position_xmin()::text AS xid`.execute(db)
  return { xid: BigInt((rows[0] as { xid: string }).xid) - 1n, seq: Number.MAX_SAFE_INTEGER }
}

/** The transactions that a reader has seen: those below `xmax`, except those that were still running. */
export type LogSnapshot = { xmax: string; running: readonly string[] }

/** Whether the snapshot sees the rows of the transaction. */
export function sees({ xmax, running }: LogSnapshot, xid: bigint): boolean {
  return xid < BigInt(xmax) && !running.includes(String(xid))
}

/** `<xmin>:<xmax>:<xid>,<xid>…`, the text form of `pg_snapshot`. */
function parseSnapshot(text: string): LogSnapshot {
  const [, xmax, running = ''] = text.split(':')
  if (xmax === undefined) throw new Error(`not a pg_snapshot: ${text}`)
  return { xmax, running: running === '' ? [] : running.split(',') }
}

/** The snapshot at which a new reader starts. */
export async function currentSnapshot(connection: pg.Client): Promise<LogSnapshot> {
  const { rows } = await connection.query<{ snapshot: string }>('SELECT position_snapshot()::text AS snapshot')
  return parseSnapshot((rows[0] as { snapshot: string }).snapshot)
}

type RowOrNone = Record<string, unknown> & { log_snapshot: string; log_xid: string | null; log_seq: number | null }

/**
 * Every row that is visible to this read and was not visible to `since`, in position order, and the new snapshot. `rows` is
 * undefined when there are more than `maxRows`.
 */
export async function readNew(
  connection: pg.Client,
  table: LogTable,
  since: LogSnapshot,
  maxRows: number,
): Promise<{ rows: LogRow[] | undefined; snapshot: LogSnapshot }> {
  const select = `SELECT ${table.columns.join(', ')}, xid::text AS log_xid, seq AS log_seq FROM ${table.name}`
  // Two index scans: for one condition with OR the planner may scan the whole table.
  const { rows } = await connection.query<RowOrNone>(
    `SELECT page.*, (SELECT position_snapshot()::text) AS log_snapshot
       FROM (SELECT) AS always
       LEFT JOIN LATERAL (
         (${select} WHERE xid >= $1::xid8 LIMIT $3)
         UNION ALL
         (${select} WHERE xid = ANY ($2::xid8[]) LIMIT $3)) page ON true`,
    [since.xmax, since.running, maxRows + 1],
  )
  const snapshot = parseSnapshot((rows[0] as RowOrNone).log_snapshot)
  const found: LogRow[] = []
  for (const row of rows) {
    const { log_snapshot: _snapshot, log_xid, log_seq, ...values } = row
    if (log_xid !== null && log_seq !== null) found.push(toRow({ ...values, log_xid, log_seq }))
  }
  return { rows: found.length > maxRows ? undefined : found.toSorted(byPosition), snapshot }
}

function byPosition(left: LogRow, right: LogRow): number {
  return comparePositions(left.position, right.position)
}
