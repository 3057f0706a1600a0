/** The settings of every program: several share one environment, so each knows which names belong to the others. */
import {
  ARCHIVE_SETTINGS,
  COAP_SETTINGS,
  CONNECT_SETTINGS,
  IDENTITY_SETTINGS,
  MQTT_SETTINGS,
  PROCESSES_SETTINGS,
  PROVISIONING_SETTINGS,
  PUBLISHED_SETTINGS,
  RULES_SETTINGS,
} from '#api/config.ts'
import { BACKUP_SETTINGS } from '#postgres/backup/settings.ts'
import type { Settings } from '#core/config/index.ts'
import { HTTP_SETTINGS } from '#http/settings.ts'
import { INFRASTRUCTURE_SETTINGS } from '#infrastructure/settings.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'
import { PROXY_SETTINGS } from '#proxy/config.ts'
import { WORKER_SETTINGS } from '#worker/identity/config.ts'

export const EVERY_SETTING: readonly Settings[] = [
  INFRASTRUCTURE_SETTINGS,
  HTTP_SETTINGS,
  IDENTITY_SETTINGS,
  PROVISIONING_SETTINGS,
  RULES_SETTINGS,
  ARCHIVE_SETTINGS,
  PUBLISHED_SETTINGS,
  PROCESSES_SETTINGS,
  COAP_SETTINGS,
  CONNECT_SETTINGS,
  MQTT_SETTINGS,
  MANAGER_SETTINGS,
  PROXY_SETTINGS,
  WORKER_SETTINGS,
  BACKUP_SETTINGS,
]
