/**
 * Reading a log in two ways. `readSettled` gives rows in position order and only those before which nothing can commit
 * any more: for consumers whose effect must happen once, in order. `readNew` gives what became visible since an earlier
 * read, each row once, whatever its position: for caches, which must forget at once and so are never held up by
 * somebody's long transaction.
 *
 * A log is a table with `xid xid8 NOT NULL DEFAULT pg_current_xact_id()`, `seq bigint` (identity) and an index on both.
 */
import type pg from 'pg'
import type { Queryable } from '../database/index.ts'
import type { Position } from './position.ts'
import { comparePositions } from './position.ts'
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'

export type LogTable = {
  /** Name of the table; a constant of our code, never input. */
  name: string
  /** The columns to read beside the position. */
  columns: readonly string[]
}

export type LogRow = Record<string, unknown> & { position: Position }

type Positioned = { log_xid: string; log_seq: number }

function toRow({ log_xid: xid, log_seq: seq, ...values }: Record<string, unknown> & Positioned): LogRow {
  return { ...values, position: { xid: BigInt(xid), seq } }
}

/** Rows after `after` whose order is final, oldest first, at most `limit`; only those that meet `where`, up to `until`. */
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
       AND xid < pg_snapshot_xmin(pg_current_snapshot()) AND ${where} AND ${end}
     ORDER BY xid, seq LIMIT ${limit}`.execute(db)
  return rows.map(toRow)
}

/**
 * The position behind every row whose order is final: a reader that begins here is given what commits from now on, and
 * perhaps some of what was committed a moment ago.
 */
export async function settledEnd(db: Queryable): Promise<Position> {
  const { rows } = await sql<{
    xid: string
  }>`SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xid`.execute(db)
  return { xid: BigInt((rows[0] as { xid: string }).xid) - 1n, seq: Number.MAX_SAFE_INTEGER }
}

/** Which transactions a reader has seen: those below `xmax` but the ones that were still running. */
export type LogSnapshot = { xmax: string; running: readonly string[] }

/** Whether the snapshot saw what the transaction wrote. */
export function saw({ xmax, running }: LogSnapshot, xid: bigint): boolean {
  return xid < BigInt(xmax) && !running.includes(String(xid))
}

/** `<xmin>:<xmax>:<xid>,<xid>…`, the text form of `pg_snapshot`. */
function parseSnapshot(text: string): LogSnapshot {
  const [, xmax, running = ''] = text.split(':')
  if (xmax === undefined) throw new Error(`not a snapshot of the database: ${text}`)
  return { xmax, running: running === '' ? [] : running.split(',') }
}

/** Where a reader that begins now must start. */
export async function currentSnapshot(connection: pg.Client): Promise<LogSnapshot> {
  const { rows } = await connection.query<{ snapshot: string }>('SELECT pg_current_snapshot()::text AS snapshot')
  return parseSnapshot((rows[0] as { snapshot: string }).snapshot)
}

type RowOrNone = Record<string, unknown> & { log_snapshot: string; log_xid: string | null; log_seq: number | null }

/**
 * Every row that `since` did not see and this read does, in position order, and the snapshot to go on from. Undefined
 * rows: there are more than `maxRows`.
 */
export async function readNew(
  connection: pg.Client,
  table: LogTable,
  since: LogSnapshot,
  maxRows: number,
): Promise<{ rows: LogRow[] | undefined; snapshot: LogSnapshot }> {
  const select = `SELECT ${table.columns.join(', ')}, xid::text AS log_xid, seq AS log_seq FROM ${table.name}`
  // Two index scans instead of one condition with OR, for which the planner may walk the whole log.
  const { rows } = await connection.query<RowOrNone>(
    `SELECT page.*, pg_current_snapshot()::text AS log_snapshot
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
