export { createDatabase } from './connect.ts'
export type { Database, DatabaseAddress, DatabaseOptions } from './connect.ts'
export {
  DATABASE_AWAY_RETRY_SECONDS,
  isDatabaseAway,
  isOutage,
  isRefusedData,
  isRepeatable,
  refusing,
  translateDatabaseError,
  violatedConstraint,
} from './errors.ts'
export { jsonArray } from './json-array.ts'
export { withinPage } from './page.ts'
export type { PageRow } from './page.ts'
export { prepared } from './prepared.ts'
export type { Prepared } from './prepared.ts'
export type { Queryable } from '../sql.ts'
export { sendTogether } from './together.ts'
export type { Transaction } from './transaction.ts'
export type { Batch, ItemOutcome } from './batch-commit.ts'
export { GroupCommit } from './group-commit.ts'
export type { GroupCommitOptions } from './group-commit.ts'
export { migrate, readMigrations } from './migrate.ts'
export type { Migration } from './migrate.ts'
export { checkServerVersion } from './server-version.ts'
