/** Settings of provisioning. */
import type { ConfigOf } from '#core/config/index.ts'
import { BOOTSTRAP_SETTINGS } from './bootstrap/config.ts'
import { CERTIFICATE_SETTINGS } from './certs/config.ts'
import { NOTIFICATION_SETTINGS } from './notifications/config.ts'
import { PROVISION_SETTINGS } from './provision/config.ts'

export const PROVISIONING_SETTINGS = {
  ...CERTIFICATE_SETTINGS,
  ...BOOTSTRAP_SETTINGS,
  ...PROVISION_SETTINGS,
  ...NOTIFICATION_SETTINGS,
} as const

export type ProvisioningConfig = ConfigOf<typeof PROVISIONING_SETTINGS>
