/**
 * The backend of the conformance profile: no authentication, free topics, all state in memory. It is only for public test suites of the
 * protocol (contract section 15).
 */
import { ApplicationMessage, forwardedProperties } from './application-message.ts'
import type { MqttBackend, OpenRequest, Publication, SessionWill } from './backend.ts'
import { REASON } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import type { SessionHost, Subscription } from './session.ts'
import { Session, roleOf } from './session.ts'
import { Streams } from './streams.ts'
import { SubscriptionIndex } from './subscription-index.ts'
import type { FilterTarget, Identity, Target } from './targets.ts'

const FREE: Identity = { scope: '', ownerKey: 0, domainKey: undefined, credentials: undefined }
/** All topics belong to one stream. */
const STREAM = 0
/** The limit of each kind of state; above it the oldest entries are dropped. */
const MAX_STORED = 100_000
const FOR_EVER = 2 ** 32 - 1
/** A filter that is rejected, for suites that test a rejected subscription. */
const REFUSED_FILTER = 'test/nosubscribe'

type StoredSession = {
  session: Session
  will: SessionWill | undefined
  /** The times of the will and of the session's end; undefined while it is connected. */
  willAtMs: number | undefined
  endsAtMs: number | undefined
}

export class ConformanceBackend implements MqttBackend {
  readonly #host: SessionHost
  readonly #streams = new Streams('/')
  readonly #sessions = new Map<string, StoredSession>()
  readonly #retained = new Map<string, ApplicationMessage>()
  #nextKey = 1
  #subscriptionCount = 0

  constructor(host: SessionHost) {
    this.#host = host
  }

  authenticate(): Promise<Identity> {
    return Promise.resolve(FREE)
  }

  recheck(): Promise<void> {
    return Promise.resolve()
  }

  isIgnored(): boolean {
    return false
  }

  target(_identity: Identity, topic: string): Target {
    if (topic.startsWith('$')) throw new ProtocolError(REASON.topicNameInvalid, 'topics that begin with $ are not free')
    return { streamKey: STREAM, subtopic: topic, access: undefined }
  }

  filter(_identity: Identity, filter: string): Promise<FilterTarget> {
    if (filter === REFUSED_FILTER)
      return Promise.reject(new ProtocolError(REASON.unspecified, 'this filter is refused in the conformance profile'))
    const levels = filter.split('/')
    const isWrong = levels.some((level, index) =>
      level.includes('#') ? level !== '#' || index !== levels.length - 1 : level.includes('+') && level !== '+',
    )
    // [MQTT-4.7.1-1], [MQTT-4.7.1-2]
    if (isWrong) return Promise.reject(new ProtocolError(REASON.topicFilterInvalid, 'a wildcard must be a whole level'))
    return Promise.resolve({ streamKey: STREAM, levels, prefix: undefined, access: undefined })
  }

  admit(): undefined {}

  publish({ target, payload, qos, retain, properties, session }: Publication): undefined {
    const { messageExpiryInterval } = properties
    const applicationMessage = new ApplicationMessage({
      subtopic: target.subtopic,
      payload: Buffer.from(payload),
      qos,
      retain,
      properties: forwardedProperties(properties),
      expiresAtMs: messageExpiryInterval === undefined ? undefined : Date.now() + messageExpiryInterval * 1000,
      sender: session?.key,
      envelope: undefined,
      batchSeq: undefined,
      index: 0,
    })
    if (retain) this.#retain(target.subtopic, applicationMessage)
    this.#streams.deliver(STREAM, applicationMessage)
  }

  sendRetained(subscription: Subscription): Promise<void> {
    const { session, qos, identifier } = subscription
    const own = new SubscriptionIndex('/')
    own.add(subscription)
    for (const [topic, applicationMessage] of this.#retained) {
      if (own.match(topic).own.length === 0 || applicationMessage.isExpired(Date.now())) continue
      const identifiers = identifier === undefined ? undefined : [identifier]
      session.push(
        applicationMessage,
        { qos, retain: true, prefix: undefined, identifiers, streamKey: STREAM },
        undefined,
      )
    }
    return Promise.resolve()
  }

