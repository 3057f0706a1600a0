export { createDatabase } from './connect.ts'
export type { Database, DatabaseAddress, DatabaseOptions, SnapshotSource } from './connect.ts'
export {
  DATABASE_UNAVAILABLE_RETRY_SECONDS,
  NO_STANDBY_RETRY_SECONDS,
  isDatabaseUnavailable,
  isAnswered,
  isLockRefused,
  isOutage,
  isRefusedData,
  isRepeatable,
  refusing,
  translateDatabaseError,
  violatedConstraint,
} from './errors.ts'
export { jsonArray } from './json-array.ts'
export { Keyset, pageOf, rangeOf, readPage } from './keyset.ts'
export type { PlacedRow, SortColumn } from './keyset.ts'
export { withinPage } from './page.ts'
export type { PageRow } from './page.ts'
export { assigned, selected } from './columns.ts'
export type { ColumnsOf } from './columns.ts'
export { prepared } from './prepared.ts'
export type { Prepared } from './prepared.ts'
export type { Queryable } from '../sql.ts'
export { sendCorked } from './corked.ts'
export type { Transaction } from './transaction.ts'
export type { Batch, ItemOutcome } from './batch-commit.ts'
export { GroupCommit } from './group-commit.ts'
export type { CommitObserver, GroupCommitOptions } from './group-commit.ts'
export { DATABASE_METRICS, databaseGauges } from './metrics.ts'
export {
  MIGRATIONS_FOLDER,
  applyMigrations,
  hasOlderNodes,
  migrate,
  readMigrations,
  withMigrationLock,
} from './migrate.ts'
export type { Migration } from './migrate.ts'
export { createReplica } from './replica.ts'
export type { Replica } from './replica.ts'
export { checkServerVersion } from './server-version.ts'
