/** DISCONNECT (section 3.14): from the client in every version, from the server in 5.0. */
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, readProperties, writeProperties } from './properties.ts'
import type { ProtocolVersion } from './protocol.ts'
import { REASON } from './reason-codes.ts'
import { PacketWriter, malformed } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type DisconnectPacket = { type: 'disconnect'; reasonCode: number; properties: Readonly<Properties> }

const DISCONNECT = 14

export function parseDisconnect(reader: PacketReader, flags: number, version: ProtocolVersion): DisconnectPacket {
  // [MQTT-3.14.1-1]
  if (flags !== 0) throw malformed('the flags in the fixed header of DISCONNECT must be 0')
  let reasonCode: number = REASON.success
  let properties: Readonly<Properties> = NO_PROPERTIES
  if (version === 5 && !reader.isAtEnd) {
    reasonCode = reader.byte()
    if (!reader.isAtEnd) properties = readProperties(reader, 'disconnect')
  }
  reader.requireEnd()
  return { type: 'disconnect', reasonCode, properties }
}

/** Formats the packet for 5.0. Connections of older versions are closed without it. */
export function formatDisconnect(reasonCode: number, reason?: string): Buffer {
  const writer = new PacketWriter().byte(reasonCode)
  writeProperties(writer, reason === undefined ? NO_PROPERTIES : { reasonString: reason })
  return writer.packet(DISCONNECT)
}
