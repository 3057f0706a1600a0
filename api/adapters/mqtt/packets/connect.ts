/** CONNECT (3.1.1 and 5.0 section 3.1) and its answer CONNACK (section 3.2). */
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, readProperties, writeProperties } from './properties.ts'
import type { Qos, ProtocolVersion } from './protocol.ts'
import { REASON, returnCodeOf } from './reason-codes.ts'
import { PacketWriter, ProtocolError, malformed, protocolError } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type Will = {
  topic: string
  payload: Buffer
  qos: Qos
  retain: boolean
  properties: Readonly<Properties>
}

export type ConnectPacket = {
  type: 'connect'
  version: ProtocolVersion
  /** Another broker that forwards messages. */
  isBridge: boolean
  /** Clean session of 3.1 and 3.1.1. */
  cleanStart: boolean
  keepAliveSeconds: number
  clientIdentifier: string
  username: string | undefined
  password: Buffer | undefined
  will: Will | undefined
  properties: Readonly<Properties>
}

const CONNACK = 2
const FLAGS = {
  reserved: 0x01,
  cleanStart: 0x02,
  will: 0x04,
  willRetain: 0x20,
  password: 0x40,
  username: 0x80,
} as const

/** The bit of the protocol level that bridges set (Mosquitto and others); it is not part of the version. */
const BRIDGE = 0x80

/** An unsupported protocol version; the answer has the form that a client of that version knows [MQTT-3.1.2-2]. */
export class UnsupportedVersion extends Error {
  readonly answer: Buffer

  constructor(name: string, level: number) {
    super(`the protocol level ${level} of ${name} is not supported`)
    const isOlder = name === 'MQIsdp' || (level & ~BRIDGE) < 5
    this.answer = formatConnack(isOlder ? 4 : 5, REASON.unsupportedProtocolVersion, false)
  }
}

export function parseConnect(reader: PacketReader, flags: number): ConnectPacket {
  if (flags !== 0) throw malformed('the reserved flags of CONNECT must be 0')
  const { version, isBridge } = readVersion(reader)
  const connectFlags = reader.byte()
  // [MQTT-3.1.2-3]; MQTT 3.1 (section 3.1) does not use the bit.
  if (version > 3 && (connectFlags & FLAGS.reserved) !== 0) throw malformed('the reserved connect flag must be 0')
  const hasWill = (connectFlags & FLAGS.will) !== 0
  const willQos = (connectFlags >> 3) & 0x03
  const willRetain = (connectFlags & FLAGS.willRetain) !== 0
  const hasUsername = (connectFlags & FLAGS.username) !== 0
  const hasPassword = (connectFlags & FLAGS.password) !== 0
  // [MQTT-3.1.2-11] to [MQTT-3.1.2-13]
  if (!hasWill && (willQos !== 0 || willRetain)) throw malformed('will QoS and will retain must be 0 without a will')
  if (willQos > 2) throw malformed('the QoS of a will must be 0, 1 or 2')
  // [MQTT-3.1.2-22] of 3.1.1; 5.0 allows a password alone.
  if (version < 5 && hasPassword && !hasUsername) throw malformed('a password requires a user name')
  const keepAliveSeconds = reader.uint16()
  const properties = version === 5 ? readProperties(reader, 'connect') : NO_PROPERTIES
  if (properties.authenticationData !== undefined && properties.authenticationMethod === undefined)
    throw protocolError('authentication data requires an authentication method')
  const clientIdentifier = reader.text()
  const will = hasWill ? readWill(reader, version, willQos as Qos, willRetain) : undefined
  const username = hasUsername ? reader.text() : undefined
  const password = hasPassword ? reader.binary() : undefined
  reader.requireEnd()
  return {
    type: 'connect',
    version,
    isBridge,
    cleanStart: (connectFlags & FLAGS.cleanStart) !== 0,
    keepAliveSeconds,
    clientIdentifier,
    username,
    password,
    will,
    properties,
  }
}

function readVersion(reader: PacketReader): { version: ProtocolVersion; isBridge: boolean } {
  const name = reader.text()
  const level = reader.byte()
  if (name !== 'MQIsdp' && name !== 'MQTT')
    throw new ProtocolError(REASON.unsupportedProtocolVersion, 'the protocol name must be MQTT')
  const isBridge = (level & BRIDGE) !== 0
  const version = level & ~BRIDGE
  if (name === 'MQIsdp' && version === 3) return { version, isBridge }
  // Bridges of 5.0 use the subscription options of 5.0, and set no bit.
  if (name === 'MQTT' && (version === 4 || (version === 5 && !isBridge))) return { version, isBridge }
  throw new UnsupportedVersion(name, level)
}

function readWill(reader: PacketReader, version: ProtocolVersion, qos: Qos, retain: boolean): Will {
  const properties = version === 5 ? readProperties(reader, 'will') : NO_PROPERTIES
  return { properties, topic: reader.text(), payload: reader.binary(), qos, retain }
}

/** `reasonCode` is of 5.0; older versions get their return code for it. */
export function formatConnack(
  version: ProtocolVersion,
  reasonCode: number,
  sessionPresent: boolean,
  properties: Readonly<Properties> = NO_PROPERTIES,
): Buffer {
  const writer = new PacketWriter().byte(sessionPresent ? 1 : 0)
  if (version === 5) writeProperties(writer.byte(reasonCode), properties)
  else writer.byte(returnCodeOf(reasonCode))
  return writer.packet(CONNACK)
}
