export { MIGRATIONS_FOLDER, startGround } from './ground.ts'
export type { Ground, GroundOptions } from './ground.ts'
export { GROUND_SETTINGS } from './settings.ts'
export type { GroundConfig } from './settings.ts'
