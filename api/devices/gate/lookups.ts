/**
 * Looks devices up in batches: those that arrive while a statement runs are the next one. After the end of a node all of its devices
 * connect within seconds, and a statement for each would cost more than everything else of a connection.
 */
import type { Queryable } from '#core/database/index.ts'
import { GroupCommit } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { findCandidates } from './repository.ts'
import type { Candidate, CandidateQuery } from './repository.ts'

/** Takes some 10 ms: a device waits for the statement before its own at most. */
const MAX_BATCH = 200
/** Devices that wait; another one is refused with `unavailable`, and tries again. */
const MAX_QUEUED = 20_000

/** Returns the clients that match. Rejects with `unavailable` when too many wait, or the database is unavailable. */
export type FindCandidates = (query: CandidateQuery) => Promise<readonly Candidate[]>

export function createLookups(db: Queryable, logger: Logger): FindCandidates {
  const queue = new GroupCommit<CandidateQuery, readonly Candidate[]>({
    name: 'the lookup of devices',
    item: 'the lookup of a device',
    logger,
    maxItems: MAX_BATCH,
    maxQueuedItems: MAX_QUEUED,
    commit: ({ items }) => findCandidates(db, items),
  })
  return (query) => queue.submit(query)
}
