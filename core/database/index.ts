export { createDatabase } from './connect.ts'
export type { Database, DatabaseAddress, DatabaseOptions } from './connect.ts'
export {
  DATABASE_AWAY_RETRY_SECONDS,
  isDatabaseAway,
  isRefusedData,
  isRepeatable,
  refusing,
  translateDatabaseError,
  violatedConstraint,
} from './errors.ts'
export { jsonArray } from './json-array.ts'
export { executeKept } from './kept-plans.ts'
export { withinPage } from './page.ts'
export type { PageRow } from './page.ts'
export { prepared } from './prepared.ts'
export type { Prepared } from './prepared.ts'
export type { Queryable } from '../sql.ts'
export { sendTogether } from './together.ts'
export type { Transaction } from './transaction.ts'
export { createBatcher } from './batcher.ts'
export type { Batcher, BatcherOptions } from './batcher.ts'
export { migrate, readMigrations } from './migrate.ts'
export type { Migration } from './migrate.ts'
