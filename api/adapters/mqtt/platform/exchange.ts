/** The exchange of the product: clients of the platform, messages in the log before they are acknowledged, sessions as rows. */
import type { DeviceCredentials, MessageAccess, MessageGate } from '#api/devices/index.ts'
import type { CloseSession, LogMark, Messages, SessionStore, SessionStoreOptions } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { Exchange, ExchangeHost, OpenRequest, Publication } from '../exchange.ts'
import type { ConnectPacket } from '../packets/connect.ts'
import type { LogBatch, Outbound, Session, SessionHost, Subscription } from '../session.ts'
import type { FilterTarget, Identity, Target } from '../targets.ts'
import type { Access } from './access.ts'
import { createAccess } from './access.ts'
import { newCursor } from './cursors.ts'
import { DisabledClients } from './disabled-clients.ts'
import { Following } from './following.ts'
import { Groups } from './groups.ts'
import type { Held, HeldSessions } from './held.ts'
import { nameOf, subscriptionsOn } from './held.ts'
import { OffsetTracker } from './offsets.ts'
import { restoreSession, resumeSubscriptions } from './opening.ts'
import { arrivalOf, toSentOutbound, toStoredOutbound, toStoredSubscription, toStoredWill } from './stored-rows.ts'
import type { Storing } from './storing.ts'
import { createStoring } from './storing.ts'
import { subtopicFilterOf } from './topics.ts'

export type PlatformExchangeDeps = {
  gate: MessageGate
  messages: Messages
  logger: Logger
  startStore: (
    options: Omit<SessionStoreOptions, 'database' | 'journal' | 'logger' | 'maxSessionsPerClient'>,
  ) => SessionStore
}

/** The end of a session that could not be written is written again after this. */
const CLOSE_AGAIN_MS = 500
/** A subscriber that is sent many retained messages takes them at its pace. */
const RETAINED_PAUSE_MS = 20

/** Of sessions that are not kept nobody counts. */
const UNCOUNTED: LogBatch = { token: '', pending: 0 }

export class PlatformExchange implements Exchange {
  readonly #messages: Messages
  readonly #logger: Logger
  readonly #host: ExchangeHost
  readonly #sessionHost: SessionHost
  readonly #admission: Access
  readonly #storing: Storing
  readonly #held: HeldSessions = new Map()
  readonly #following: Following
  readonly #groups: Groups
  readonly #offsets: OffsetTracker
  readonly #store: SessionStore
  readonly #disabled: DisabledClients
  #subscriptionCount = 0
  #isStopped = false

