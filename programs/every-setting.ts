/** The settings of every program: several share one environment, so each knows which names belong to the others. */
import { PROCESSES_SETTINGS, PUBLISHED_SETTINGS } from '#api/config.ts'
import { BACKUP_SETTINGS } from '#postgres/backup/settings.ts'
import type { Settings } from '#core/config/index.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'
import { PROXY_SETTINGS } from '#proxy/config.ts'
import { WORKER_SETTINGS } from '#worker/identity/config.ts'
import { API_SETTINGS } from './start/api-settings.ts'

export const EVERY_SETTING: readonly Settings[] = [
  ...Object.values(API_SETTINGS),
  PUBLISHED_SETTINGS,
  PROCESSES_SETTINGS,
  MANAGER_SETTINGS,
  PROXY_SETTINGS,
  WORKER_SETTINGS,
  BACKUP_SETTINGS,
]
