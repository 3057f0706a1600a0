/** Messages that are stored, read and projected at the moments of a test's choice, as one process or as several do it. */
import { createReader } from '#api/messages/index.ts'
import type { IncomingMessage } from '#api/messages/index.ts'
import type { Database } from '#core/database/index.ts'
import { Ingest } from '../../api/messages/ingest/ingest.ts'
import { PartialAggregate } from '../../api/messages/projections/partial-aggregate.ts'
import { projectNext } from '../../api/messages/projections/project.ts'
import { createPartitions } from '../../api/messages/store/partitions.ts'
import { silentLogger as logger } from '../harness/database.ts'

/** No batch of a test becomes so old that another process reads it. */
const FOREIGN_AGE_MS = 3_600_000

/** A process that projects what it stored itself, on request. */
export function createProjectingNode(database: Database) {
  let partial = new PartialAggregate()
  const own = {
    foreignAgeMs: FOREIGN_AGE_MS,
    get partial() {
      return partial
    },
    takePartial() {
      const taken = partial
      partial = new PartialAggregate()
      return taken
    },
  }
  const ingest = new Ingest({
    database,
    logger,
    hasRoom: () => true,
    onCommitted: (seq, batch) => partial.add(seq, batch),
  })
  let projected: Promise<unknown> = Promise.resolve()
  return {
    own,
    publish: (message: IncomingMessage) => ingest.publish(message),
    /** A round of its projector, which does one after the other. */
    project() {
      const round = projected.then(() => projectNext(database, own))
      projected = round.catch(() => undefined)
      return round
    },
    close: () => ingest.close(),
  }
}

/** How a test projects what was stored: by the sums of the process that stored it, or from the tables by another. */
export const WAYS_TO_PROJECT = ['own', 'own', 'tables'] as const
export type WayToProject = (typeof WAYS_TO_PROJECT)[number]

export async function startProjectingMessages(database: Database) {
  await createPartitions(database)
  const node = createProjectingNode(database)
  const reader = createReader(database)
  return {
    publish: node.publish,
    read: reader.read,
    readLatest: reader.latest,
    project: async (way: WayToProject) => void (way === 'own' ? await node.project() : await projectNext(database)),
    close: node.close,
  }
}
