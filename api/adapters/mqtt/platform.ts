/** The exchange of the product: clients of the platform, messages in the log before they are acknowledged, sessions as rows. */
import type { DeviceCredentials, MessageAccess, MessageGate } from '#api/devices/index.ts'
import type {
  Delivery,
  EndReason,
  IncomingMessage,
  MessageContent,
  Messages,
  OpenedSession,
  SessionStore,
  SessionStoreOptions,
  StoredWill,
} from '#api/messages/index.ts'
import { JSON_TYPE, SENML_JSON, judgeByBytes } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { Cursor } from './cursors.ts'
import { newCursor, settle } from './cursors.ts'
import { envelopeOf } from './envelope.ts'
import type {
  Exchange,
  ExchangeHost,
  FilterTarget,
  Identity,
  OpenRequest,
  Publication,
  SessionWill,
  Target,
} from './exchange.ts'
import type { ConnectPacket } from './packets/connect.ts'
import type { Outbound, Step } from './session.ts'
import { Session } from './session.ts'
import {
  arrivalOf,
  fromStoredOutbound,
  optionsOf,
  toStoredOutbound,
  toStoredSubscription,
  toStoredWill,
} from './stored-session.ts'
import { Streams } from './streams.ts'
import type { Subscription } from './subscription.ts'
import { Audience, parseShared } from './subscription.ts'
import { parseTopicFilter, parseTopicName, subtopicFilterOf } from './topics.ts'

export type PlatformExchangeDeps = {
  gate: MessageGate
  messages: Messages
  logger: Logger
  startStore: (options: Pick<SessionStoreOptions, 'sendWill' | 'onTakeover' | 'positions'>) => SessionStore
}

/** Clients that changed are looked up together. */
const REMOVE_AFTER_MS = 100
/** Newest messages of a channel that a session is handed of those that it missed; older ones are skipped and counted. */
const MAX_MISSED_MESSAGES = 100_000
/** A subscriber that is sent many retained messages takes them at its pace. */
const RETAINED_PAUSE_MS = 20

/** What the exchange knows of a session beside the protocol. */
type Held = {
  session: Session
  clientKey: number
  cursors: Map<number, Cursor>
  will: SessionWill | undefined
  /** Sent exactly once and done, kept until the position has passed them. */
  finished: Outbound[]
  /** Messages of the log that were on their way when the session was taken up: they are not taken again. */
  known: Set<string>
  /** Messages that were too many while it was away, since this was written down. */
  skipped: number
}

type Feed = { opened: Promise<void>; close: (() => void) | undefined; cursors: Set<Cursor> }

/** Of no record. */
const NOTHING: MessageContent = { kind: 'records', records: [] }
/** Of sessions that are not kept nobody counts. */
const UNCOUNTED: Step = { token: '', pending: 0 }

