/**
 * The rules of subscriptions (decision 57): everybody has his own, and may subscribe to what he may read. An address of mail is
 * sent nothing but one link until whoever reads it has agreed.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type { Journal, Mailer, Origin, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'
import { LINK_LIFETIME_SECONDS } from './confirmation.ts'
import type { Confirmations } from './confirmation.ts'
import { createLimiter } from './limiter.ts'
import type { DeliveryRecord, SubscriptionRecord } from './repository.ts'
import {
  confirmAddress,
  countSubscriptions,
  findSubscription,
  hasAgreed,
  insertSubscription,
  listDeadLetters,
  listSubscriptions,
  noteAsked,
  removeSubscription,
  wasAsked,
} from './repository.ts'
import { MAX_LISTED } from './schema.ts'
import type { DeadLetterQuery, NewSubscription, SubscriptionQuery } from './schema.ts'
import { parseTopic, requireContact } from './topic.ts'

export type SubscriptionsService = {
  /**
   * Gives its id. One to an address of mail that has not agreed waits for that, and the link is sent there. Throws `malformed`; `forbidden`, `not_found` and `conflict` as reading the channel does; `conflict` for
   * the same topic and contact, `unprocessable` for too many.
   */
  create(caller: UserPrincipal, input: NewSubscription): Promise<string>
  get(caller: UserPrincipal, id: string): Promise<SubscriptionRecord>
  /** The caller's own; with a token that is bound to a domain those to its channels. Throws `not_found` when a filter finds none. */
  list(caller: UserPrincipal, query: SubscriptionQuery): Promise<Page<SubscriptionRecord>>
  remove(caller: UserPrincipal, id: string): Promise<void>
  /** Sends the link again to the address that has not agreed. Throws `rate_limited`. */
  sendConfirmation(caller: UserPrincipal, id: string): Promise<'sent' | 'confirmed already'>
  /**
   * Whoever followed the link has the address: it agrees to what the user subscribed it to. The link may be followed again while it
   * lives. Throws `unauthenticated` alike for a link that is not ours, is too old, or is of a subscription that has ended.
   */
  confirm(token: string, origin: Origin): Promise<void>
  /** What was given up for it. */
  deadLetters(caller: UserPrincipal, id: string, query: DeadLetterQuery): Promise<Page<DeliveryRecord>>
}

/** Of one user. */
const MAX_SUBSCRIPTIONS = 1000

/** Links to one address, whoever asks for them; and links that one user has sent to addresses. */
const PER_ADDRESS: BucketRule = { burst: 3, perMinute: 3 / 60 }
const PER_USER: BucketRule = { burst: 20, perMinute: 20 / 60 }

const notFound = () => new ServiceError('not_found', 'entity not found')

export function createSubscriptionsService(deps: {
  database: Database
  journal: Journal
  gate: MessageGate
  mailer: Mailer
  limits: SharedLimits | undefined
  confirmations: Confirmations
  privateHosts: readonly string[]
}): SubscriptionsService {
  const { database, journal, gate, mailer, limits, confirmations, privateHosts } = deps
  const addresses = createLimiter('confirm address', PER_ADDRESS, limits)
  const users = createLimiter('confirm user', PER_USER, limits)

  /** Milliseconds until a link may be sent to the address; 0: it is on its way. */
  async function sendLink(caller: UserPrincipal, subscription: { id: string; contact: string }): Promise<number> {
    // Those of the user first: whoever has sent too many takes nothing of the address.
    const waitMs = (await users.take(caller.id)) || (await addresses.take(subscription.contact.toLowerCase()))
    if (waitMs > 0) return waitMs
    await noteAsked(database.db, subscription.id)
    void mailer.send(confirmations.mailFor(subscription, Date.now() / 1000))
    return 0
  }

  async function find(caller: UserPrincipal, id: string): Promise<SubscriptionRecord> {
    const found = isId(id) ? await findSubscription(database.db, caller, id) : undefined
    if (found === undefined) throw notFound()
    return found
  }

  return {
    async create(caller, { topic, contact }) {
      requireContact(contact, privateHosts)
      const { domain, channel, filter } = parseTopic(topic)
      const access = await gate.authorize({ kind: 'user', principal: caller }, { domain, channel }, 'subscribe')
      const id = newId()
      const isConfirmed = await journal.change(caller, async (tx, record) => {
        if ((await countSubscriptions(tx, caller.key)) >= MAX_SUBSCRIPTIONS)
          throw new ServiceError('unprocessable', `a user may have ${MAX_SUBSCRIPTIONS} subscriptions`)
        const hasRight = contact.includes('://') || (await hasAgreed(tx, caller.key, contact))
        await insertSubscription(tx, {
          id,
          userKey: caller.key,
          channelKey: access.channelKey,
          topic,
          filter,
          contact,
          isConfirmed: hasRight,
        })
        record({
          operation: 'subscription.create',
          domainKey: access.domainKey,
          entityKeys: [access.channelKey],
          attributes: { id, channel_id: access.channelId, topic },
        })
        return hasRight
      })
      // One link for all that the user subscribes the address to. What the limits keep back, he may ask for later.
      if (!isConfirmed && !(await wasAsked(database.db, caller.key, contact, LINK_LIFETIME_SECONDS)))
        await sendLink(caller, { id, contact })
      return id
    },
    get: find,
    async list(caller, { topic, contact, offset, limit }) {
      const asked = limit === -1 ? MAX_LISTED : limit
      const { total, subscriptions } = await listSubscriptions(database.db, caller, {
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
    async sendConfirmation(caller, id) {
      const found = await find(caller, id)
      if (found.isConfirmed) return 'confirmed already'
      const waitMs = await sendLink(caller, found)
      if (waitMs === 0) return 'sent'
      throw new ServiceError('rate_limited', 'the link was sent several times lately: look for the mail, or wait', {
        retryAfterSeconds: Math.ceil(waitMs / 1000),
      })
    },
    async confirm(token, origin) {
      const id = confirmations.read(token, Date.now() / 1000)
      const isKnown =
        id !== undefined &&
        (await journal.change('system', async (tx, record) => {
          const confirmed = await confirmAddress(tx, id)
          for (const one of confirmed ?? [])
            record({
              operation: 'subscription.confirm',
              entityKeys: [one.channelKey],
              attributes: { id: one.id, address: origin.address },
            })
          return confirmed !== undefined
        }))
      if (!isKnown)
        throw new ServiceError(
          'unauthenticated',
          'failed to perform authentication: the link is too old, or what it was sent for has ended',
        )
    },
    async deadLetters(caller, id, { offset, limit }) {
      const { key } = await find(caller, id)
      const { total, letters } = await listDeadLetters(database.db, key, { offset, limit })
      return { total, offset, limit, items: letters }
    },
  }
}
