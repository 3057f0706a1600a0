/** Composition of the slice: subscriptions, the consumer of the changelog, and the sender. */
import type { MessageGate } from '#api/devices/index.ts'
import type { FullDomains, Identity } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { createConfirmations } from './confirmation.ts'
import { startNotificationConsumer } from './consumer.ts'
import { createLinks } from './links.ts'
import { subscriptionRoutes } from './routes.ts'
import { RuleContacts } from './rule-contacts.ts'
import { Sender } from './sender.ts'
import { SubscriptionsService } from './service.ts'

export type NotificationTimes = {
  retrySeconds?: readonly number[]
  intervalMs?: number
  postDeadlineMs?: number
  quotaSeconds?: number
  rightSeconds?: number
}

export async function startNotifications(deps: {
  config: { webhookHosts: readonly string[]; publicUrl: string }
  database: Database
  keyring: Keyring
  limits: SharedLimits | undefined
  logger: Logger
  identity: Identity
  gate: MessageGate
  fullDomains: FullDomains
  /** Tests shorten them. */
  times?: NotificationTimes | undefined
}): Promise<{ readonly routes: RoutePlugin; readonly ruleContacts: RuleContacts; stop(): Promise<void> }> {
  const { config, database, keyring, limits, logger, identity, gate, times = {} } = deps
  const privateHosts = config.webhookHosts
  const signingSecretOf = (subscriptionId: string) =>
    keyring.mac('notification signature', subscriptionId).toString('hex')
  const confirmations = createConfirmations(keyring, config.publicUrl)
  const sendLink = createLinks({ database, mailer: identity.mailer, limits, confirmations })
  const service = new SubscriptionsService({
    database,
    journal: identity.journal,
    gate,
    confirmations,
    sendLink,
    privateHosts,
  })
  const consumer = await startNotificationConsumer(database, logger, deps.fullDomains, times.intervalMs)
  const sender = new Sender({
    database,
    gate,
    access: identity.access,
    journal: identity.journal,
    mailer: identity.mailer,
    quotas: identity.quotas,
    limits,
    logger,
    privateHosts,
    signingSecretOf,
    ...times,
  })
  const ruleContacts = new RuleContacts({
    database,
    access: identity.access,
    fullDomains: deps.fullDomains,
    sendLink,
    privateHosts,
    signingSecretOf,
    onRecorded: () => sender.wake(),
  })
  return {
    ruleContacts,
    routes: subscriptionRoutes(service, signingSecretOf),
    async stop() {
      await consumer.stop()
      await sender.stop()
    },
  }
}
