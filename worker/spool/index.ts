export { Spool } from './spool.ts'
export type { SpooledResult } from './spool.ts'
