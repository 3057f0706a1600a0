/**
 * Follows a log in its final order and stores the position in the transaction of the effect: each row takes effect
 * exactly once, however often the process dies. One consumer of a name works at a time, on whatever node holds its lock.
 */
import type { Database, Queryable, Transaction } from '../database/index.ts'
import type { Logger } from '../logging/index.ts'
import type { Position } from './position.ts'
import { LOG_START } from './position.ts'
import type { LogRow, LogTable } from './read.ts'
import { readSettled, settledEnd } from './read.ts'
import type { Pause, Rounds } from './rounds.ts'
import { growingPauses, startRounds } from './rounds.ts'
import { sql } from '../sql.ts'

/** Where the consumer stands; undefined when it never stored one. */
export async function findPosition(db: Queryable, consumer: string): Promise<Position | undefined> {
  const { rows } = await sql<{
    xid: string
    seq: number
  }>`SELECT xid::text AS xid, seq FROM consumers WHERE name = ${consumer}`.execute(db)
  const [row] = rows
  return row === undefined ? undefined : { xid: BigInt(row.xid), seq: row.seq }
}

/** Where the consumers whose names begin so stand, and since when. */
export async function listPositions(
  db: Queryable,
  prefix: string,
): Promise<{ consumer: string; position: Position; updatedAt: string }[]> {
  const { rows } = await sql<{ name: string; xid: string; seq: number; updated_at: string }>`
    SELECT name, xid::text AS xid, seq, updated_at FROM consumers WHERE starts_with(name, ${prefix}) ORDER BY name`.execute(
    db,
  )
  return rows.map((row) => ({
    consumer: row.name,
    position: { xid: BigInt(row.xid), seq: row.seq },
    updatedAt: row.updated_at,
  }))
}

/** A new consumer begins at the log's present end; one that has a position keeps it. */
export async function beginAtEnd(db: Queryable, consumer: string): Promise<void> {
  const { xid, seq } = await settledEnd(db)
  await sql`INSERT INTO consumers (name, xid, seq) VALUES (${consumer}, ${xid.toString()}::xid8, ${seq})
    ON CONFLICT ON CONSTRAINT consumers_pkey DO NOTHING`.execute(db)
}

/** Stores the position; call it in the transaction of the effect. */
export async function storePosition(tx: Transaction, consumer: string, position: Position): Promise<void> {
  await sql`INSERT INTO consumers (name, xid, seq) VALUES (${consumer}, ${position.xid.toString()}::xid8, ${position.seq})
    ON CONFLICT ON CONSTRAINT consumers_pkey DO UPDATE SET xid = EXCLUDED.xid, seq = EXCLUDED.seq, updated_at = now()`.execute(
    tx,
  )
}

export type LogFollowerOptions = {
  database: Database
  table: LogTable
  /** Unique name of the consumer: its position and its lock. */
  consumer: string
  logger: Logger
  intervalMs: number
  /** While nothing is found pauses grow up to this; as they are unless said. For who pokes when something is written. */
  quietMs?: number
  /** So long the pause is at least, also when poked, after a round that found something; 0 unless said. */
  restMs?: number
  maxRows: number
  /**
   * The effect of these rows, in the transaction that also stores the position. May stop early and say how many of them
   * took effect: the rest comes again at once.
   */
  apply: (tx: Transaction, rows: readonly LogRow[]) => Promise<void | number>
  /** Called after each round that found something, when its effect is committed. */
  onApplied?: () => void
}

export type LogFollower = Rounds

/** Backoff after a failed round doubles up to this. */
const MAX_BACKOFF_MS = 10_000

export function startLogFollower(options: LogFollowerOptions): LogFollower {
  const {
    database,
    table,
    consumer,
    logger,
    intervalMs,
    maxRows,
    apply,
    onApplied,
    quietMs = intervalMs,
    restMs = 0,
  } = options
  let backoffMs = intervalMs
  const pauses = growingPauses(intervalMs, quietMs)

  /**
   * One statement that is planned once, so that a log where nothing happens costs next to nothing, however often it is looked at. With
   * the order its plan is the index, whatever the log holds when it is made.
   */
  async function hasNext(): Promise<boolean> {
    const { rows } = await database.db.query<{ has_next: boolean | null }>({
      name: `has-next-${table.name}`,
      text: `
        SELECT (SELECT true FROM ${table.name} l WHERE (l.xid, l.seq) > (stands.xid, stands.seq)
          ORDER BY l.xid, l.seq LIMIT 1) AS has_next
        FROM (SELECT) AS always LEFT JOIN consumers c ON c.name = $1
        CROSS JOIN LATERAL (SELECT coalesce(c.xid, $2::xid8) AS xid, coalesce(c.seq, $3::bigint) AS seq) stands`,
      values: [consumer, LOG_START.xid.toString(), LOG_START.seq],
    })
    return rows[0]?.has_next === true
  }

  /** One transaction: lock, read, apply, store. True when there may be more to read at once. */
  function applyNext(): Promise<boolean> {
    return database.transaction(async (tx) => {
      const { rows: locks } = await sql<{
        locked: boolean
      }>`SELECT pg_try_advisory_xact_lock(hashtextextended(${`consumer ${consumer}`}, 0)) AS locked`.execute(tx)
      if (locks[0]?.locked !== true) return false
      const after = (await findPosition(tx, consumer)) ?? LOG_START
      const rows = await readSettled(tx, table, after, maxRows)
      if (rows.length === 0) return false
      const applied = (await apply(tx, rows)) ?? rows.length
      const last = rows[applied - 1]
      if (last === undefined) return false
      await storePosition(tx, consumer, last.position)
      return applied < rows.length || rows.length === maxRows
    })
  }

  async function round(): Promise<Pause> {
    try {
      const isThere = await hasNext()
      const hasMore = isThere && (await applyNext())
      if (isThere) onApplied?.()
      backoffMs = intervalMs
      return { pauseMs: hasMore ? 0 : pauses.next(!isThere), isPokable: true, restMs: isThere ? restMs : 0 }
    } catch (error) {
      logger.warn({ err: error, consumer }, 'a changelog consumer failed; retrying')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  return startRounds(round)
}
