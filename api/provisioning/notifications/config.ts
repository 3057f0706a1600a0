/** Settings of notifications. */
import { list } from '#core/config/index.ts'

export const NOTIFICATION_SETTINGS = {
  webhookHosts: list(
    'SKEIN_WEBHOOK_HOSTS',
    [],
    'Hosts to which notifications may be posted although they are private, and over plain HTTP',
  ),
} as const
