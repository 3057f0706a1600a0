/**
 * Follows a log in its final order and stores the position in the transaction of the effect: each row takes effect
 * exactly once, however often the process dies. One consumer of a name works at a time, on whatever node holds its lock.
 */
import { sql } from 'kysely'
import type { Database, NoTables, Queryable, Transaction } from '../database/index.ts'
import type { Logger } from '../logging/index.ts'
import type { Position } from './position.ts'
import { LOG_START } from './position.ts'
import type { LogRow, LogTable } from './read.ts'
import { readSettled } from './read.ts'
import type { Pause, Rounds } from './rounds.ts'
import { startRounds } from './rounds.ts'

type ConsumersTable = { name: string; xid: string; seq: number; updated_at: string }
type ConsumerTables = NoTables & { consumers: ConsumersTable }

/** Where the consumer stands; undefined when it never stored one. */
export async function findPosition(db: Queryable, consumer: string): Promise<Position | undefined> {
  const row = await db
    .withTables<ConsumerTables>()
    .selectFrom('consumers')
    .select([sql<string>`xid::text`.as('xid'), 'seq'])
    .where('name', '=', consumer)
    .executeTakeFirst()
  return row === undefined ? undefined : { xid: BigInt(row.xid), seq: row.seq }
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
  maxRows: number
  /** The effect of these rows, in the transaction that also stores the position. */
  apply: (tx: Transaction, rows: readonly LogRow[]) => Promise<void>
}

export type LogFollower = Rounds

/** Backoff after a failed round doubles up to this. */
const MAX_BACKOFF_MS = 10_000

export function startLogFollower(options: LogFollowerOptions): LogFollower {
  const { database, table, consumer, logger, intervalMs, maxRows, apply } = options
  let backoffMs = intervalMs

  /** One transaction: lock, read, apply, store. Returns how many rows were applied. */
  function applyNext(): Promise<number> {
    return database.transaction(async (tx) => {
      const { rows: locks } = await sql<{
        locked: boolean
      }>`SELECT pg_try_advisory_xact_lock(hashtextextended(${`consumer ${consumer}`}, 0)) AS locked`.execute(tx)
      if (locks[0]?.locked !== true) return 0
      const after = (await findPosition(tx, consumer)) ?? LOG_START
      const rows = await readSettled(tx, table, after, maxRows)
      const last = rows.at(-1)
      if (last === undefined) return 0
      await apply(tx, rows)
      await storePosition(tx, consumer, last.position)
      return rows.length
    })
  }

  async function round(): Promise<Pause> {
    try {
      const applied = await applyNext()
      backoffMs = intervalMs
      return { pauseMs: applied === maxRows ? 0 : intervalMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error, consumer }, 'a log consumer failed and tries again')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  return startRounds(round)
}
