/**
 * Removes records that are older than the setting, oldest first, in bounded batches. Records that a consumer of the
 * journal has not read are kept, whatever their age.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { comparePositions, listPositions, storePosition } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { JOURNAL_CONSUMERS } from './consumers.ts'
import { countsOf } from './counts.ts'

/** Position up to which records were removed. A reader that resumes before it has missed records. */
export const REMOVED_POSITION = 'removed from the journal'

/** Maximum number of records in one transaction. */
const BATCH_RECORDS = 5000
const INTERVAL_MS = 3_600_000
/** Pause between two batches, for other users of the disk. */
const BATCH_PAUSE_MS = 50

/** If the number of days is undefined, every record is kept forever. */
export function startJournalRetention(options: {
  database: Database
  logger: Logger
  days: number | undefined
}): Pick<PeriodicRounds, 'stop'> {
  const { database, logger, days } = options
  if (days === undefined) return { stop: () => Promise.resolve() }
  return startPeriodicRounds({
    firstPauseMs: 0,
    pauseMs: INTERVAL_MS,
    async round(signal) {
      let removed = 0
      while (!signal.aborted) {
        const batch = await removeOldRecords(database, days)
        removed += batch.removed
        if (!batch.isFull) break
        await sleep(BATCH_PAUSE_MS, signal)
      }
      if (removed > 0) logger.info({ removed, days }, 'removed old records of the journal')
    },
    onFailure: (error) => logger.warn({ err: error }, 'failed to remove old records of the journal; retrying'),
  })
}

export type RemovedBatch = { removed: number; isFull: boolean }

/** Removes at most one batch. An advisory lock admits one process at a time. */
export async function removeOldRecords(database: Database, days: number): Promise<RemovedBatch> {
  return await database.transaction(async (tx) => {
    const { rows: locks } = await sql<{
      locked: boolean
    }>`SELECT pg_try_advisory_xact_lock(hashtextextended('journal retention', 0)) AS locked`.execute(tx)
    if (locks[0]?.locked !== true) return { removed: 0, isFull: false }
    return await removeBatch(tx, days)
  })
}

/** Returns the position of the slowest consumer. Undefined without consumers. */
async function slowestConsumer(tx: Transaction): Promise<Position | undefined> {
  const positions = (await listPositions(tx, JOURNAL_CONSUMERS)).map(({ position }) => position)
  return positions.toSorted(comparePositions)[0]
}

type RemovedRow = { removed: number; xid: string | null; seq: number | null }

/**
 * Removes the records of `head`, which returns their `ctid`s, with their index and count rows. Returns their number and
 * the position of the last one. Rows are found by `ctid` and key, independent of statistics: for a journal that has
 * just grown PostgreSQL would assume that it is nearly empty and use a nested loop over records and subjects.
 */
async function removeRecords(tx: Transaction, head: Sql<unknown>): Promise<RemovedRow> {
  const { rows } = await sql<RemovedRow>`
    WITH gone AS (
      DELETE FROM journal WHERE ctid = ANY (ARRAY(${head}))
      RETURNING xid, seq, occurred_at, operation, domain_key, entity_keys || actor_key AS keys),
    subjects AS (
      DELETE FROM journal_subjects WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM gone CROSS JOIN LATERAL unnest(gone.keys) AS subject (key) CROSS JOIN LATERAL (
          SELECT ctid FROM journal_subjects s
           WHERE s.entity_key = subject.key AND s.occurred_at = gone.occurred_at AND s.xid = gone.xid AND s.seq = gone.seq
          OFFSET 0) s))),
    totals AS (
      UPDATE journal_totals t SET total = t.total - counted.total FROM (${countsOf('gone')}) counted
       WHERE t.scope_key = counted.scope_key AND t.operation = counted.operation)
    SELECT (SELECT count(*) FROM gone) AS removed, last.xid::text AS xid, last.seq
      FROM (SELECT) AS always LEFT JOIN (SELECT xid, seq FROM gone ORDER BY xid DESC, seq DESC LIMIT 1) last ON true`.execute(
    tx,
  )
  return rows[0] as RemovedRow
}

/** Condition: every consumer has read the record. */
async function readByAll(tx: Transaction): Promise<Sql<boolean>> {
  const read = await slowestConsumer(tx)
  return read === undefined
    ? sql<boolean>`true`
    : sql<boolean>`(xid, seq) <= (${read.xid.toString()}::xid8, ${read.seq}::bigint)`
}

/**
 * Removes the records of a removed domain (decision 46) in batches: each call removes at most `limit` records and
 * returns their number. Records that a consumer has not read are kept until retention removes them.
 */
export function journalOfDomain(database: Database, domainKey: number): ((limit: number) => Promise<number>)[] {
  return [
    (limit) =>
      database.transaction(async (tx) => {
        const head = sql`SELECT ctid FROM journal WHERE domain_key = ${domainKey} AND ${await readByAll(tx)}
          ORDER BY xid, seq LIMIT ${limit}`
        return (await removeRecords(tx, head)).removed
      }),
  ]
}

async function removeBatch(tx: Transaction, days: number): Promise<RemovedBatch> {
  // The oldest records in the order of positions, which is nearly the order of time.
  const head = sql`SELECT ctid FROM (
      SELECT ctid, occurred_at FROM journal WHERE ${await readByAll(tx)} ORDER BY xid, seq LIMIT ${BATCH_RECORDS}) oldest
    WHERE oldest.occurred_at < now() - make_interval(days => ${days})`
  const { removed, xid, seq } = await removeRecords(tx, head)
  if (xid !== null && seq !== null) await storePosition(tx, REMOVED_POSITION, { xid: BigInt(xid), seq })
  const { rows: entities } = await sql`DELETE FROM removed_entities WHERE key IN (
    SELECT key FROM removed_entities WHERE removed_at < now() - make_interval(days => ${days}) LIMIT ${BATCH_RECORDS})
    RETURNING key`.execute(tx)
  return { removed, isFull: Math.max(removed, entities.length) === BATCH_RECORDS }
}
