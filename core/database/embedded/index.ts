export { startEmbeddedPostgres } from './start.ts'
export type { EmbeddedConnection, EmbeddedOptions, EmbeddedPostgres } from './start.ts'
export type { PostmasterExit } from './postmaster.ts'
