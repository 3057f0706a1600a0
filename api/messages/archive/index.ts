import type { PeriodicRounds } from '#core/rounds.ts'
import type { ArchiverOptions } from './archiver.ts'

export { ARCHIVE_METRICS, archiveGauges } from './metrics.ts'
export { NAMESPACE, TABLE, createArchiveService } from './service.ts'
export type { ArchiveService } from './service.ts'
export { findState as archiveState, forgetRound as forgetArchiveRounds } from './repository.ts'
export type { ArchiveState } from './repository.ts'
export { History, HistoryCheck, VerifyQuery } from './schema.ts'

/** What writes files is loaded where there is an archive. */
export const startArchiver = async (options: ArchiverOptions): Promise<PeriodicRounds> =>
  (await import('./archiver.ts')).startArchiver(options)
