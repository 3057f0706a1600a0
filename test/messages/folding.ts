/** Messages that are stored, read, and folded at the moments of a test's choice, as one process or as several do it. */
import { createReader } from '#api/messages/index.ts'
import type { IncomingMessage } from '#api/messages/index.ts'
import type { Database } from '#core/database/index.ts'
import { Ingest } from '../../api/messages/ingest/ingest.ts'
import { foldNext } from '../../api/messages/projections/fold.ts'
import { createOwnBatches } from '../../api/messages/projections/own-batches.ts'
import { createPartitions } from '../../api/messages/store/partitions.ts'
import { silentLogger as logger } from '../harness/database.ts'

/** No batch of a test becomes so old that another process reads it. */
const FOREIGN_AGE_MS = 3_600_000

/** A process that folds what it stored itself, when it is told to. */
export function createFoldingNode(database: Database) {
  const own = createOwnBatches({ foreignAgeMs: FOREIGN_AGE_MS, rest: () => Promise.resolve() })
  const ingest = new Ingest({
    database,
    logger,
    hasRoom: () => true,
    onCommitted: (seq, batch) => own.tally.add(seq, batch),
  })
  let folded: Promise<unknown> = Promise.resolve()
  return {
    own,
    publish: (message: IncomingMessage) => ingest.publish(message),
    /** A round of its folder, which does one after the other. */
    fold() {
      const round = folded.then(() => foldNext(database, own))
      folded = round.catch(() => undefined)
      return round
    },
    close: () => ingest.close(),
  }
}

/** How a test has folded what was stored: added up by the process that stored it, or read from the tables by another. */
export const WAYS_TO_FOLD = ['own', 'own', 'tables'] as const
export type WayToFold = (typeof WAYS_TO_FOLD)[number]

export async function startFoldingMessages(database: Database) {
  await createPartitions(database)
  const node = createFoldingNode(database)
  const reader = createReader(database)
  return {
    publish: node.publish,
    read: reader.read,
    readLatest: reader.latest,
    fold: async (way: WayToFold) => void (way === 'own' ? await node.fold() : await foldNext(database)),
    close: node.close,
  }
}
