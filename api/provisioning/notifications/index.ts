export { NOTIFICATION_SETTINGS } from './config.ts'
export { startNotifications } from './notifications.ts'
export type { NotificationTimes } from './notifications.ts'
export { NOTIFICATION_METRICS, notificationGauges } from './metrics.ts'
