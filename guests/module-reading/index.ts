export { describeModuleBytes, validateModule } from './read-modules.ts'
export type { ValidatedModule } from './read-modules.ts'
