/** The log setting of every program. */
import { choice } from '../config/index.ts'
import { LOG_LEVELS } from './logger.ts'

export const LOG_LEVEL_SETTING = {
  logLevel: choice('SKEIN_LOG_LEVEL', LOG_LEVELS, 'info', 'Least severe log lines to print'),
} as const