  open(request: OpenRequest): Promise<{ session: Session; isPresent: boolean }> {
    const name = request.clientIdentifier
    const before = this.#sessions.get(name)
    if (before !== undefined && request.connect.cleanStart) {
      // The session ends, and with it the delay of its will [MQTT-3.1.3-9].
      this.#sendWill(before)
      this.#drop(name, before)
    }
    const isPresent = before !== undefined && !request.connect.cleanStart
    const session = this.#renew(request, isPresent ? before : undefined)
    this.#sessions.set(name, { session, will: request.will, willAtMs: undefined, endsAtMs: undefined })
    return Promise.resolve({ session, isPresent })
  }

  close(session: Session, isWillDropped: boolean): Promise<void> {
    const name = session.clientIdentifier
    const stored = this.#sessions.get(name)
    if (stored?.session !== session) return Promise.resolve()
    const now = Date.now()
    if (isWillDropped) stored.will = undefined
    const delaySeconds = Math.min(stored.will?.delaySeconds ?? 0, session.expirySeconds)
    if (delaySeconds === 0) this.#sendWill(stored)
    else stored.willAtMs = now + delaySeconds * 1000
    if (!session.isPersistent) this.#drop(name, stored)
    else if (session.expirySeconds < FOR_EVER) stored.endsAtMs = now + session.expirySeconds * 1000
    return Promise.resolve()
  }

  /** It knows no topics of devices. */
  requireKept(): Promise<void> {
    return Promise.resolve()
  }

  subscriptionRoom(): Promise<number> {
    return Promise.resolve(Infinity)
  }

  subscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void> {
    for (const subscription of subscriptions) {
      const before = session.subscriptions.get(subscription.filter)
      if (before !== undefined) this.#remove(before)
      session.subscriptions.set(subscription.filter, subscription)
      this.#streams.add(subscription)
      this.#subscriptionCount++
    }
    return Promise.resolve()
  }

  unsubscribe(_session: Session, subscriptions: readonly Subscription[]): Promise<void> {
    for (const subscription of subscriptions) this.#remove(subscription)
    return Promise.resolve()
  }

  release(): undefined {}

  remember(): undefined {}

  tick(): void {
    const now = Date.now()
    for (const [name, stored] of this.#sessions) {
      if (stored.willAtMs !== undefined && now >= stored.willAtMs) this.#sendWill(stored)
      if (stored.endsAtMs !== undefined && now >= stored.endsAtMs) {
        this.#sendWill(stored)
        this.#drop(name, stored)
      }
    }
  }

  counts(): { sessions: number; subscriptions: number } {
    return { sessions: this.#sessions.size, subscriptions: this.#subscriptionCount }
  }

  stop(): Promise<void> {
    return Promise.resolve()
  }

  #retain(topic: string, applicationMessage: ApplicationMessage): void {
    this.#retained.delete(topic)
    if (applicationMessage.facts.payload.length > 0) this.#retained.set(topic, applicationMessage)
    for (const [oldest] of this.#retained) {
      if (this.#retained.size <= MAX_STORED) break
      this.#retained.delete(oldest)
    }
  }

  #sendWill(stored: StoredSession): void {
    const { will } = stored
    stored.will = undefined
    stored.willAtMs = undefined
    if (will === undefined) return
    const { target, payload, qos, retain, properties } = will
    this.publish({ target, payload, qos, retain, properties, session: undefined, packetId: 0 })
  }

  #drop(name: string, stored: StoredSession): void {
    for (const subscription of stored.session.subscriptions.values()) this.#remove(subscription)
    this.#sessions.delete(name)
  }

  #remove(subscription: Subscription): void {
    const { session, filter } = subscription
    if (session.subscriptions.get(filter) !== subscription) return
    session.subscriptions.delete(filter)
    this.#streams.delete(subscription)
    this.#subscriptionCount--
  }

  #renew({ clientIdentifier, connect, expirySeconds }: OpenRequest, before: StoredSession | undefined): Session {
    const key = before?.session.key ?? this.#nextKey++
    const options = { key, epoch: 0, identity: FREE, clientIdentifier, expirySeconds, ...roleOf(connect) }
    const session = new Session(options, this.#host)
    if (before === undefined) return session
    for (const outbound of before.session.outbound()) session.restore(outbound)
    for (const packetId of before.session.received) session.received.add(packetId)
    for (const [filter, old] of before.session.subscriptions) {
      this.#streams.delete(old)
      const subscription = { ...old, session }
      session.subscriptions.set(filter, subscription)
      this.#streams.add(subscription)
    }
    return session
  }
}