export function createPlatformExchange(
  { gate, messages, logger, startStore }: PlatformExchangeDeps,
  host: ExchangeHost,
): Exchange & { forget(entityKeys: readonly number[]): void } {
  const streams = new Streams('.')
  const feeds = new Map<number, Feed>()
  const held = new Map<Session, Held>()
  /** Sessions that more waits for than should, found while a step was handed out. */
  const filled = new Set<Session>()
  let changedKeys = new Set<number>()
  let removing: NodeJS.Timeout | undefined
  let subscriptionCount = 0
  let isStopped = false
  /** Where everybody stands who is handed nothing more, since the process is stopping. */
  let frozen: string | undefined
  const herePosition = () => frozen ?? messages.position

  const store = startStore({
    sendWill: (will, { clientKey }) => sendWill(will, clientKey),
    onTakeover(names) {
      const epochs = new Map(names.map(({ key, epoch }) => [key, epoch]))
      for (const session of held.keys()) {
        if ((epochs.get(session.key) ?? -1) >= session.epoch) host.takenOver(session)
      }
    },
    positions: takePositions,
  })

  /** Who may do what: a client that is known by its key, one of several by its secret. */
  const accessOf = (credentials: DeviceCredentials, path: { domain?: string | undefined; channel: string }) => ({
    now: (type: 'publish' | 'subscribe') => gate.authorizeNow(credentials, path, type),
    later: (type: 'publish' | 'subscribe') => gate.authorize(credentials, path, type),
  })

  function credentialsOf(identity: Identity): DeviceCredentials {
    if (identity.ownerKey !== undefined) return { kind: 'device', clientKey: identity.ownerKey }
    if (identity.credentials === undefined) throw new ServiceError('unauthenticated', 'no credentials')
    return identity.credentials
  }

  async function identify(credentials: DeviceCredentials): Promise<Identity> {
    const [first, ...more] = await gate.identifyAll(credentials)
    if (first === undefined || more.length > 0)
      return { scope: newId(), ownerKey: undefined, domainKey: undefined, credentials }
    return { scope: `${first.clientKey}`, ownerKey: first.clientKey, domainKey: first.domainKey, credentials }
  }

  function target(identity: Identity, topic: string): Target | Promise<Target> {
    const { path, subtopic } = parseTopicName(topic)
    const { now, later } = accessOf(credentialsOf(identity), path)
    const access = now('publish')
    if (access !== undefined) return { streamKey: access.channelKey, subtopic, access }
    return later('publish').then((found) => ({ streamKey: found.channelKey, subtopic, access: found }))
  }

  async function filter(identity: Identity, topicFilter: string): Promise<FilterTarget> {
    const { path, levels, prefix } = parseTopicFilter(topicFilter)
    const access = await accessOf(credentialsOf(identity), path).later('subscribe')
    return { streamKey: access.channelKey, levels, prefix, access }
  }

  function publish(publication: Publication): Promise<void> {
    const { target: to, payload, qos, retain, properties, session, packetId } = publication
    const access = to.access as MessageAccess
    const sender = session?.outlet?.version === 5 && session.key !== 0 ? session.key : undefined
    const envelope = envelopeOf({ qos, retain, properties }, sender, Date.now())
    const message = incoming(access, to.subtopic, payload, {
      ...(envelope === undefined ? {} : { envelope }),
      ...(retain ? { isRetained: true } : {}),
      ...(qos === 2 && session !== undefined && session.isPersistent
        ? { receipt: { sessionKey: session.key, epoch: session.epoch, packetId } }
        : {}),
    })
    return messages.publish(message)
  }

  /** It is authorised like a publish once more (contract section 7.3); a will that is not allowed any more is dropped. */
  async function sendWill(will: StoredWill, clientKey: number): Promise<void> {
    try {
      const { path, subtopic } = parseTopicName(will.topic)
      const access = await gate.authorize({ kind: 'device', clientKey }, path, 'publish')
      const { envelope, isRetained } = will
      await messages.publish(
        incoming(access, subtopic, will.payload, {
          ...(envelope === undefined ? {} : { envelope }),
          ...(isRetained ? { isRetained: true } : {}),
        }),
      )
    } catch (error) {
      const kind = kindOf(error)
      if (kind === 'unavailable' || kind === 'timeout') throw error
      host.dropped(undefined, 'will')
      if (kind === 'internal') logger.warn({ err: error }, 'a will was not sent')
    }
  }

  function arrivalFrom({ message }: Delivery) {
    const { subtopic, payload, envelope, batchSeq, index } = message
    return arrivalOf({ subtopic, payload, envelope, batchSeq, index })
  }

  /** The step of the log that a session is handed something of. */
  function stepsOf(deliveries: readonly Delivery[], streamKey: number): (session: Session) => Step {
    const steps = new Map<Session, Step>()
    return (session) => {
      if (!session.isPersistent) return UNCOUNTED
      let step = steps.get(session)
      if (step === undefined) {
        step = { token: messages.tokenOf(deliveries.at(-1)), pending: 0 }
        steps.set(session, step)
        const cursor = held.get(session)?.cursors.get(streamKey)
        // Nothing is under way: everything before this step went its whole way, and there the session began.
        if (cursor?.steps.length === 0) cursor.settled = cursor.mode === 'live' ? messages.position : cursor.token
        cursor?.steps.push(step)
      }
      return step
    }
  }

  /** Whoever has too much waiting reads the log for himself later, from behind this step. */
  function pauseFilled(streamKey: number, deliveries: readonly Delivery[]): void {
    for (const session of filled) {
      const cursor = held.get(session)?.cursors.get(streamKey)
      if (cursor?.mode !== 'live') continue
      cursor.token = messages.tokenOf(deliveries.at(-1))
      pause(cursor)
    }
    filled.clear()
  }

  function pause(cursor: Cursor): void {
    const { session, streamKey } = cursor
    for (const subscription of subscriptionsOn(session, streamKey)) streams.delete(subscription)
    leaveFeed(cursor)
    cursor.mode = 'paused'
    session.isBehind = true
  }

  function subscriptionsOn(session: Session, streamKey: number): Subscription[] {
    return [...session.subscriptions.values()].filter((subscription) => subscription.streamKey === streamKey)
  }

  function joinFeed(cursor: Cursor): Promise<void> {
    const { streamKey, access } = cursor
    let feed = feeds.get(streamKey)
    if (feed === undefined) {
      const opening: Feed = { opened: Promise.resolve(), close: undefined, cursors: new Set() }
      feed = opening
      feeds.set(streamKey, opening)
      opening.opened = messages
        .follow({
          access,
          filter: '>',
          authorize: () => Promise.resolve(),
          deliver(deliveries) {
            const stepOf = stepsOf(deliveries, streamKey)
            for (const delivery of deliveries) streams.deliver(streamKey, arrivalFrom(delivery), stepOf)
            if (filled.size > 0) pauseFilled(streamKey, deliveries)
          },
          onEnd: (reason) => endFeed(streamKey, opening, reason),
        })
        .then(({ close }) => {
          opening.close = close
          // Everybody left while it was opening.
          if (feeds.get(streamKey) !== opening) close()
        })
      opening.opened.catch(() => {
        if (feeds.get(streamKey) === opening) feeds.delete(streamKey)
      })
    }
    feed.cursors.add(cursor)
    return feed.opened
  }

  function leaveFeed(cursor: Cursor): void {
    const feed = feeds.get(cursor.streamKey)
    if (feed?.cursors.delete(cursor) !== true || feed.cursors.size > 0) return
    feeds.delete(cursor.streamKey)
    feed.close?.()
  }

  /** The follower cannot go on: its sessions are closed and come back to what they missed. */
  function endFeed(streamKey: number, feed: Feed, reason: EndReason): void {
    if (reason === 'closed' || isStopped) return
    if (reason === 'stopping') {
      // What comes from now on is delivered to nobody: sessions stand here until they are taken up again.
      frozen ??= messages.position
      return
    }
    feeds.delete(streamKey)
    for (const { session } of feed.cursors) host.failed(session, new ServiceError('unavailable', 'fallen behind'))
  }

  const isHeld = (cursor: Cursor) => held.get(cursor.session)?.cursors.get(cursor.streamKey) === cursor

  /** Reads what was missed from where the cursor stands, and goes on with what everybody is handed. */
  async function readOn(cursor: Cursor): Promise<void> {
    const { session, streamKey, access, token } = cursor
    if (token === undefined) return
    cursor.mode = 'own'
    // Where its own follower has caught up, this one stands at the same place.
    await joinFeed(cursor)
    if (!isHeld(cursor)) return leaveFeed(cursor)
    const audience = new Audience('.')
    let isEnded = false
    const { close } = await messages.follow(
      {
        access,
        filter: '>',
        authorize: () => Promise.resolve(),
        deliver(deliveries) {
          if (isEnded) return
          for (const subscription of subscriptionsOn(session, streamKey)) audience.add(subscription)
          const stepOf = stepsOf(deliveries, streamKey)
          for (const delivery of deliveries) deliverOwn(audience, cursor, delivery, stepOf)
          cursor.token = messages.tokenOf(deliveries.at(-1))
          filled.delete(session)
        },
        // More is read when nothing of this waits any more.
        drained: () => untilDrained(cursor),
        onLive() {
          if (isEnded) return
          cursor.mode = 'live'
          for (const subscription of subscriptionsOn(session, streamKey)) streams.add(subscription)
          endOwn(cursor)
          isEnded = true
        },
        backlog: { maxMessages: MAX_MISSED_MESSAGES, onSkipped: (count) => skip(session, count) },
        onEnd(reason) {
          if (reason === 'stopping') frozen ??= messages.position
          else if (reason !== 'closed' && !isStopped)
            host.failed(session, new ServiceError('unavailable', 'fallen behind'))
        },
      },
      token,
    )
    const end = () => {
      isEnded = true
      close()
    }
    if (cursor.mode === 'own' && isHeld(cursor)) cursor.end = end
    else end()
  }

  function endOwn(cursor: Cursor): void {
    cursor.end?.()
    cursor.end = undefined
    cursor.onDrained?.()
    cursor.onDrained = undefined
  }

  function untilDrained(cursor: Cursor): Promise<void> {
    const { session } = cursor
    if (session.queued === 0 || cursor.mode !== 'own' || !isHeld(cursor)) return Promise.resolve()
    session.isBehind = true
    return new Promise((resolve) => (cursor.onDrained = resolve))
  }

  /** It was away for too long: the oldest of what it missed are left out (section 4.1 leaves the bound to the server). */
  function skip(session: Session, count: number): void {
    host.dropped(session, 'skipped', count)
    const one = held.get(session)
    if (one !== undefined) one.skipped += count
  }

  function deliverOwn(
    audience: Audience,
    cursor: Cursor,
    delivery: Delivery,
    stepOf: (session: Session) => Step,
  ): void {
    const { session } = cursor
    const { batchSeq, index, subtopic } = delivery.message
    if (held.get(session)?.known.delete(`${batchSeq} ${index}`) === true) return
    const matches = audience.match(subtopic)
    const arrival = arrivalFrom(delivery)
    for (const { subscriptions } of matches.own) {
      // One that was replaced or ended is still found, and wants nothing.
      const current = subscriptions.filter((one) => session.subscriptions.get(one.filter) === one)
      session.deliver(arrival, current, stepOf(session))
    }
    for (const { members } of matches.shared) {
      const current = members.filter((one) => session.subscriptions.get(one.filter) === one)
      session.deliver(arrival, current, stepOf(session))
    }
  }

  function goOn(session: Session): void {
    session.isBehind = false
    for (const cursor of held.get(session)?.cursors.values() ?? []) {
      const { onDrained } = cursor
      cursor.onDrained = undefined
      if (cursor.mode === 'paused') readOn(cursor).catch((error: unknown) => host.failed(session, error))
      else onDrained?.()
    }
  }

  /** Where the sessions stand now, told to the keeper, which writes what has changed. */
  function takePositions() {
    const moved: { sessionKey: number; filter: string; position: string | undefined }[] = []
    const done: { sessionKey: number; ordinal: number }[] = []
    const skipped: { sessionKey: number; messages: number }[] = []
    for (const one of held.values()) {
      const { session, cursors, finished } = one
      if (!session.isPersistent) continue
      if (one.skipped > 0) skipped.push({ sessionKey: session.key, messages: one.skipped })
      one.skipped = 0
      for (const cursor of cursors.values()) {
        const position = settle(cursor)
        if (position === cursor.stored) continue
        cursor.stored = position
        for (const { filter: name } of subscriptionsOn(session, cursor.streamKey))
          moved.push({ sessionKey: session.key, filter: name, position })
      }
      if (finished.length === 0) continue
      const isUnderWay = (outbound: Outbound) =>
        outbound.step !== undefined && cursors.get(outbound.streamKey)?.steps.includes(outbound.step) === true
      const keep: Outbound[] = []
      for (const outbound of finished) {
        if (isUnderWay(outbound)) keep.push(outbound)
        else done.push({ sessionKey: session.key, ordinal: outbound.ordinal })
      }
      finished.splice(0, finished.length, ...keep)
    }
    return { node: herePosition(), moved, done, skipped }
  }

  function restore(request: OpenRequest, opened: OpenedSession): Held {
    const { identity, clientIdentifier, expirySeconds, will } = request
    const session = new Session(
      { key: opened.key, epoch: opened.epoch, identity, clientIdentifier, expirySeconds },
      sessionHost,
    )
    const known = new Set<string>()
    for (const stored of opened.outbound) {
      if (stored.batchSeq !== undefined) known.add(`${stored.batchSeq} ${stored.message}`)
      session.restore(fromStoredOutbound(stored))
    }
    for (const packetId of opened.received) session.received.add(packetId)
    return {
      session,
      clientKey: identity.ownerKey ?? 0,
      cursors: new Map(),
      will,
      finished: [],
      known,
      skipped: 0,
    }
  }

  /** Subscriptions of an earlier connection, as far as they are still allowed. */
  async function takeUp(one: Held, opened: OpenedSession): Promise<void> {
    const { session } = one
    const lost: string[] = []
    const behind: Cursor[] = []
    for (const stored of opened.subscriptions) {
      const shared = parseShared(stored.filter)
      const found =
        shared === undefined
          ? undefined
          : await filter(session.identity, shared.topicFilter).catch((error: unknown) => {
              if (kindOf(error) === 'unavailable' || kindOf(error) === 'timeout') throw error
              return undefined
            })
      if (found === undefined || shared === undefined) {
        lost.push(stored.filter)
        continue
      }
      const subscription = { ...found, ...shared, ...optionsOf(stored), filter: stored.filter, session }
      session.subscriptions.set(stored.filter, subscription)
      subscriptionCount++
      messages.presence.subscribed(one.clientKey, 'mqtt')
      if (one.cursors.has(found.streamKey)) {
        if (one.cursors.get(found.streamKey)?.mode === 'live') streams.add(subscription)
        continue
      }
      const cursor = newCursor(session, found.streamKey, found.access as MessageAccess, stored.position)
      one.cursors.set(found.streamKey, cursor)
      if (cursor.mode === 'live') {
        streams.add(subscription)
        await joinFeed(cursor)
      } else behind.push(cursor)
    }
    if (lost.length > 0) await store.unsubscribe(session, lost)
    for (const cursor of behind) readOn(cursor).catch((error: unknown) => host.failed(session, error))
  }

  function letGoOf(cursor: Cursor): void {
    leaveFeed(cursor)
    endOwn(cursor)
  }

  function letGo(one: Held): void {
    for (const cursor of one.cursors.values()) letGoOf(cursor)
    for (const subscription of one.session.subscriptions.values()) streams.delete(subscription)
    subscriptionCount -= one.session.subscriptions.size
    held.delete(one.session)
    if (one.clientKey !== 0) {
      messages.presence.offline(one.clientKey, 'mqtt')
      messages.presence.unsubscribed(one.clientKey, 'mqtt', one.session.subscriptions.size)
    }
  }

  /** Where its subscriptions stand once everything under way lies in rows. */
  function positionsAtEnd(one: Held): { filter: string; position: string }[] {
    const here = herePosition()
    return [...one.session.subscriptions.values()].flatMap(({ filter: name, streamKey }) => {
      const cursor = one.cursors.get(streamKey)
      const position = cursor?.mode === 'live' ? (here ?? cursor.token) : cursor?.token
      return position === undefined ? [] : [{ filter: name, position }]
    })
  }

  const sessionHost: ExchangeHost = {
    ...host,
    sent(session) {
      host.sent(session)
      const { ownerKey } = session.identity
      if (ownerKey !== undefined) messages.presence.delivered(ownerKey, 1)
    },
    filled: (session) => void filled.add(session),
    drained: goOn,
    completed: (session, outbound) => {
      if (session.isPersistent) held.get(session)?.finished.push(outbound)
    },
  }

  return {
    async authenticate(connect: ConnectPacket, certificate) {
      const secret = connect.password?.toString('utf8') ?? ''
      // A certificate counts where no secret is given, as with the other protocols.
      if (certificate !== undefined && secret === '') return await identify(certificate)
      if (secret === '') throw new ServiceError('unauthenticated', 'the password must be the secret of a client')
      const clientId = connect.username === undefined || connect.username === '' ? undefined : connect.username
      return await identify({ kind: 'client', secret, clientId })
    },
    async recheck(session) {
      const { identity } = session
      if (identity.credentials === undefined) return
      const clients = await gate.identifyAll(identity.credentials)
      const isSame = ({ clientKey }: { clientKey: number }) => clientKey === identity.ownerKey
      if (identity.ownerKey !== undefined && !clients.some(isSame))
        throw new ServiceError('unauthenticated', 'the client is not what it was')
      for (const subscription of session.subscriptions.values()) await filter(identity, subscription.topicFilter)
    },
    target,
    filter,
    publish,
    async sendRetained(subscription) {
      const { session, access, levels, prefix, qos, identifier, streamKey } = subscription
      if (access === undefined) return
      const identifiers = identifier === undefined ? undefined : [identifier]
      const manner = { qos, retain: true, prefix, identifiers, streamKey }
      for (const kept of await messages.retained(access, subtopicFilterOf(levels))) {
        while (session.isFull && session.outlet !== undefined) await sleep(RETAINED_PAUSE_MS)
        if (session.outlet === undefined) return
        const { subtopic, payload, envelope } = kept
        session.push(
          arrivalOf({ subtopic, payload, envelope, batchSeq: undefined, index: 0, qos: kept.qos }),
          manner,
          UNCOUNTED,
        )
      }
    },
    async open(request) {
      const { identity, clientIdentifier, connect, expirySeconds, will, address } = request
      const { ownerKey } = identity
      if (ownerKey === undefined) {
        const unnamed = { key: 0, epoch: 0, isPresent: false, subscriptions: [], received: [], outbound: [] }
        const one = restore(request, { ...unnamed, endedWill: undefined })
        held.set(one.session, one)
        return { session: one.session, isPresent: false }
      }
      const opened = await store.open({
        clientKey: ownerKey,
        clientIdentifier,
        isClean: connect.cleanStart,
        version: connect.version,
        address,
        expirySeconds,
        will: will === undefined ? undefined : toStoredWill(will),
      })
      if (opened.endedWill !== undefined) {
        sendWill(opened.endedWill, ownerKey).catch((error: unknown) =>
          logger.warn({ err: error }, 'a will was not sent'),
        )
      }
      const one = restore(request, opened)
      held.set(one.session, one)
      messages.presence.online(ownerKey, 'mqtt')
      try {
        await takeUp(one, opened)
      } catch (error) {
        // It stays as it was for the next connection.
        const { key, epoch } = opened
        const positions = opened.subscriptions.flatMap(({ filter: name, position }) =>
          position === undefined ? [] : [{ filter: name, position }],
        )
        letGo(one)
        await store.close({ key, epoch, expirySeconds, will: undefined, positions, outbound: opened.outbound })
        throw error
      }
      return { session: one.session, isPresent: opened.isPresent }
    },
    async close(session, isWillDropped) {
      const one = held.get(session)
      if (one === undefined) return
      const positions = positionsAtEnd(one)
      const outbound = session.isPersistent ? [...session.outbound()].map(toStoredOutbound) : []
      letGo(one)
      if (session.key === 0) return
      const will = one.will === undefined || isWillDropped ? undefined : toStoredWill(one.will)
      const { key, epoch, expirySeconds } = session
      try {
        await store.close({ key, epoch, expirySeconds, will, positions, outbound })
      } catch (error) {
        // Another connection has the session, and with it everything that is to be done.
        if (kindOf(error) !== 'conflict') throw error
      }
    },
    async subscribe(session, subscriptions) {
      const one = held.get(session)
      if (one === undefined) return
      const joining: Promise<void>[] = []
      for (const subscription of subscriptions) {
        const { streamKey, filter: name } = subscription
        const before = session.subscriptions.get(name)
        if (before !== undefined) streams.delete(before)
        else {
          subscriptionCount++
          if (one.clientKey !== 0) messages.presence.subscribed(one.clientKey, 'mqtt')
        }
        session.subscriptions.set(name, subscription)
        let cursor = one.cursors.get(streamKey)
        if (cursor === undefined) {
          cursor = newCursor(session, streamKey, subscription.access as MessageAccess, undefined)
          one.cursors.set(streamKey, cursor)
          joining.push(joinFeed(cursor))
        }
        if (cursor.mode === 'live') streams.add(subscription)
      }
      await Promise.all(joining)
      if (session.key === 0) return
      const stored = subscriptions.map((subscription) => {
        const cursor = one.cursors.get(subscription.streamKey)
        return toStoredSubscription(subscription, cursor?.stored)
      })
      await store.subscribe(session, one.clientKey, stored)
    },
    async unsubscribe(session, subscriptions) {
      const one = held.get(session)
      if (one === undefined) return
      for (const subscription of subscriptions) {
        const { streamKey, filter: name } = subscription
        session.subscriptions.delete(name)
        streams.delete(subscription)
        subscriptionCount--
        if (one.clientKey !== 0) messages.presence.unsubscribed(one.clientKey, 'mqtt')
        const cursor = one.cursors.get(streamKey)
        if (cursor === undefined || subscriptionsOn(session, streamKey).length > 0) continue
        one.cursors.delete(streamKey)
        letGoOf(cursor)
      }
      if (session.key !== 0)
        await store.unsubscribe(
          session,
          subscriptions.map(({ filter: name }) => name),
        )
    },
    release: (session, packetId) => (session.isPersistent ? store.release(session, packetId) : undefined),
    remember: (session, outbound) =>
      session.isPersistent ? store.remember(session, outbound.map(toStoredOutbound)) : undefined,
    tick: () => undefined,
    counts: () => ({ sessions: held.size, subscriptions: subscriptionCount }),
    forget(entityKeys) {
      for (const key of entityKeys) if (key > 0) changedKeys.add(key)
      if (changedKeys.size === 0) return
      removing ??= setTimeout(() => {
        removing = undefined
        const keys = [...changedKeys]
        changedKeys = new Set()
        store
          .removeOfDisabled(keys)
          .catch((error: unknown) => logger.warn({ err: error }, 'sessions of disabled clients were not ended'))
      }, REMOVE_AFTER_MS)
    },
    async stop() {
      isStopped = true
      clearTimeout(removing)
      await store.stop()
    },
  }
}

function incoming(
  access: MessageAccess,
  subtopic: string,
  payload: Buffer,
  more: Partial<IncomingMessage>,
): IncomingMessage {
  const receivedAtSeconds = Date.now() / 1000
  // The bytes of a chunk are not kept for the sake of one message.
  const body = Buffer.from(payload)
  // What only clears what is retained is stored nowhere.
  const content =
    more.isRetained === true && body.length === 0 ? NOTHING : judgeByBytes(body, { subtopic, receivedAtSeconds })
  const contentType =
    content.kind === 'records' ? SENML_JSON : content.kind === 'documents' ? JSON_TYPE : content.contentType
  return {
    access,
    subtopic,
    protocol: 'mqtt',
    receivedAtSeconds,
    content,
    original: { contentType, body },
    ...more,
  }
}
