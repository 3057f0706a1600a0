/** Converts sessions in memory to rows and back. */
import type { Envelope, LiveMessage, StoredOutbound, StoredSubscription, StoredWill } from '#api/messages/index.ts'
import { ApplicationMessage } from '../application-message.ts'
import { envelopeOf, propertiesOf } from '../envelope.ts'
import type { SessionWill } from '../backend.ts'
import type { Qos } from '../packets/protocol.ts'
import type { Outbound, Subscription } from '../session.ts'
import { subtopicFilterOf } from './topics.ts'

const OPTION = { noLocal: 0x04, retainAsPublished: 0x08 } as const

export function toStoredSubscription(subscription: Subscription, position: string | undefined): StoredSubscription {
  const { filter, streamKey, qos, noLocal, retainAsPublished, retainHandling, identifier, group, levels, device } =
    subscription
  const options =
    qos | (noLocal ? OPTION.noLocal : 0) | (retainAsPublished ? OPTION.retainAsPublished : 0) | (retainHandling << 4)
  return {
    filter,
    channelKey: device === undefined ? streamKey : null,
    options,
    identifier,
    position,
    ...(group === undefined ? {} : { group: { name: group, filter: subtopicFilterOf(levels) } }),
  }
}

export function optionsOf({ options, identifier }: StoredSubscription) {
  return {
    qos: (options & 0x03) as Qos,
    noLocal: (options & OPTION.noLocal) !== 0,
    retainAsPublished: (options & OPTION.retainAsPublished) !== 0,
    retainHandling: ((options >> 4) & 0x03) as 0 | 1 | 2,
    identifier,
  }
}

export function toStoredOutbound(outbound: Outbound): StoredOutbound {
  const { applicationMessage, ordinal, packetId, qos, state, retain, prefix, identifiers, streamKey } = outbound
  const { batchSeq, index, subtopic, payload, envelope } = applicationMessage.facts
  return {
    ordinal,
    // A message that waited to be stored was never sent.
    packetId: state === 'waiting' ? 0 : packetId,
    qos: qos === 2 ? 2 : 1,
    state,
    batchSeq,
    message: index,
    channelKey: streamKey,
    subtopic,
    facts: { prefix, retain, identifiers, envelope, ...(outbound.isShared ? { isShared: true } : {}) },
    payload,
  }
}

/** The stored form after sending: the client may have it, so it is resent with the same identifier [MQTT-4.4.0-1]. */
export function toSentOutbound(outbound: Outbound): StoredOutbound {
  const stored = toStoredOutbound(outbound)
  return { ...stored, packetId: outbound.packetId, state: stored.state === 'waiting' ? 'sent' : stored.state }
}

export function fromStoredOutbound(stored: StoredOutbound): Outbound {
  const { ordinal, packetId, qos, state, batchSeq, message, channelKey, subtopic, facts, payload } = stored
  const applicationMessage = applicationMessageOf({
    subtopic,
    payload,
    envelope: facts.envelope,
    batchSeq,
    index: message,
    qos,
  })
  return {
    applicationMessage,
    qos,
    retain: facts.retain,
    prefix: facts.prefix,
    identifiers: facts.identifiers,
    streamKey: channelKey,
    ordinal,
    packetId,
    state: state === 'done' ? 'released' : state,
    isRepeated: false,
    isShared: facts.isShared === true,
    batch: undefined,
    onAcknowledged: undefined,
    onDropped: undefined,
  }
}

export function toStoredWill(will: SessionWill): StoredWill {
  const { topic, target, payload, qos, retain, properties, delaySeconds } = will
  return {
    topic,
    channelKey: target.streamKey,
    subtopic: target.subtopic,
    payload,
    qos,
    isRetained: retain,
    delaySeconds,
    envelope: envelopeOf({ qos, retain, properties: { ...properties } }, undefined, Date.now()),
  }
}

/** A message of the changelog. */
export function applicationMessageFrom({
  subtopic,
  payload,
  envelope,
  batchSeq,
  index,
}: LiveMessage): ApplicationMessage {
  return applicationMessageOf({ subtopic, payload, envelope, batchSeq, index })
}

/** A message from the database, or of any protocol. */
export function applicationMessageOf(message: {
  subtopic: string
  payload: Buffer
  envelope: Envelope | undefined
  batchSeq: number | undefined
  index: number
  qos?: Qos
}): ApplicationMessage {
  const { subtopic, payload, envelope, batchSeq, index } = message
  return new ApplicationMessage({
    subtopic,
    payload,
    qos: message.qos ?? envelope?.qos ?? 1,
    retain: envelope?.retain === true,
    properties: propertiesOf(envelope),
    expiresAtMs: envelope?.expiresAtMs,
    sender: envelope?.sender,
    envelope,
    batchSeq,
    index,
  })
}
