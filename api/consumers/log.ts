/** Places in the changelog of messages: its ends, and where a time is. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Place } from './place.ts'

/** The time of a batch is the start of its transaction, which may be before that of an earlier batch. */
const SLACK_SECONDS = 60
/** Bits of the number of a batch. */
const MAX_HALVINGS = 63

type Row = { xid: string; seq: number }

const placeOf = ({ xid, seq }: Row, message = 0): Place => ({ xid: BigInt(xid), seq, message })

/** The place before every message of the changelog. */
export const LOG_BEGIN: Place = { xid: 0n, seq: 0, message: 0 }

/** The first message that is kept; undefined: the changelog is empty. */
export async function firstPlace(db: Queryable): Promise<Place | undefined> {
  const { rows } = await sql<Row>`SELECT xid::text AS xid, seq FROM ingest_batches ORDER BY xid, seq LIMIT 1`.execute(
    db,
  )
  return rows[0] === undefined ? undefined : placeOf(rows[0])
}

/** Returns the place after the last settled message. */
export async function endPlace(db: Queryable): Promise<Place> {
  const { rows } = await sql<Row>`SELECT xid::text AS xid, seq + 1 AS seq FROM ingest_batches
    WHERE xid < position_xmin() ORDER BY ingest_batches.xid DESC, ingest_batches.seq DESC LIMIT 1`.execute(db)
  return rows[0] === undefined ? LOG_BEGIN : placeOf(rows[0])
}

/**
 * Returns the place before all messages that are sent from now on. What was acknowledged before is behind it, also while it is not settled: the
 * transaction of a message that is sent after this call has a higher number than the one that asks.
 */
export async function nextPlace(tx: Transaction): Promise<Place> {
  const { rows } = await sql<{ xid: string }>`SELECT position_xid()::text AS xid`.execute(tx)
  return placeOf({ xid: (rows[0] as { xid: string }).xid, seq: 0 })
}

/** Returns a place at or before the first message that arrived at this time or later. It halves the range of batch numbers. */
export async function placeAt(db: Queryable, epochSeconds: number): Promise<Place> {
  const { rows: ends } = await sql<{ low: number | null; high: number | null }>`SELECT
    (SELECT seq FROM ingest_batches ORDER BY seq LIMIT 1) AS low, (SELECT seq FROM ingest_batches ORDER BY seq DESC LIMIT 1) AS high`.execute(
    db,
  )
  let [low, high] = [ends[0]?.low ?? 0, (ends[0]?.high ?? 0) + 1]
  let found: Place | undefined
  for (let halving = 0; low < high && halving < MAX_HALVINGS; halving++) {
    const middle = low + Math.floor((high - low) / 2)
    const { rows } = await sql<Row & { is_late: boolean }>`
      SELECT xid::text AS xid, seq, arrived_at >= to_timestamp(${epochSeconds - SLACK_SECONDS}::float8) AS is_late
        FROM ingest_batches WHERE seq >= ${middle} ORDER BY seq LIMIT 1`.execute(db)
    const [row] = rows
    if (row === undefined) high = middle
    else if (row.is_late) {
      found = placeOf(row)
      high = middle
    } else low = row.seq + 1
  }
  return found ?? (await endPlace(db))
}
