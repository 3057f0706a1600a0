/** How many processes serve the platform on one machine. */
import { autoInteger } from '#core/config/index.ts'
import { MAX_PROCESSES } from '#infrastructure/processes/settings.ts'

export const PROCESSES_SETTINGS = {
  apiProcesses: autoInteger(
    'SKEIN_API_PROCESSES',
    { min: 1, max: MAX_PROCESSES },
    'Equal processes of the platform that share its TCP ports (Linux; elsewhere 1); auto: 1 below four cores, otherwise half of the cores, at most 8',
  ),
} as const
