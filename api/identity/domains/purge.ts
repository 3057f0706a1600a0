/**
 * The end of deleted domains (decision 46): each hour, one node at a time removes those whose grace is over, with everything
 * of them, in parts that are over within a second. A domain whose removal was cut off is taken up again.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { Journal } from '../journal/index.ts'
import type { DueDomain } from './removal.ts'
import { beginRemoval, deleteDomain, deleteRows, detachGroups, findDueDomain, listDependents } from './removal.ts'

/** How long a deleted domain can be restored: 30 days. */
export const DOMAIN_GRACE_HOURS = 720
const PURGE_INTERVAL_MS = 3_600_000
const PURGE_LOCK = 0x5ce1_000a
const CONNECTION_NAME = 'skein domain purge'

/** Rows of a part: it grows while parts are quick, and shrinks where a row takes many others with it. */
const FIRST_PART_ROWS = 100
const MAX_PART_ROWS = 5000
const QUICK_PART_MS = 250
const SLOW_PART_MS = 1000

/** Removes at most so many rows of what it stands for, and gives how many went; 0: nothing is left. */
export type RemovePart = (limit: number) => Promise<number>

/** What a room keeps of a domain without a foreign key to it. It goes first, while the domain's channels can still be read. */
export type DomainBelongings = (domainKey: number) => Promise<readonly RemovePart[]>

export type DomainPurge = {
  /** A round now; gives the ids of the domains that went. None when another node is at it. */
  round(): Promise<string[]>
  stop(): Promise<void>
}

export function startDomainPurge(deps: {
  database: Database
  journal: Journal
  logger: Logger
  belongings: readonly DomainBelongings[]
}): DomainPurge {
  const { database, journal, logger, belongings } = deps
  const { db } = database
  const stopping = new AbortController()

  async function removeAll(removePart: RemovePart): Promise<number> {
    let total = 0
    for (let limit = FIRST_PART_ROWS; ;) {
      stopping.signal.throwIfAborted()
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
    // The lock lives as long as its connection, so it ends with a process that dies.
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

  async function loop(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await round()
        await sleep(PURGE_INTERVAL_MS, stopping.signal)
      } catch (error) {
        if (stopping.signal.aborted) return
        logger.warn({ err: error }, 'failed to remove deleted domains; retrying')
        await sleep(PURGE_INTERVAL_MS, stopping.signal).catch(() => undefined)
      }
    }
  }
  const running = loop()

  return {
    round,
    async stop() {
      stopping.abort()
      await running
    },
  }
}
