/**
 * Removal of deleted domains (decision 46). Once an hour, on one node at a time, it removes the domains whose grace
 * period is over, in batches that take less than a second. An interrupted removal is resumed.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import type { Journal } from '../journal/index.ts'
import type { DueDomain } from './removal.ts'
import { beginRemoval, deleteDomain, deleteRows, detachGroups, findDueDomain, listDependents } from './removal.ts'

/** Grace period: a deleted domain can be restored for 30 days. */
export const DOMAIN_GRACE_HOURS = 720
const PURGE_INTERVAL_MS = 3_600_000
const PURGE_LOCK = 0x5ce1_000a
const CONNECTION_NAME = 'skein domain purge'

/** Rows of a batch. The number grows while batches are fast and shrinks when cascades make them slow. */
const FIRST_PART_ROWS = 100
const MAX_PART_ROWS = 5000
const QUICK_PART_MS = 250
const SLOW_PART_MS = 1000

/** Removes at most `limit` rows and returns their number. 0 means that nothing is left. */
export type RemovePart = (limit: number) => Promise<number>

/**
 * Rows of a room that have no foreign key to the domain. They are removed first, while the channels of the domain can
 * still be read.
 */
export type DomainDependents = (domainKey: number) => Promise<readonly RemovePart[]>

export type DomainPurge = {
  /** Runs a round immediately and returns the ids of the removed domains. Empty while another node runs a round. */
  round(): Promise<string[]>
  stop(): Promise<void>
}

export function startDomainPurge(deps: {
  database: Database
  journal: Journal
  logger: Logger
  belongings: readonly DomainDependents[]
}): DomainPurge {
  const { database, journal, logger, belongings } = deps
  const { db } = database

  async function removeAll(removePart: RemovePart): Promise<number> {
    let total = 0
    for (let limit = FIRST_PART_ROWS; ;) {
      rounds.signal.throwIfAborted()
      const startedMs = monotonicMs()
      const removed = await removePart(limit)
      const tookMs = monotonicMs() - startedMs
      total += removed
      if (removed === 0) return total
      if (tookMs < QUICK_PART_MS) limit = Math.min(limit * 2, MAX_PART_ROWS)
      else if (tookMs > SLOW_PART_MS) limit = Math.max(Math.floor(limit / 2), 1)
    }
  }

  async function remove(domain: DueDomain): Promise<boolean> {
    if (!(await beginRemoval(db, domain.key))) return false
    const { key } = domain
    let rows = 0
    for (const belonging of belongings)
      for (const removePart of await belonging(key)) rows += await removeAll(removePart)
    await removeAll((limit) => detachGroups(db, key, limit))
    for (const table of await listDependents(db)) rows += await removeAll((limit) => deleteRows(db, table, key, limit))
    await journal.change('system', async (tx, record) => {
      await deleteDomain(tx, key)
      record({
        operation: 'domain.remove',
        domainKey: key,
        entityKeys: [key],
        attributes: { id: domain.id, name: domain.name },
      })
    })
    logger.info({ domain: domain.id, rows }, 'removed a domain that was deleted 30 days ago')
    return true
  }

  async function round(): Promise<string[]> {
    // The advisory lock belongs to its connection, so PostgreSQL releases it when the process dies.
    const lock = await database.dedicated(CONNECTION_NAME)
    try {
      const { rows } = await lock.query<{ locked: boolean }>('SELECT pg_try_advisory_lock($1) AS locked', [PURGE_LOCK])
      if (rows[0]?.locked !== true) return []
      const removed: string[] = []
      for (;;) {
        const domain = await findDueDomain(db, DOMAIN_GRACE_HOURS)
        if (domain === undefined) return removed
        if (await remove(domain)) removed.push(domain.id)
      }
    } finally {
      await lock.end()
    }
  }

  const rounds = startPeriodicRounds({
    firstPauseMs: 0,
    pauseMs: PURGE_INTERVAL_MS,
    round,
    onFailure: (error) => logger.warn({ err: error }, 'failed to remove deleted domains; retrying'),
  })
  return { round, stop: () => rounds.stop() }
}
