/** Settings of the room. */
import type { ConfigOf } from '#core/config/index.ts'
import { CERTIFICATE_SETTINGS } from './certs/config.ts'

export const PROVISIONING_SETTINGS = { ...CERTIFICATE_SETTINGS } as const

export type ProvisioningConfig = ConfigOf<typeof PROVISIONING_SETTINGS>
