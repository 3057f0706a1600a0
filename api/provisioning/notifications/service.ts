/** The rules of subscriptions (decision 57): everybody has his own, and may subscribe to what he may read. */
import type { MessageGate } from '#api/devices/index.ts'
import type { Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { DeliveryRecord, SubscriptionRecord } from './repository.ts'
import {
  countSubscriptions,
  findSubscription,
  insertSubscription,
  listDeadLetters,
  listSubscriptions,
  removeSubscription,
} from './repository.ts'
import { MAX_LISTED } from './schema.ts'
import type { DeadLetterQuery, NewSubscription, SubscriptionQuery } from './schema.ts'
import { parseTopic, requireContact } from './topic.ts'

export type SubscriptionsService = {
  /**
   * Gives its id. Throws `malformed`; `forbidden`, `not_found` and `conflict` as reading the channel does; `conflict` for
   * the same topic and contact, `unprocessable` for too many.
   */
  create(caller: UserPrincipal, input: NewSubscription): Promise<string>
  get(caller: UserPrincipal, id: string): Promise<SubscriptionRecord>
  /** The caller's own. Throws `not_found` when a filter finds none. */
  list(caller: UserPrincipal, query: SubscriptionQuery): Promise<Page<SubscriptionRecord>>
  remove(caller: UserPrincipal, id: string): Promise<void>
  /** What was given up for it. */
  deadLetters(caller: UserPrincipal, id: string, query: DeadLetterQuery): Promise<Page<DeliveryRecord>>
}

/** Of one user. */
const MAX_SUBSCRIPTIONS = 1000

const notFound = () => new ServiceError('not_found', 'entity not found')

export function createSubscriptionsService(deps: {
  database: Database
  journal: Journal
  gate: MessageGate
  privateHosts: readonly string[]
}): SubscriptionsService {
  const { database, journal, gate, privateHosts } = deps

  async function find(caller: UserPrincipal, id: string): Promise<SubscriptionRecord> {
    const found = isId(id) ? await findSubscription(database.db, caller.key, id) : undefined
    if (found === undefined) throw notFound()
    return found
  }

  return {
    async create(caller, { topic, contact }) {
      requireContact(contact, privateHosts)
      const { domain, channel, filter } = parseTopic(topic)
      const access = await gate.authorize({ kind: 'user', principal: caller }, { domain, channel }, 'subscribe')
      const id = newId()
      await journal.change(caller, async (tx, record) => {
        if ((await countSubscriptions(tx, caller.key)) >= MAX_SUBSCRIPTIONS)
          throw new ServiceError('unprocessable', `a user may have ${MAX_SUBSCRIPTIONS} subscriptions`)
        await insertSubscription(tx, { id, userKey: caller.key, channelKey: access.channelKey, topic, filter, contact })
        record({
          operation: 'subscription.create',
          domainKey: access.domainKey,
          entityKeys: [access.channelKey],
          attributes: { id, channel_id: access.channelId, topic },
        })
      })
      return id
    },
    get: find,
    async list(caller, { topic, contact, offset, limit }) {
      const asked = limit === -1 ? MAX_LISTED : limit
      const { total, subscriptions } = await listSubscriptions(database.db, caller.key, {
        topic,
        contact,
        offset,
        limit: asked,
      })
      if (total === 0 && (topic !== undefined || contact !== undefined)) throw notFound()
      return { total, offset, limit: asked, items: subscriptions }
    },
    async remove(caller, id) {
      const { key, topic, channelKey } = await find(caller, id)
      await journal.change(caller, async (tx, record) => {
        if (!(await removeSubscription(tx, key))) throw notFound()
        record({ operation: 'subscription.remove', entityKeys: [channelKey], attributes: { id, topic } })
      })
    },
    async deadLetters(caller, id, { offset, limit }) {
      const { key } = await find(caller, id)
      const { total, letters } = await listDeadLetters(database.db, key, { offset, limit })
      return { total, offset, limit, items: letters }
    },
  }
}
