export { MIGRATIONS_FOLDER, startInfrastructure } from './infrastructure.ts'
export type { Infrastructure, InfrastructureOptions } from './infrastructure.ts'
export { INFRASTRUCTURE_SETTINGS } from './settings.ts'
export type { GroundConfig } from './settings.ts'
