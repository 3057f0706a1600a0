export { SPOOL_WRITE_DELAY_MS, Spool } from './spool.ts'
export type { SpooledResult } from './spool.ts'
