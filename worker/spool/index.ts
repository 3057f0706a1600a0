export { SPOOL_PATIENCE_MS, Spool } from './spool.ts'
export type { SpooledResult } from './spool.ts'
