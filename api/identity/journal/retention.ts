/**
 * Removes records that are older than the setting says, the oldest first, a bounded number at a time. A record that a
 * consumer of the journal has not read yet stays, however old.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { comparePositions, listPositions, storePosition } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import { JOURNAL_CONSUMERS } from './consumers.ts'
import { countsOf } from './counts.ts'

/** Up to which position records were removed: whoever wants to go on from an earlier one has missed something. */
export const REMOVED_POSITION = 'removed from the journal'

/** Records of one transaction. */
const BATCH_RECORDS = 5000
const INTERVAL_MS = 3_600_000
/** Between two batches others get the disk. */
const BATCH_PAUSE_MS = 50

export type JournalRetention = { stop(): Promise<void> }

/** `undefined` days: everything is kept, for ever. */
export function startJournalRetention(options: {
  database: Database
  logger: Logger
  days: number | undefined
}): JournalRetention {
  const { database, logger, days } = options
  if (days === undefined) return { stop: () => Promise.resolve() }
  const stopping = new AbortController()
  const { signal } = stopping

  async function removeAll(): Promise<void> {
    let removed = 0
    while (!signal.aborted) {
      const batch = await removeOldRecords(database, days as number)
      removed += batch.removed
      if (!batch.isFull) break
      await sleep(BATCH_PAUSE_MS, signal)
    }
    if (removed > 0) logger.info({ removed, days }, 'removed old records of the journal')
  }

  const loop = (async () => {
    while (!signal.aborted) {
      await removeAll().catch((error: unknown) => {
        if (!signal.aborted) logger.warn({ err: error }, 'failed to remove old records of the journal; retrying')
      })
      await sleep(INTERVAL_MS, signal).catch(() => undefined)
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await loop
    },
  }
}

export type RemovedBatch = { removed: number; isFull: boolean }

/** Removes at most one batch. One process at a time, whoever comes first. */
export async function removeOldRecords(database: Database, days: number): Promise<RemovedBatch> {
  return await database.transaction(async (tx) => {
    const { rows: locks } = await sql<{
      locked: boolean
    }>`SELECT pg_try_advisory_xact_lock(hashtextextended('journal retention', 0)) AS locked`.execute(tx)
    if (locks[0]?.locked !== true) return { removed: 0, isFull: false }
    return await removeBatch(tx, days)
  })
}

/** The position of the consumer that is furthest behind; undefined when there is none. */
async function slowestConsumer(tx: Transaction): Promise<Position | undefined> {
  const positions = (await listPositions(tx, JOURNAL_CONSUMERS)).map(({ position }) => position)
  return positions.toSorted(comparePositions)[0]
}

type RemovedRow = { removed: number; xid: string | null; seq: number | null }

/**
 * Removes the records of `head`, their places (`ctid`), with all that was noted of them. Gives how many, and the last of them. Rows
 * are found by places and keys alone, whatever statistics say: of a journal that has just grown they say that it is nearly empty, and
 * PostgreSQL compared each of the removed records with each of the subjects.
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

/** What every consumer has read. */
async function readByAll(tx: Transaction): Promise<Sql<boolean>> {
  const read = await slowestConsumer(tx)
  return read === undefined
    ? sql<boolean>`true`
    : sql<boolean>`(xid, seq) <= (${read.xid.toString()}::xid8, ${read.seq}::bigint)`
}

/**
 * The records of a domain that is removed (decision 46), as parts: each call removes at most so many and gives how many
 * went. What a consumer has not read stays until it is old.
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
  // The head of the log in its own order: an old record is never far from its beginning.
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
