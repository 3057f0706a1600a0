/** PUBLISH (section 3.3), in both directions. */
import { leb128Length, writeLeb128 } from '#core/bytes/index.ts'
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, formatProperties, readProperties } from './properties.ts'
import type { Qos, ProtocolVersion } from './protocol.ts'
import { REASON } from './reason-codes.ts'
import { ProtocolError, malformed, protocolError } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type PublishPacket = {
  type: 'publish'
  /** Empty when a topic alias is used instead. */
  topic: string
  payload: Buffer
  qos: Qos
  dup: boolean
  retain: boolean
  /** 0 with QoS 0. */
  packetId: number
  properties: Readonly<Properties>
}

const PUBLISH = 3
const DUP = 0x08
const RETAIN = 0x01

export function parsePublish(reader: PacketReader, flags: number, version: ProtocolVersion): PublishPacket {
  const qos = (flags >> 1) & 0x03
  // [MQTT-3.3.1-4], [MQTT-3.3.1-2]
  if (qos > 2) throw malformed('the QoS of a message must be 0, 1 or 2')
  const dup = (flags & DUP) !== 0
  if (dup && qos === 0) throw malformed('a message with QoS 0 must not have the DUP flag')
  const topic = reader.text()
  const packetId = qos === 0 ? 0 : reader.packetId()
  const properties = version === 5 ? readProperties(reader, 'publish') : NO_PROPERTIES
  if (topic === '') {
    // [MQTT-4.7.3-1]; an alias may stand for the topic in 5.0 (section 3.3.2.1).
    if (version < 5) throw malformed('a topic name must not be empty')
    if (properties.topicAlias === undefined) throw protocolError('PUBLISH requires a topic name or a topic alias')
  }
  // [MQTT-3.3.2-2]
  if (/[+#]/.test(topic)) throw new ProtocolError(REASON.topicNameInvalid, 'a topic name must not contain wildcards')
  // [MQTT-3.3.4-6]
  if (properties.subscriptionIdentifiers !== undefined)
    throw protocolError('a client must not send a subscription identifier')
  if (
    properties.responseTopic !== undefined &&
    (properties.responseTopic === '' || /[+#]/.test(properties.responseTopic))
  )
    throw protocolError('a response topic must be a topic name')
  const payload = reader.bytes(reader.remaining)
  return { type: 'publish', topic, payload, qos: qos as Qos, dup, retain: (flags & RETAIN) !== 0, packetId, properties }
}

export type OutgoingPublish = {
  topic: string
  payload: Uint8Array
  qos: Qos
  retain: boolean
  properties: Readonly<Properties>
}

/**
 * A message as bytes, with the offset of its packet identifier: a packet for many subscribers is formatted once, and each receives a copy
 * with its own identifier.
 */
export type PublishTemplate = {
  bytes: Buffer
  topic: string
  qos: Qos
  /** The offset of the topic's length. */
  topicAt: number
  packetIdAt: number
  /** The size of the properties of 5.0, without the field of their length. */
  propertyBytes: number
}

export function formatPublish(version: ProtocolVersion, packet: OutgoingPublish): PublishTemplate {
  const { topic, payload, qos, retain } = packet
  const topicBytes = Buffer.byteLength(topic)
  const properties = version === 5 ? formatProperties(packet.properties) : undefined
  const propertyBytes = properties?.length ?? 0
  const lengthBytes = version === 5 ? leb128Length(propertyBytes) : 0
  const remaining = 2 + topicBytes + (qos === 0 ? 0 : 2) + lengthBytes + propertyBytes + payload.length
  const bytes = Buffer.allocUnsafe(1 + leb128Length(remaining) + remaining)
  bytes[0] = (PUBLISH << 4) | (qos << 1) | (retain ? RETAIN : 0)
  let at = writeLeb128(bytes, 1, remaining)
  const topicAt = at
  bytes.writeUInt16BE(topicBytes, at)
  at += 2 + bytes.write(topic, at + 2, 'utf8')
  const packetIdAt = at
  if (qos > 0) at += 2
  if (version === 5) {
    at = writeLeb128(bytes, at, propertyBytes)
    if (properties !== undefined) at += properties.copy(bytes, at)
  }
  bytes.set(payload, at)
  return { bytes, topic, qos, topicAt, packetIdAt, propertyBytes }
}

/** The packet for one receiver. With QoS 0 it is the template itself. */
export function stamp({ bytes, qos, packetIdAt }: PublishTemplate, packetId: number, dup: boolean): Buffer {
  if (qos === 0) return bytes
  const packet = Buffer.allocUnsafe(bytes.length)
  bytes.copy(packet)
  packet[packetIdAt] = packetId >> 8
  packet[packetIdAt + 1] = packetId & 0xff
  if (dup) packet[0] = (packet[0] as number) | DUP
  return packet
}

/** Bytes of a topic alias among the properties. */
const ALIAS_BYTES = 3
const TOPIC_ALIAS = 0x23
/** The length of an empty one. */
const NO_TOPIC = Buffer.alloc(2)

/** Returns the packet of 5.0 for one receiver with a topic alias. It contains the topic only when the alias is new. */
export function stampAliased(
  { bytes, qos, topicAt, packetIdAt, propertyBytes }: PublishTemplate,
  packetId: number,
  dup: boolean,
  alias: { number: number; isNew: boolean },
): Buffer {
  const topic = alias.isNew ? bytes.subarray(topicAt, packetIdAt) : NO_TOPIC
  const idBytes = qos === 0 ? 0 : 2
  const rest = bytes.subarray(packetIdAt + idBytes + leb128Length(propertyBytes))
  const length = propertyBytes + ALIAS_BYTES
  const remaining = topic.length + idBytes + leb128Length(length) + ALIAS_BYTES + rest.length
  const packet = Buffer.allocUnsafe(1 + leb128Length(remaining) + remaining)
  packet[0] = (bytes[0] as number) | (dup ? DUP : 0)
  let at = writeLeb128(packet, 1, remaining)
  at += topic.copy(packet, at)
  if (qos > 0) at = packet.writeUInt16BE(packetId, at)
  at = writeLeb128(packet, at, length)
  at = packet.writeUInt8(TOPIC_ALIAS, at)
  at = packet.writeUInt16BE(alias.number, at)
  rest.copy(packet, at)
  return packet
}
