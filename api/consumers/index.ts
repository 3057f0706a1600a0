/** Named consumers of messages: positions that users and services hold, with acknowledgements. */
import type { MessageGate } from '#api/devices/index.ts'
import type { FullDomains, Identity } from '#api/identity/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { deliveryRoutes } from './delivery-routes.ts'
import { DeliveryService } from './delivery.ts'
import { startConsumerMaintenance } from './maintenance.ts'
import { countConsumers } from './repository.ts'
import { consumerRoutes } from './routes.ts'
import { ConsumersService } from './service.ts'
import { Waits } from './waits.ts'

export { DOUBT_TABLES, consumersWithLetters, readDoubtBytes } from './deliveries.ts'
export { takenJson } from './delivery-routes.ts'
export type { DeliveryService } from './delivery.ts'
export { CONSUMER_METRICS, consumerGauges } from './metrics.ts'
export { startOf } from './begin.ts'
export { requireSubscribe } from './service.ts'
export { nextPlace, placeAt } from './log.ts'
export { comparePlaces, formatPlace } from './place.ts'
export type { Place } from './place.ts'
export { Ack, ConsumerName, Nack } from './schema.ts'

export type ConsumerTimes = { checkSeconds?: number; intervalMs?: number }

export type Consumers = { readonly delivery: DeliveryService; readonly routes: RoutePlugin; stop(): Promise<void> }

export function startConsumers({
  infrastructure: { database, bus, streams, logger },
  identity: { access, journal, quotas, tokens },
  gate,
  messages,
  fullDomains,
  signal,
  times = {},
}: {
  infrastructure: Pick<Infrastructure, 'database' | 'bus' | 'streams' | 'logger'>
  identity: Pick<Identity, 'access' | 'journal' | 'quotas' | 'tokens'>
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'onCommitted'>
  /** Domains whose quota `queued_bytes` is used up. */
  fullDomains: FullDomains
  /** Aborted when the process begins to stop. */
  signal: AbortSignal
  /** Tests shorten them. */
  times?: ConsumerTimes | undefined
}): Consumers {
  const waits = new Waits({ database, bus, logger, onCommitted: (listener) => messages.onCommitted(listener) })
  const consumers = new ConsumersService({ database, journal, access, gate, quotas })
  const delivery = new DeliveryService({ database, access, gate, waits, fullDomains, signal })
  const maintenance = startConsumerMaintenance({ database, journal, logger, ...times })
  quotas.measure('consumers', (domainKey) => countConsumers(database.db, domainKey))
  return {
    delivery,
    routes: async (app) => {
      await consumerRoutes(consumers, (key) => waits.freed(key))(app)
      const authenticate: typeof tokens.authenticate = (token, origin) => tokens.authenticate(token, origin)
      await deliveryRoutes({ delivery, streams, authenticate, logger })(app)
    },
    async stop() {
      await Promise.all([waits.stop(), maintenance.stop()])
    },
  }
}
