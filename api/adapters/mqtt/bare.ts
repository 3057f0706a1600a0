/**
 * The exchange of the conformance profile: anybody may connect, topics are free, everything is kept in memory. It is for
 * public test suites of the protocol and nothing else (contract section 15).
 */
import { Arrival, forwarded } from './arrival.ts'
import type { Exchange, FilterTarget, Identity, OpenRequest, Publication, SessionWill } from './exchange.ts'
import { REASON } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import type { SessionHost } from './session.ts'
import { Session } from './session.ts'
import { Streams } from './streams.ts'
import type { Subscription } from './subscription.ts'
import { Audience } from './subscription.ts'

const FREE: Identity = { scope: '', ownerKey: 0, domainKey: undefined, credentials: undefined }
/** All topics are of one stream. */
const STREAM = 0
/** Of each kind; beyond, the oldest go. */
const MAX_KEPT = 100_000
const FOR_EVER = 2 ** 32 - 1

type Kept = {
  session: Session
  will: SessionWill | undefined
  /** When the will is due and the session ends; undefined while it is connected. */
  willAtMs: number | undefined
  endsAtMs: number | undefined
}

export function createBareExchange(host: SessionHost): Exchange {
  const streams = new Streams('/')
  const sessions = new Map<string, Kept>()
  const retained = new Map<string, Arrival>()
  let nextKey = 1
  let subscriptionCount = 0

  function publish({ target, payload, qos, retain, properties, session }: Publication): undefined {
    const { messageExpiryInterval } = properties
    const arrival = new Arrival({
      subtopic: target.subtopic,
      payload: Buffer.from(payload),
      qos,
      retain,
      properties: forwarded(properties),
      expiresAtMs: messageExpiryInterval === undefined ? undefined : Date.now() + messageExpiryInterval * 1000,
      sender: session?.key,
      envelope: undefined,
      batchSeq: undefined,
      index: 0,
    })
    if (retain) {
      retained.delete(target.subtopic)
      if (payload.length > 0) retained.set(target.subtopic, arrival)
      for (const [oldest] of retained) {
        if (retained.size <= MAX_KEPT) break
        retained.delete(oldest)
      }
    }
    streams.deliver(STREAM, arrival)
  }

  function sendWill(kept: Kept): void {
    const { will } = kept
    kept.will = undefined
    kept.willAtMs = undefined
    if (will === undefined) return
    const { target, payload, qos, retain, properties } = will
    publish({ target, payload, qos, retain, properties, session: undefined, packetId: 0 })
  }

  function drop(name: string, kept: Kept): void {
    for (const subscription of kept.session.subscriptions.values()) remove(subscription)
    sessions.delete(name)
  }

  function remove(subscription: Subscription): void {
    const { session, filter } = subscription
    if (session.subscriptions.get(filter) !== subscription) return
    session.subscriptions.delete(filter)
    streams.delete(subscription)
    subscriptionCount--
  }

  function renew(request: OpenRequest, before: Kept | undefined): Session {
    const { clientIdentifier, expirySeconds } = request
    const key = before?.session.key ?? nextKey++
    const session = new Session({ key, epoch: 0, identity: FREE, clientIdentifier, expirySeconds }, host)
    if (before === undefined) return session
    for (const outbound of before.session.outbound()) session.restore(outbound)
    for (const packetId of before.session.received) session.received.add(packetId)
    for (const [filter, old] of before.session.subscriptions) {
      streams.delete(old)
      const subscription = { ...old, session }
      session.subscriptions.set(filter, subscription)
      streams.add(subscription)
    }
    return session
  }

  return {
    authenticate: () => Promise.resolve(FREE),
    recheck: () => Promise.resolve(),
    target(_identity, topic) {
      if (topic.startsWith('$'))
        throw new ProtocolError(REASON.topicNameInvalid, 'topics that begin with $ are not free')
      return { streamKey: STREAM, subtopic: topic, access: undefined }
    },
    filter(_identity, filter): Promise<FilterTarget> {
      const levels = filter.split('/')
      const isWrong = levels.some((level, index) =>
        level.includes('#') ? level !== '#' || index !== levels.length - 1 : level.includes('+') && level !== '+',
      )
      // [MQTT-4.7.1-1], [MQTT-4.7.1-2]
      if (isWrong)
        return Promise.reject(new ProtocolError(REASON.topicFilterInvalid, 'a wildcard must be a whole level'))
      return Promise.resolve({ streamKey: STREAM, levels, prefix: undefined, access: undefined })
    },
    publish,
    sendRetained(subscription) {
      const { session, qos, identifier } = subscription
      const own = new Audience('/')
      own.add(subscription)
      for (const [topic, arrival] of retained) {
        if (own.match(topic).own.length === 0 || arrival.isExpired(Date.now())) continue
        const identifiers = identifier === undefined ? undefined : [identifier]
        session.push(arrival, { qos, retain: true, prefix: undefined, identifiers, streamKey: STREAM }, undefined)
      }
      return Promise.resolve()
    },
    open(request) {
      const name = request.clientIdentifier
      const before = sessions.get(name)
      if (before !== undefined && request.connect.cleanStart) {
        // The session ends, and with it the delay of its will [MQTT-3.1.3-9].
        sendWill(before)
        drop(name, before)
      }
      const isPresent = before !== undefined && !request.connect.cleanStart
      const session = renew(request, isPresent ? before : undefined)
      sessions.set(name, { session, will: request.will, willAtMs: undefined, endsAtMs: undefined })
      return Promise.resolve({ session, isPresent })
    },
    close(session, isWillDropped) {
      const name = session.clientIdentifier
      const kept = sessions.get(name)
      if (kept?.session !== session) return Promise.resolve()
      const now = Date.now()
      if (isWillDropped) kept.will = undefined
      const delaySeconds = Math.min(kept.will?.delaySeconds ?? 0, session.expirySeconds)
      if (delaySeconds === 0) sendWill(kept)
      else kept.willAtMs = now + delaySeconds * 1000
      if (!session.isPersistent) drop(name, kept)
      else if (session.expirySeconds < FOR_EVER) kept.endsAtMs = now + session.expirySeconds * 1000
      return Promise.resolve()
    },
    subscribe(session, subscriptions) {
      for (const subscription of subscriptions) {
        const before = session.subscriptions.get(subscription.filter)
        if (before !== undefined) remove(before)
        session.subscriptions.set(subscription.filter, subscription)
        streams.add(subscription)
        subscriptionCount++
      }
      return Promise.resolve()
    },
    unsubscribe(_session, subscriptions) {
      for (const subscription of subscriptions) remove(subscription)
      return Promise.resolve()
    },
    release: () => undefined,
    remember: () => undefined,
    tick() {
      const now = Date.now()
      for (const [name, kept] of sessions) {
        if (kept.willAtMs !== undefined && now >= kept.willAtMs) sendWill(kept)
        if (kept.endsAtMs !== undefined && now >= kept.endsAtMs) {
          sendWill(kept)
          drop(name, kept)
        }
      }
    },
    counts: () => ({ sessions: sessions.size, subscriptions: subscriptionCount }),
    stop: () => Promise.resolve(),
  }
}
