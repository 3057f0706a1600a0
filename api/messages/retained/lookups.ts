/**
 * Finds the retained messages of new subscriptions. Whether there are any is looked up in batches: those that arrive while a statement
 * runs are the next one, because devices that connect together subscribe together.
 */
import type { Queryable } from '#core/database/index.ts'
import { GroupCommit } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { findRetained, mayMatchRetained } from './retained.ts'
import type { RetainedMessage, RetainedQuery } from './retained.ts'

const MAX_BATCH = 200
/** Subscriptions that wait; a client has a thousand at most. */
const MAX_QUEUED = 50_000

/** Rejects with `unavailable` when too many wait, or the database is unavailable. */
export type FindRetained = (query: RetainedQuery) => Promise<RetainedMessage[]>

export function createRetainedLookups(db: Queryable, logger: Logger): FindRetained {
  const queue = new GroupCommit<RetainedQuery, boolean>({
    name: 'the lookup of retained messages',
    item: 'the lookup of retained messages',
    logger,
    maxItems: MAX_BATCH,
    maxQueuedItems: MAX_QUEUED,
    commit: ({ items }) => mayMatchRetained(db, items),
  })
  return async (query) => ((await queue.submit(query)) ? await findRetained(db, query) : [])
}
