import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import type { ArchiverOptions } from './archiver.ts'
import { forgetRounds } from './repository.ts'

export { s3TargetOf } from './open-store.ts'
export type { S3Target } from './s3-target.ts'
export { ARCHIVE_METRICS, archiveGauges } from './metrics.ts'
export { NAMESPACE, TABLE, ArchiveService } from './service.ts'
export { findState as archiveState } from './repository.ts'
export type { ArchiveState } from './repository.ts'
export { History, HistoryCheck, VerifyQuery } from './schema.ts'

/** What writes files is loaded where there is an archive. */
export const startArchiver = async (options: ArchiverOptions): Promise<PeriodicRounds> =>
  (await import('./archiver.ts')).startArchiver(options)

const FORGET_MS = 600_000

/** For a node without an archive: the others may have turned it off as well. Only alerts need it, so a start does not wait for it. */
export const forgetArchiveRounds = ({ database, logger }: { database: Database; logger: Logger }): PeriodicRounds =>
  startPeriodicRounds({
    firstPauseMs: FORGET_MS,
    pauseMs: FORGET_MS,
    round: () => forgetRounds(database.db),
    onFailure: (error) =>
      logger.warn({ err: error }, 'failed to forget the last round of the archive; its alerts may fire'),
  })