  constructor({ gate, messages, logger, startStore }: PlatformExchangeDeps, host: ExchangeHost) {
    this.#messages = messages
    this.#logger = logger
    this.#host = host
    this.#admission = createAccess(gate)
    this.#storing = createStoring({ gate, messages, logger, host })
    this.#following = new Following(messages, host, this.#held)
    this.#groups = new Groups({
      messages,
      host,
      position: () => this.#following.position,
      wake: () => this.#store.wake(),
    })
    this.#offsets = new OffsetTracker(this.#following, this.#groups, this.#held)
    this.#sessionHost = this.#toldBySessions()
    this.#store = startStore({
      sendWill: (will, { clientKey }) => this.#storing.sendWill(will, clientKey),
      onTakeover: (names) => {
        const epochs = new Map(names.map(({ key, epoch }) => [key, epoch]))
        for (const session of this.#held.keys()) {
          if ((epochs.get(session.key) ?? -1) >= session.epoch) host.takenOver(session)
        }
      },
      positions: () => this.#offsets.take(),
      onForgotten: () => {
        // Other nodes may have looked after them meanwhile: they begin again from what lies in their rows.
        const error = new ServiceError('unavailable', 'this node was taken for dead')
        for (const session of this.#held.keys()) host.failed(session, error)
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

  target(identity: Identity, topic: string): Target | Promise<Target> {
    return this.#admission.target(identity, topic)
  }

  filter(identity: Identity, filter: string): Promise<FilterTarget> {
    return this.#admission.filter(identity, filter)
  }

  publish(publication: Publication): Promise<void> {
    return this.#storing.publish(publication)
  }

  async sendRetained({ session, access, levels, prefix, qos, identifier, streamKey }: Subscription): Promise<void> {
    if (access === undefined) return
    const identifiers = identifier === undefined ? undefined : [identifier]
    const options = { qos, retain: true, prefix, identifiers, streamKey }
    for (const kept of await this.#messages.retained(access, subtopicFilterOf(levels))) {
      while (session.isFull && session.outlet !== undefined) await sleep(RETAINED_PAUSE_MS)
      if (session.outlet === undefined) return
      const { subtopic, payload, envelope } = kept
      const facts = { subtopic, payload, envelope, batchSeq: undefined, index: 0, qos: kept.qos }
      session.push(arrivalOf(facts), options, UNCOUNTED)
    }
  }

  async open(request: OpenRequest): Promise<{ session: Session; isPresent: boolean }> {
    const { identity, clientIdentifier, connect, expirySeconds, will, address } = request
    const { ownerKey } = identity
    if (ownerKey === undefined) {
      const unnamed = restoreSession(request, this.#sessionHost)
      this.#held.set(unnamed.session, unnamed)
      return { session: unnamed.session, isPresent: false }
    }
    const opened = await this.#store.open({
      clientKey: ownerKey,
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
    this.#held.set(one.session, one)
    this.#messages.presence.online(ownerKey, 'mqtt')
    try {
      await resumeSubscriptions(one, opened.subscriptions, {
        admission: this.#admission,
        messages: this.#messages,
        store: this.#store,
        following: this.#following,
        groups: this.#groups,
        onSubscribed: () => void this.#subscriptionCount++,
      })
    } catch (error) {
      // It stays as it was for the next connection.
      const { key, epoch, outbound } = opened
      const positions = opened.subscriptions.flatMap(({ filter, position }) =>
        position === undefined ? [] : [{ filter, position }],
      )
      this.#letGo(one)
      await this.#store.close({ key, epoch, expirySeconds, will: undefined, positions, outbound })
      throw error
    }
    return { session: one.session, isPresent: opened.isPresent }
  }

  async close(session: Session, isWillDropped: boolean): Promise<void> {
    const one = this.#held.get(session)
    if (one === undefined) return
    const positions = this.#offsets.atEnd(one)
    using _told = this.#offsets.closing(one)
    const underWay = this.#letGo(one)
    const outbound = session.isPersistent ? underWay.map(toStoredOutbound) : []
    // What stays with the session is done for its groups as soon as that is written.
    using _written = { [Symbol.dispose]: () => this.#groups.kept(underWay) }
    if (session.key === 0) return
    const will = one.will === undefined || isWillDropped ? undefined : toStoredWill(one.will)
    await this.#writeEnd({ ...nameOf(session), expirySeconds: session.expirySeconds, will, positions, outbound })
  }

  async subscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void> {
    const one = this.#held.get(session)
    if (one === undefined) return
    const mark = await this.#begin(
      one,
      subscriptions.filter(({ group }) => group === undefined),
    )
    // Meanwhile its connection may have ended.
    if (!this.#held.has(session)) return
    const replaced: Subscription[] = []
    for (const subscription of subscriptions) {
      const before = session.subscriptions.get(subscription.filter)
      if (before !== undefined) {
        this.#following.delete(before)
        replaced.push(before)
      } else {
        this.#subscriptionCount++
        if (one.clientKey !== 0) this.#messages.presence.subscribed(one.clientKey, 'mqtt')
      }
      session.subscriptions.set(subscription.filter, subscription)
      const cursor = subscription.group === undefined ? one.cursors.get(subscription.streamKey) : undefined
      if (cursor !== undefined && mark !== undefined) this.#following.put(cursor, subscription, mark, before)
    }
    if (session.key !== 0) await this.#keep(one, subscriptions)
    if (!this.#held.has(session)) return
    for (const subscription of subscriptions) if (subscription.group !== undefined) this.#groups.join(subscription)
    for (const subscription of replaced) this.#groups.leave(subscription)
  }

  async unsubscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void> {
    const one = this.#held.get(session)
    if (one === undefined) return
    for (const subscription of subscriptions) {
      const { streamKey, filter } = subscription
      session.subscriptions.delete(filter)
      this.#following.delete(subscription)
      this.#groups.leave(subscription)
      this.#subscriptionCount--
      if (one.clientKey !== 0) this.#messages.presence.unsubscribed(one.clientKey, 'mqtt')
      const cursor = subscription.group === undefined ? one.cursors.get(streamKey) : undefined
      if (cursor === undefined || subscriptionsOn(session, streamKey).length > 0) continue
      one.cursors.delete(streamKey)
      this.#following.leave(cursor)
    }
    const filters = subscriptions.map(({ filter }) => filter)
    if (session.key !== 0) await this.#store.unsubscribe(session, filters)
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

  /** The store looks at wills and ends by itself. */
  tick(): void {}

  counts(): { sessions: number; subscriptions: number } {
    return { sessions: this.#held.size, subscriptions: this.#subscriptionCount }
  }

  /** These entities changed: sessions of clients that are disabled or gone are ended. */
  forget(entityKeys: readonly number[]): void {
    this.#disabled.lookAt(entityKeys)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    this.#following.stop()
    this.#groups.stop()
    this.#disabled.stop()
    await this.#store.stop()
  }

  /** What sessions tell: the server of the connections hears it too. */
  #toldBySessions(): SessionHost {
    return {
      ...this.#host,
      sent: (session) => {
        this.#host.sent(session)
        const { ownerKey } = session.identity
        if (ownerKey !== undefined) this.#messages.presence.delivered(ownerKey, 1)
      },
      filled: (session) => this.#following.filled(session),
      drained: (session) => {
        this.#following.drained(session)
        this.#groups.drained(session)
      },
      completed: (session, outbound) => {
        if (session.isPersistent) this.#held.get(session)?.finished.push(outbound)
      },
    }
  }

  /** The session follows the channels of new subscriptions; what was committed before the mark is not theirs. */
  async #begin(one: Held, subscriptions: readonly Subscription[]): Promise<LogMark | undefined> {
    if (subscriptions.length === 0) return undefined
    const joining: Promise<void>[] = []
    for (const { streamKey, access } of subscriptions) {
      if (one.cursors.has(streamKey)) continue
      const cursor = newCursor(one.session, streamKey, access as MessageAccess, undefined)
      one.cursors.set(streamKey, cursor)
      joining.push(this.#following.begin(cursor))
    }
    const [mark] = await Promise.all([this.#messages.mark(), ...joining])
    return mark
  }

  /** Writes subscriptions down. */
  async #keep(one: Held, subscriptions: readonly Subscription[]): Promise<void> {
    const cursors = subscriptions.map(({ streamKey, group }) =>
      group === undefined ? one.cursors.get(streamKey) : undefined,
    )
    // Where the session stands by itself: the node has perhaps not written down yet where it does.
    const stored = subscriptions.map((subscription, index) => {
      const cursor = cursors[index]
      return toStoredSubscription(subscription, cursor === undefined ? undefined : this.#offsets.of(cursor))
    })
    await this.#store.subscribe(one.session, one.clientKey, stored)
    for (const cursor of cursors) if (cursor !== undefined) cursor.isStored = false
  }

  /** Returns what is under way to it and stays so. */
  #letGo(one: Held): Outbound[] {
    const { session, clientKey } = one
    for (const cursor of one.cursors.values()) this.#following.leave(cursor)
    for (const subscription of session.subscriptions.values()) {
      this.#following.delete(subscription)
      this.#groups.leave(subscription)
    }
    this.#subscriptionCount -= session.subscriptions.size
    this.#held.delete(session)
    if (clientKey !== 0) {
      this.#messages.presence.offline(clientKey, 'mqtt')
      this.#messages.presence.unsubscribed(clientKey, 'mqtt', session.subscriptions.size)
    }
    return this.#groups.handBack(session)
  }

  /** What is under way to the client is known here alone: while the database cannot be written this is tried again. */
  async #writeEnd(end: CloseSession): Promise<void> {
    for (;;) {
      try {
        return await this.#store.close(end)
      } catch (error) {
        const kind = kindOf(error)
        // Another connection has the session, and with it everything that is to be done.
        if (kind === 'conflict') return
        if (this.#isStopped || (kind !== 'unavailable' && kind !== 'timeout')) throw error
        await sleep(CLOSE_AGAIN_MS)
      }
    }
  }
}
