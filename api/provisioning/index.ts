export { PROVISIONING_SETTINGS } from './config.ts'
export type { ProvisioningConfig } from './config.ts'
export { startProvisioning } from './provisioning.ts'
export type { Provisioning } from './provisioning.ts'
export {
  NOTIFICATION_METRICS,
  notificationGauges,
  NOTIFICATION_TABLE,
  readNotificationBytes,
  rulesWithLetters,
  subscriptionsWithLetters,
} from './notifications/index.ts'
export type { NotificationTimes } from './notifications/index.ts'
