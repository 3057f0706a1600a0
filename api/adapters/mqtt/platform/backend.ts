/** The backend of the platform: authenticated clients, messages stored before they are acknowledged, sessions in the database. */
import type { DeviceCredentials, ChannelAccess, DeviceTopics, MessageGate } from '#api/devices/index.ts'
import type { CloseSession, LogMark, Messages, SessionStore, SessionStoreOptions } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { MqttBackend, BackendHost, OpenRequest, Publication } from '../backend.ts'
import type { ConnectPacket } from '../packets/connect.ts'
import type { LogBatch, Outbound, Session, SessionHost, Subscription } from '../session.ts'
import type { FilterTarget, Identity, Target } from '../targets.ts'
import type { ConnectionAuthorizer } from './access.ts'
import { createConnectionAuthorizer } from './access.ts'
import { newCursor } from './cursors.ts'
import { DEVICE_STREAM, DeviceSubscriptions } from './device-subscriptions.ts'
import { DisabledClients } from './disabled-clients.ts'
import { SessionDelivery } from './session-delivery.ts'
import { Groups } from './groups.ts'
import type { SessionState, SessionStates } from './session-state.ts'
import { nameOf, subscriptionsOn } from './session-state.ts'
import { OffsetTracker } from './offsets.ts'
import { restoreSession, resumeSubscriptions } from './opening.ts'
import {
  applicationMessageOf,
  toSentOutbound,
  toStoredOutbound,
  toStoredSubscription,
  toStoredWill,
} from './stored-rows.ts'
import type { Storing } from './storing.ts'
import { createStoring } from './storing.ts'
import { isBrokerStatus, subtopicFilterOf } from './topics.ts'

export type PlatformBackendDeps = {
  gate: MessageGate
  /** The topics of devices themselves. */
  topics: DeviceTopics
  messages: Messages
  logger: Logger
  startStore: (
    options: Omit<SessionStoreOptions, 'database' | 'journal' | 'logger' | 'node' | 'maxSessionsPerClient' | 'quotas'>,
  ) => SessionStore
}

/** The delay before a failed write of a session's end is repeated. */
const CLOSE_AGAIN_MS = 500
/** The interval at which many retained messages are sent, so that the subscriber can keep pace. */
const RETAINED_PAUSE_MS = 20

/** The batch of sessions that are not stored. */
const UNCOUNTED: LogBatch = { token: '', pending: 0 }

export class PlatformBackend implements MqttBackend {
  readonly #messages: Messages
  readonly #logger: Logger
  readonly #host: BackendHost
  readonly #sessionHost: SessionHost
  readonly #admission: ConnectionAuthorizer
  readonly #storing: Storing
  readonly #states: SessionStates = new Map()
  readonly #delivery: SessionDelivery
  readonly #groups: Groups
  readonly #topics: DeviceTopics
  readonly #ofDevices: DeviceSubscriptions
  readonly #offsets: OffsetTracker
  readonly #store: SessionStore
  readonly #disabled: DisabledClients
  #subscriptionCount = 0
  #isStopped = false

