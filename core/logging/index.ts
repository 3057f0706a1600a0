export type { HeldLines } from './held-lines.ts'
export { LOG_LEVELS, createHeldLogger, createLogger } from './logger.ts'
export type { LogLevel, Logger, LoggerOptions } from './logger.ts'
export { LOG_LEVEL_SETTING } from './settings.ts'
