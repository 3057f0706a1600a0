export { PROVISIONING_SETTINGS } from './config.ts'
export type { ProvisioningConfig } from './config.ts'
export { startProvisioning } from './provisioning.ts'
export type { Provisioning } from './provisioning.ts'
