/**
 * The rules of subscriptions (decision 57). A user manages their own subscriptions and can subscribe to channels that
 * they may read. An unconfirmed email address gets nothing except the confirmation link.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type { Journal, Origin, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { requireSelection } from '#core/changelog/index.ts'
import type { LetterSelection } from '#core/changelog/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { LINK_LIFETIME_SECONDS } from './confirmation.ts'
import type { Confirmations } from './confirmation.ts'
import type { SendLink } from './links.ts'
import type { DeliveryRecord, SubscriptionRecord } from './repository.ts'
import {
  confirmAddress,
  countSubscriptions,
  discardDeadLetters,
  findSubscription,
  isConfirmedAddress,
  insertSubscription,
  listDeadLetters,
  listSubscriptions,
  removeSubscription,
  retryDeadLetters,
  wasLinkSent,
} from './repository.ts'
import { MAX_LISTED } from './schema.ts'
import type { DeadLetterQuery, NewSubscription, SubscriptionQuery } from './schema.ts'
import { parseTopic, requireContact } from './topic.ts'

/** Maximum number of subscriptions of one user. */
const MAX_SUBSCRIPTIONS = 1000

const notFound = () => new ServiceError('not_found', 'entity not found')

export class SubscriptionsService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #gate: MessageGate
  readonly #confirmations: Confirmations
  readonly #sendLink: SendLink
  readonly #privateHosts: readonly string[]

  constructor(deps: {
    database: Database
    journal: Journal
    gate: MessageGate
    confirmations: Confirmations
    sendLink: SendLink
    privateHosts: readonly string[]
  }) {
    this.#database = deps.database
    this.#journal = deps.journal
    this.#gate = deps.gate
    this.#confirmations = deps.confirmations
    this.#sendLink = deps.sendLink
    this.#privateHosts = deps.privateHosts
  }

  /**
   * Creates a subscription and returns its id. For an unconfirmed email address it is pending, and the link is sent.
   * Throws `malformed`; `forbidden`, `not_found` and `conflict` like reading the channel; `conflict` for the same topic
   * and contact, `unprocessable` for too many subscriptions.
   */
  async create(caller: UserPrincipal, { topic, contact }: NewSubscription): Promise<string> {
    requireContact(contact, this.#privateHosts)
    const { domain, channel, filter } = parseTopic(topic)
    const access = await this.#gate.authorize({ kind: 'user', principal: caller }, { domain, channel }, 'subscribe')
    const id = newId()
    const isConfirmed = await this.#journal.change(caller, async (tx, record) => {
      if ((await countSubscriptions(tx, caller.key)) >= MAX_SUBSCRIPTIONS)
        throw new ServiceError('unprocessable', `a user is limited to ${MAX_SUBSCRIPTIONS} subscriptions`)
      const hasRight = contact.includes('://') || (await isConfirmedAddress(tx, caller.key, contact))
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
    // One link confirms all subscriptions of the user to the address. When the limits prevent it, the user can
    // request it later.
    if (!isConfirmed && !(await wasLinkSent(this.#database.db, caller.key, contact, LINK_LIFETIME_SECONDS)))
      await this.#sendLink(caller, { id, contact })
    return id
  }

  async get(caller: UserPrincipal, id: string): Promise<SubscriptionRecord> {
    const found = isId(id) ? await findSubscription(this.#database.db, caller, id) : undefined
    if (found === undefined) throw notFound()
    return found
  }

  /**
   * Lists the caller's subscriptions; with a token that is bound to a domain, those to its channels. Throws `not_found`
   * when a filter matches nothing.
   */
  async list(
    caller: UserPrincipal,
    { topic, contact, offset, limit, cursor }: SubscriptionQuery,
  ): Promise<Page<SubscriptionRecord>> {
    const asked = limit === -1 ? MAX_LISTED : limit
    const { total, subscriptions, next } = await listSubscriptions(this.#database.db, caller, {
      topic,
      contact,
      offset,
      limit: asked,
      cursor,
    })
    if (total === 0 && (topic !== undefined || contact !== undefined)) throw notFound()
    return { total, offset, limit: asked, items: subscriptions, next }
  }

  async remove(caller: UserPrincipal, id: string): Promise<void> {
    const { key, topic, channelKey } = await this.get(caller, id)
    await this.#journal.change(caller, async (tx, record) => {
      if (!(await removeSubscription(tx, key))) throw notFound()
      record({ operation: 'subscription.remove', entityKeys: [channelKey], attributes: { id, topic } })
    })
  }

  /** Sends the link again to an unconfirmed address. Throws `rate_limited`. */
  async sendConfirmation(caller: UserPrincipal, id: string): Promise<'sent' | 'confirmed already'> {
    const found = await this.get(caller, id)
    if (found.isConfirmed) return 'confirmed already'
    const waitMs = await this.#sendLink(caller, found)
    if (waitMs === 0) return 'sent'
    throw new ServiceError('rate_limited', 'the link was already sent: check the mailbox or retry later', {
      retryAfterSeconds: Math.ceil(waitMs / 1000),
    })
  }

  /**
   * Confirms the address for all subscriptions of the user. The link can be opened repeatedly until it expires. Throws
   * the same `unauthenticated` for an invalid link, an expired one and one of a deleted subscription.
   */
  async confirm(token: string, origin: Origin): Promise<void> {
    const id = this.#confirmations.read(token, Date.now() / 1000)
    const isKnown =
      id !== undefined &&
      (await this.#journal.change('system', async (tx, record) => {
        const confirmed = await confirmAddress(tx, id)
        for (const one of confirmed ?? [])
          record({
            operation: 'subscription.confirm',
            entityKeys: one.channelKey === null ? [] : [one.channelKey],
            attributes: { id: one.id, address: origin.address },
          })
        return confirmed !== undefined
      }))
    if (!isKnown)
      throw new ServiceError(
        'unauthenticated',
        'failed to perform authentication: the link has expired or its subscription was deleted',
      )
  }

  /** Lists its dead letters. */
  async deadLetters(caller: UserPrincipal, id: string, query: DeadLetterQuery): Promise<Page<DeliveryRecord>> {
    const { key } = await this.get(caller, id)
    const { offset, limit } = query
    const { total, letters, next } = await listDeadLetters(this.#database.db, [key], query)
    return { total, offset, limit, items: letters, next }
  }

  /** Tries dead letters again, or discards them. Returns their number. Throws `malformed`. */
  async retryDeadLetters(caller: UserPrincipal, id: string, selection: LetterSelection): Promise<number> {
    const { key } = await this.get(caller, id)
    return await retryDeadLetters(this.#database.db, [key], requireSelection(selection))
  }

  async discardDeadLetters(caller: UserPrincipal, id: string, selection: LetterSelection): Promise<number> {
    const { key } = await this.get(caller, id)
    return await discardDeadLetters(this.#database.db, [key], requireSelection(selection))
  }
}
