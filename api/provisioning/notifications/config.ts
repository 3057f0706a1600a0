/** Settings of notifications. */
import { list } from '#core/config/index.ts'

export const NOTIFICATION_SETTINGS = {
  webhookHosts: list(
    'SKEIN_WEBHOOK_HOSTS',
    [],
    'Hosts that webhooks may use even if their addresses are private or the URL is plain HTTP',
  ),
} as const
