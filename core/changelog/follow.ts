/**
 * Reads a changelog in its final order and stores the position in the transaction of the effect: each row takes effect exactly
 * once, also after a crash. One consumer of a name works at a time, on the node that holds its lock.
 */
import type { Database, Queryable, Transaction } from '../database/index.ts'
import type { Logger } from '../logging/index.ts'
import { CHANGELOG_METRICS } from './metrics.ts'
import type { Position } from './position.ts'
import { LOG_START } from './position.ts'
import type { LogRow, LogTable } from './read.ts'
import { readSettled, settledEnd } from './read.ts'
import type { Pause, Rounds } from '../rounds.ts'
import { growingPauses, startRounds } from '../rounds.ts'
import { sql } from '../sql.ts'
import { monotonicMs } from '../time.ts'

/** The stored position of the consumer; undefined when it has not stored one. */
export async function findPosition(db: Queryable, consumer: string): Promise<Position | undefined> {
  const { rows } = await sql<{
    xid: string
    seq: number
  }>`SELECT xid::text AS xid, seq FROM consumers WHERE name = ${consumer}`.execute(db)
  const [row] = rows
  return row === undefined ? undefined : { xid: BigInt(row.xid), seq: row.seq }
}

/** The positions of all consumers whose names begin with `prefix`, with the times at which they were stored. */
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

/** A new consumer begins at the present end of the changelog; an existing one keeps its position. */
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

/** Keeps the consumer at its position until the transaction ends. False: it is moving, or is held by another. */
export async function holdPosition(tx: Transaction, consumer: string): Promise<boolean> {
  const { rows } = await sql<{
    locked: boolean
  }>`SELECT pg_try_advisory_xact_lock(hashtextextended(${`consumer ${consumer}`}, 0)) AS locked`.execute(tx)
  return rows[0]?.locked === true
}

export type LogFollowerOptions = {
  database: Database
  table: LogTable
  /** Unique name of the consumer: its position and its lock. */
  consumer: string
  logger: Logger
  intervalMs: number
  /** While no rows are found, pauses grow up to this; defaults to `intervalMs`. Set it where writers call `wake`. */
  maxIdlePauseMs?: number
  /** The minimum pause after a round that found rows, also after a wake; defaults to 0. */
  minPauseMs?: number
  maxRows: number
  /**
   * Applies the rows in the transaction that also stores the position. It may stop early and return the number of rows that
   * took effect; the remaining rows are delivered again at once.
   */
  apply: (tx: Transaction, rows: readonly LogRow[]) => Promise<void | number>
  /** Called after the commit of each round that found rows. */
  onApplied?: () => void
}

export type LogFollower = Rounds

/** The maximum backoff after failed rounds. */
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
    maxIdlePauseMs = intervalMs,
    minPauseMs = 0,
  } = options
  let backoffMs = intervalMs
  let caughtUpMs = monotonicMs()
  const removeLag = CHANGELOG_METRICS.lag.from(() => [
    { labels: { consumer }, value: (monotonicMs() - caughtUpMs) / 1000 },
  ])
  /** True when the round that runs has found rows that cannot be applied yet. */
  let isHeldUp = false
  const pauses = growingPauses(intervalMs, maxIdlePauseMs)

  /**
   * One statement that is planned once, so that polling an idle changelog costs almost nothing. The ORDER BY makes the planner
   * use the index, independent of the table's size when the plan is made.
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

  /** One transaction: lock, read, apply, store. True when more rows may be ready. */
  function applyNext(): Promise<boolean> {
    return database.transaction(async (tx) => {
      if (!(await holdPosition(tx, consumer))) return false
      const after = (await findPosition(tx, consumer)) ?? LOG_START
      const rows = await readSettled(tx, table, after, maxRows)
      if (rows.length === 0) {
        // Rows are committed whose order is not final: an older transaction is still writing.
        isHeldUp = true
        return false
      }
      const applied = (await apply(tx, rows)) ?? rows.length
      const last = rows[applied - 1]
      if (last === undefined) return false
      await storePosition(tx, consumer, last.position)
      return applied < rows.length || rows.length === maxRows
    })
  }

  async function round(): Promise<Pause> {
    const beganMs = monotonicMs()
    isHeldUp = false
    try {
      const isThere = await hasNext()
      const hasMore = isThere && (await applyNext())
      if (!hasMore && !isHeldUp) caughtUpMs = beganMs
      if (isThere) onApplied?.()
      backoffMs = intervalMs
      return { pauseMs: hasMore ? 0 : pauses.next(!isThere), isWakeable: true, minPauseMs: isThere ? minPauseMs : 0 }
    } catch (error) {
      CHANGELOG_METRICS.failures.add({ consumer })
      logger.warn({ err: error, consumer }, 'a changelog consumer failed; retrying')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isWakeable: false }
    }
  }

  const rounds = startRounds(round)
  return {
    wake: rounds.wake,
    async stop() {
      removeLag()
      await rounds.stop()
    },
  }
}
