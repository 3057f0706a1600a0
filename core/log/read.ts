/**
 * Reading a log in two ways. `readSettled` gives rows in position order and only those before which nothing can commit
 * any more: for consumers whose effect must happen once, in order. `readRecent` gives everything that is visible now,
 * a row possibly more than once: for caches, which must forget at once and may forget twice, and so are never held up
 * by somebody's long transaction.
 *
 * A log is a table with `xid xid8 NOT NULL DEFAULT pg_current_xact_id()`, `seq bigint` (identity) and an index on both.
 */
import type pg from 'pg'
import type { Position } from './position.ts'

export type LogTable = {
  /** Name of the table; a constant of our code, never input. */
  name: string
  /** The columns to read beside the position. */
  columns: readonly string[]
}

export type LogRow = Record<string, unknown> & { position: Position }

/** Anything with pg's `query`: a dedicated client or the pool. */
export type LogConnection = Pick<pg.ClientBase, 'query'>

type RawRow = Record<string, unknown> & { log_xid: string | null; log_seq: number | null; log_horizon: string }

function toRow(raw: RawRow): LogRow {
  const { log_xid: xid, log_seq: seq, log_horizon: _, ...values } = raw
  return { ...values, position: { xid: BigInt(xid as string), seq: seq as number } }
}

/** Rows after `after` whose order is final, oldest first, at most `limit`. */
export async function readSettled(
  connection: LogConnection,
  table: LogTable,
  after: Position,
  limit: number,
): Promise<LogRow[]> {
  const { rows } = await connection.query<RawRow>(
    `SELECT ${table.columns.join(', ')}, xid::text AS log_xid, seq AS log_seq, '' AS log_horizon
       FROM ${table.name}
      WHERE (xid, seq) > ($1::xid8, $2::bigint) AND xid < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY xid, seq LIMIT $3`,
    [after.xid.toString(), after.seq, limit],
  )
  return rows.map(toRow)
}

/**
 * Everything visible from transaction `fromXid` on, and the horizon: the transaction from which the next call must
 * start so that nothing is missed. Rows at or above the horizon come again with the next call.
 */
export async function readRecent(
  connection: LogConnection,
  table: LogTable,
  fromXid: bigint,
  pageRows: number,
): Promise<{ rows: LogRow[]; horizon: bigint }> {
  const all: LogRow[] = []
  let after: Position = { xid: fromXid, seq: -1 }
  let horizon: bigint | undefined
  for (;;) {
    const { rows } = await connection.query<RawRow>(
      `WITH snapshot AS (SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS log_horizon)
       SELECT page.*, snapshot.log_horizon FROM snapshot LEFT JOIN LATERAL (
         SELECT ${table.columns.join(', ')}, xid::text AS log_xid, seq AS log_seq
           FROM ${table.name} WHERE (xid, seq) > ($1::xid8, $2::bigint)
          ORDER BY xid, seq LIMIT $3) page ON true`,
      [after.xid.toString(), after.seq, pageRows],
    )
    // Each page has a snapshot of its own; the first one's horizon is the lowest and therefore safe for all.
    horizon ??= BigInt((rows[0] as RawRow).log_horizon)
    const found = rows.filter((row) => row.log_seq !== null).map(toRow)
    all.push(...found)
    const last = found.at(-1)
    if (last === undefined || found.length < pageRows) return { rows: all, horizon }
    after = last.position
  }
}

/** The transaction from which a reader that begins now must start. */
export async function currentHorizon(connection: LogConnection): Promise<bigint> {
  const { rows } = await connection.query<{ xmin: string }>(
    'SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin',
  )
  return BigInt((rows[0] as { xmin: string }).xmin)
}
