/** SUBSCRIBE and UNSUBSCRIBE (sections 3.8 and 3.10): each filter has its own result. */
import { kindOf } from '#core/errors/index.ts'
import { createTurns } from '#core/turns.ts'
import type { MqttBackend } from './backend.ts'
import type { ProtocolVersion } from './packets/protocol.ts'
import { REASON, SUBACK_FAILURE, permittedReasonCode, reasonCodeOf } from './packets/reason-codes.ts'
import type { SubscribeFilter, SubscribePacket } from './packets/subscribe.ts'
import { formatSuback } from './packets/subscribe.ts'
import type { UnsubscribePacket } from './packets/unsubscribe.ts'
import { formatUnsuback } from './packets/unsubscribe.ts'
import { ProtocolError } from './packets/wire.ts'
import type { Session, Subscription } from './session.ts'
import { parseShared } from './shared-filter.ts'

/** The limit of one session. */
const MAX_SUBSCRIPTIONS = 1000

/** The connection of the packets. */
export type SubscribingConnection = {
  readonly version: ProtocolVersion
  send(bytes: Buffer): void
  /** A filter was rejected, with the reason. */
  refused(reasonCode: number): void
  /** Sends the retained messages of new subscriptions. */
  sendRetained(subscriptions: readonly Subscription[]): void
}

export async function subscribe(
  connection: SubscribingConnection,
  session: Session,
  backend: MqttBackend,
  packet: SubscribePacket,
): Promise<void> {
  const identifier = packet.properties.subscriptionIdentifiers?.[0]
  const grantedByFilter = new Map<string, Subscription>()
  /** Granted in this packet, and not yet added to the session. */
  let added = 0
  /** The number of subscriptions that the domain may still add. It is read with the first new filter. */
  let room: number | undefined
  const codes: number[] = []
  const turns = createTurns()
  for (const wanted of packet.filters) {
    if (turns.isOver) await turns.next()
    try {
      const isNew = !session.subscriptions.has(wanted.filter) && !grantedByFilter.has(wanted.filter)
      if (isNew && session.subscriptions.size + added >= MAX_SUBSCRIPTIONS)
        throw new ProtocolError(REASON.quotaExceeded, `a session may have ${MAX_SUBSCRIPTIONS} subscriptions`)
      const subscription = await resolve(session, backend, wanted, identifier)
      if (isNew) room ??= await backend.subscriptionRoom(session)
      if (isNew && room !== undefined && added >= room)
        throw new ProtocolError(REASON.quotaExceeded, 'the domain has as many subscriptions as its quota allows')
      // A repeated filter in one packet replaces the first, as in two packets [MQTT-3.8.4-3].
      grantedByFilter.delete(subscription.filter)
      grantedByFilter.set(subscription.filter, subscription)
      if (isNew) added += 1
      codes.push(subscription.qos)
    } catch (error) {
      const reasonCode = error instanceof ProtocolError ? error.reasonCode : reasonCodeOf(kindOf(error))
      if (kindOf(error) === 'internal' && !(error instanceof ProtocolError)) throw error
      connection.refused(reasonCode)
      codes.push(connection.version === 5 ? permittedReasonCode('suback', reasonCode) : SUBACK_FAILURE)
    }
  }
  const granted = [...grantedByFilter.values()]
  const known = new Set(granted.filter(({ filter }) => session.subscriptions.has(filter)))
  if (granted.length > 0) await backend.subscribe(session, granted)
  connection.send(formatSuback(connection.version, packet.packetId, codes))
  const wantsRetained = (subscription: Subscription) =>
    subscription.retainHandling === 0 || (subscription.retainHandling === 1 && !known.has(subscription))
  // Retained messages are never sent for a shared subscription (section 4.8.2).
  connection.sendRetained(granted.filter((one) => one.group === undefined && wantsRetained(one)))
}

async function resolve(
  session: Session,
  backend: MqttBackend,
  wanted: SubscribeFilter,
  identifier: number | undefined,
): Promise<Subscription> {
  const shared = parseShared(wanted.filter)
  if (shared === undefined)
    throw new ProtocolError(REASON.topicFilterInvalid, 'the filter of a shared subscription is malformed')
  const target = await backend.filter(session.identity, shared.topicFilter)
  if (target.device !== undefined) {
    // Each session of a device receives everything about it.
    if (shared.group !== undefined)
      throw new ProtocolError(REASON.topicFilterInvalid, 'a topic of a device cannot be shared')
    await backend.requireKept(session)
    // The service sends again until it is acknowledged, and what is newer replaces what is older: QoS 2 would promise nothing more.
    return { ...wanted, qos: wanted.qos === 0 ? 0 : 1, ...target, ...shared, session, identifier }
  }
  // Versions before 5.0 have no options. A shared subscription cannot exclude own messages [MQTT-3.8.3-4].
  const options = session.isBridge ? { noLocal: shared.group === undefined, retainAsPublished: true } : {}
  return { ...wanted, ...options, ...target, ...shared, session, identifier }
}

export async function unsubscribe(
  connection: SubscribingConnection,
  session: Session,
  backend: MqttBackend,
  packet: UnsubscribePacket,
): Promise<void> {
  const ended = new Set<Subscription>()
  const codes = packet.filters.map((filter) => {
    const subscription = session.subscriptions.get(filter)
    if (subscription === undefined) return REASON.noSubscriptionExisted
    ended.add(subscription)
    return REASON.success
  })
  if (ended.size > 0) await backend.unsubscribe(session, [...ended])
  connection.send(formatUnsuback(connection.version, packet.packetId, codes))
}