  constructor({ gate, topics, messages, logger, startStore }: PlatformBackendDeps, host: BackendHost) {
    this.#messages = messages
    this.#logger = logger
    this.#host = host
    this.#admission = createConnectionAuthorizer(gate, topics)
    this.#topics = topics
    this.#ofDevices = new DeviceSubscriptions(topics, host)
    this.#storing = createStoring({ gate, messages, logger, host })
    this.#delivery = new SessionDelivery(messages, host, this.#states)
    this.#groups = new Groups({
      messages,
      host,
      position: () => this.#delivery.position,
      wake: () => this.#store.wake(),
    })
    this.#offsets = new OffsetTracker(this.#delivery, this.#groups, this.#states)
    this.#sessionHost = this.#createSessionHost()
    this.#store = startStore({
      sendWill: (will, { clientKey }) => this.#storing.sendWill(will, clientKey),
      onTakeover: (names) => {
        const epochs = new Map(names.map(({ key, epoch }) => [key, epoch]))
        for (const session of this.#states.keys()) {
          if ((epochs.get(session.key) ?? -1) >= session.epoch) host.takenOver(session)
        }
      },
      positions: () => this.#offsets.take(),
      onDeclaredDead: () => {
        // Other nodes may have handled its sessions: they resume from their rows.
        const error = new ServiceError('unavailable', 'other nodes declared this node dead')
        for (const session of this.#states.keys()) host.failed(session, error)
      },
      wantedGroups: () => this.#groups.wanted(),
      onGroups: (groups) => this.#groups.apply(groups),
    })
    this.#disabled = new DisabledClients(this.#store, logger)
  }

  authenticate(connect: ConnectPacket, certificate: DeviceCredentials | undefined): Promise<Identity> {
    return this.#admission.authenticate(connect, certificate)
  }

  recheck(session: Session): Promise<void> {
    return this.#admission.recheck(session)
  }

  isIgnored(topic: string): boolean {
    return isBrokerStatus(topic)
  }

  target(identity: Identity, topic: string): Target | Promise<Target> {
    return this.#admission.target(identity, topic)
  }

  filter(identity: Identity, filter: string): Promise<FilterTarget> {
    return this.#admission.filter(identity, filter)
  }

  admit({ access, device }: Target, bytes: number, canRefuse: boolean): Promise<void> | undefined {
    const domainKey = device?.device.domainKey ?? access?.domainKey
    return domainKey === undefined ? undefined : this.#messages.rates.admit(domainKey, bytes, canRefuse)
  }

  publish(publication: Publication): Promise<void> {
    const { target, payload, properties } = publication
    if (target.device === undefined) return this.#storing.publish(publication)
    const { device, topic } = target.device
    const { contentType, correlationData } = properties
    // A copy, so that one message does not retain a whole chunk.
    const message = { payload: Buffer.from(payload), contentType, correlationData }
    return this.#topics.get(topic.noun).publish(device, topic.levels, message)
  }

  async sendRetained(subscription: Subscription): Promise<void> {
    const { session, access, levels, prefix, qos, identifier, streamKey, noLocal } = subscription
    if (access === undefined) return
    const identifiers = identifier === undefined ? undefined : [identifier]
    const options = { qos, retain: true, prefix, identifiers, streamKey }
    for (const kept of await this.#messages.retained(access, subtopicFilterOf(levels))) {
      while (session.isFull && session.outlet !== undefined) await sleep(RETAINED_PAUSE_MS)
      if (session.outlet === undefined) return
      const { subtopic, payload, envelope } = kept
      const facts = { subtopic, payload, envelope, batchSeq: undefined, index: 0, qos: kept.qos }
      const message = applicationMessageOf(facts)
      if (!noLocal || !session.isOwn(message)) session.push(message, options, UNCOUNTED)
    }
  }

  async open(request: OpenRequest): Promise<{ session: Session; isPresent: boolean }> {
    const { identity, clientIdentifier, connect, expirySeconds, will, address } = request
    const { ownerKey, domainKey } = identity
    if (ownerKey === undefined || domainKey === undefined) {
      const unnamed = restoreSession(request, this.#sessionHost)
      this.#states.set(unnamed.session, unnamed)
      return { session: unnamed.session, isPresent: false }
    }
    const opened = await this.#store.open({
      clientKey: ownerKey,
      domainKey,
      clientIdentifier,
      isClean: connect.cleanStart,
      version: connect.version,
      address,
      expirySeconds,
      will: will === undefined ? undefined : toStoredWill(will),
    })
    if (opened.endedWill !== undefined) {
      this.#storing
        .sendWill(opened.endedWill, ownerKey)
        .catch((error: unknown) => this.#logger.warn({ err: error }, 'failed to send a will'))
    }
    const one = restoreSession(request, this.#sessionHost, opened)
    this.#states.set(one.session, one)
    this.#messages.presence.online(ownerKey, 'mqtt')
    try {
      await resumeSubscriptions(one, opened.subscriptions, {
        admission: this.#admission,
        messages: this.#messages,
        store: this.#store,
        delivery: this.#delivery,
        groups: this.#groups,
        ofDevices: this.#ofDevices,
        onSubscribed: () => void this.#subscriptionCount++,
      })
    } catch (error) {
      // The stored session stays unchanged for the next connection.
      const { key, epoch, outbound } = opened
      const positions = opened.subscriptions.flatMap(({ filter, position }) =>
        position === undefined ? [] : [{ filter, position }],
      )
      this.#detach(one)
      await this.#store.close({ key, epoch, domainKey, expirySeconds, will: undefined, positions, outbound })
      throw error
    }
    return { session: one.session, isPresent: opened.isPresent }
  }

  async close(session: Session, isWillDropped: boolean): Promise<void> {
    const one = this.#states.get(session)
    if (one === undefined) return
    const positions = this.#offsets.atEnd(one)
    using _told = this.#offsets.closing(one)
    const underWay = this.#detach(one)
    // What a device receives about itself is sent again with the next connection, in its newest form.
    const kept = underWay.filter(({ streamKey }) => streamKey !== DEVICE_STREAM)
    const outbound = session.isPersistent ? kept.map(toStoredOutbound) : []
    // Once the messages in flight are stored with the session, its groups have delivered them.
    using _written = { [Symbol.dispose]: () => this.#groups.kept(underWay) }
    const { key, expirySeconds, identity } = session
    if (key === 0 || identity.domainKey === undefined) return
    const will = one.will === undefined || isWillDropped ? undefined : toStoredWill(one.will)
    const { domainKey } = identity
    await this.#writeEnd({ ...nameOf(session), domainKey, expirySeconds, will, positions, outbound })
  }

  async subscriptionRoom({ key, identity: { domainKey } }: Session): Promise<number> {
    const { quotas } = this.#store
    // Only subscriptions of sessions that are stored are counted.
    if (key === 0 || domainKey === undefined) return Infinity
    await quotas.ready(domainKey, 'mqtt_subscriptions')
    return quotas.room(domainKey, 'mqtt_subscriptions') ?? Infinity
  }

  async requireKept({ key, isPersistent }: Session): Promise<void> {
    if (key === 0 || !isPersistent || (await this.#store.keepsDeviceTopics())) return
    throw new ServiceError('unavailable', 'an older version still runs, which would not keep the subscription')
  }

  async subscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void> {
    const one = this.#states.get(session)
    if (one === undefined) return
    const mark = await this.#begin(
      one,
      subscriptions.filter(({ group, device }) => group === undefined && device === undefined),
    )
    // The connection may have ended meanwhile.
    if (!this.#states.has(session)) return
    const replaced: Subscription[] = []
    for (const subscription of subscriptions) {
      const before = session.subscriptions.get(subscription.filter)
      if (before !== undefined) {
        this.#delivery.delete(before)
        this.#ofDevices.end(before)
        replaced.push(before)
      } else {
        this.#subscriptionCount++
        if (one.clientKey !== 0) this.#messages.presence.subscribed(one.clientKey, 'mqtt')
      }
      session.subscriptions.set(subscription.filter, subscription)
      const cursor = subscription.group === undefined ? one.cursors.get(subscription.streamKey) : undefined
      if (cursor !== undefined && mark !== undefined) this.#delivery.put(cursor, subscription, mark, before)
    }
    if (session.key !== 0) {
      await this.#keep(one, subscriptions)
      this.#countSubscriptions(session, subscriptions.length - replaced.length)
    }
    if (!this.#states.has(session)) return
    for (const subscription of subscriptions) if (subscription.group !== undefined) this.#groups.join(subscription)
    for (const subscription of replaced) this.#groups.leave(subscription)
    for (const subscription of subscriptions) this.#ofDevices.begin(subscription)
  }

  async unsubscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void> {
    const one = this.#states.get(session)
    if (one === undefined) return
    for (const subscription of subscriptions) {
      const { streamKey, filter } = subscription
      session.subscriptions.delete(filter)
      this.#delivery.delete(subscription)
      this.#groups.leave(subscription)
      this.#ofDevices.end(subscription)
      this.#subscriptionCount--
      if (one.clientKey !== 0) this.#messages.presence.unsubscribed(one.clientKey, 'mqtt')
      const cursor = subscription.group === undefined ? one.cursors.get(streamKey) : undefined
      if (cursor === undefined || subscriptionsOn(session, streamKey).length > 0) continue
      one.cursors.delete(streamKey)
      this.#delivery.leave(cursor)
    }
    const filters = subscriptions.map(({ filter }) => filter)
    if (session.key === 0) return
    await this.#store.unsubscribe(session, filters)
    this.#countSubscriptions(session, -filters.length)
  }

  release(session: Session, packetId: number): Promise<void> | undefined {
    return session.isPersistent ? this.#store.release(session, packetId) : undefined
  }

  remember(session: Session, outbound: readonly Outbound[]): Promise<void> | undefined {
    if (session.key === 0) return undefined
    const passed = this.#groups.passedOf(outbound)
    if (session.isPersistent) return this.#store.remember(session, outbound.map(toSentOutbound), passed)
    return passed.length > 0 ? this.#store.remember(session, [], passed) : undefined
  }

  /** The store handles wills and expiry itself. */
  tick(): void {}

  counts(): { sessions: number; subscriptions: number } {
    return { sessions: this.#states.size, subscriptions: this.#subscriptionCount }
  }

  /** Entities changed: ends the sessions of disabled and deleted clients. */
  endDisabledSessions(entityKeys: readonly number[]): void {
    this.#disabled.lookAt(entityKeys)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    this.#delivery.stop()
    this.#groups.stop()
    this.#disabled.stop()
    await this.#store.stop()
  }

  /** The callbacks of sessions, which are forwarded to the server of the connections. */
  #createSessionHost(): SessionHost {
    return {
      ...this.#host,
      sent: (session) => {
        this.#host.sent(session)
        const { ownerKey } = session.identity
        if (ownerKey !== undefined) this.#messages.presence.delivered(ownerKey, 1)
      },
      filled: (session) => this.#delivery.filled(session),
      drained: (session) => {
        this.#delivery.drained(session)
        this.#groups.drained(session)
      },
      completed: (session, outbound) => {
        if (session.isPersistent) this.#states.get(session)?.finished.push(outbound)
      },
    }
  }

  /** The session follows the channels of new subscriptions, except messages that were committed before the mark. */
  async #begin(one: SessionState, subscriptions: readonly Subscription[]): Promise<LogMark | undefined> {
    if (subscriptions.length === 0) return undefined
    const joining: Promise<void>[] = []
    for (const { streamKey, access } of subscriptions) {
      if (one.cursors.has(streamKey)) continue
      const cursor = newCursor(one.session, streamKey, access as ChannelAccess, undefined)
      one.cursors.set(streamKey, cursor)
      joining.push(this.#delivery.begin(cursor))
    }
    const [mark] = await Promise.all([this.#messages.mark(), ...joining])
    return mark
  }

  #countSubscriptions({ identity: { domainKey } }: Session, change: number): void {
    if (domainKey !== undefined) this.#store.quotas.add(domainKey, 'mqtt_subscriptions', change)
  }

  /** Stores subscriptions. */
  async #keep(one: SessionState, subscriptions: readonly Subscription[]): Promise<void> {
    const cursors = subscriptions.map(({ streamKey, group }) =>
      group === undefined ? one.cursors.get(streamKey) : undefined,
    )
    // The session's own position: the node's position may not be stored yet.
    const stored = subscriptions.map((subscription, index) => {
      const cursor = cursors[index]
      return toStoredSubscription(subscription, cursor === undefined ? undefined : this.#offsets.of(cursor))
    })
    await this.#store.subscribe(one.session, one.clientKey, stored)
    for (const cursor of cursors) if (cursor !== undefined) cursor.isStored = false
  }

  /** Returns the messages in flight that stay with the session. */
  #detach(one: SessionState): Outbound[] {
    const { session, clientKey } = one
    for (const cursor of one.cursors.values()) this.#delivery.leave(cursor)
    for (const subscription of session.subscriptions.values()) {
      this.#delivery.delete(subscription)
      this.#groups.leave(subscription)
    }
    this.#ofDevices.endAll(session)
    this.#subscriptionCount -= session.subscriptions.size
    this.#states.delete(session)
    if (clientKey !== 0) {
      this.#messages.presence.offline(clientKey, 'mqtt')
      this.#messages.presence.unsubscribed(clientKey, 'mqtt', session.subscriptions.size)
    }
    return this.#groups.handBack(session)
  }

  /** Messages in flight are known only here, so the write is repeated while the database is unavailable. */
  async #writeEnd(end: CloseSession): Promise<void> {
    for (;;) {
      try {
        return await this.#store.close(end)
      } catch (error) {
        const kind = kindOf(error)
        // Another connection has taken over the session.
        if (kind === 'conflict') return
        if (this.#isStopped || (kind !== 'unavailable' && kind !== 'timeout')) throw error
        await sleep(CLOSE_AGAIN_MS)
      }
    }
  }
}
