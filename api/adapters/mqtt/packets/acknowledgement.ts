/** PUBACK, PUBREC, PUBREL and PUBCOMP (sections 3.4 to 3.7): one shape, four steps of QoS 1 and 2. */
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, readProperties } from './properties.ts'
import type { ProtocolVersion } from './protocol.ts'
import { REASON } from './reason-codes.ts'
import { malformed } from './wire.ts'
import type { PacketReader } from './wire.ts'

export const ACKNOWLEDGEMENTS = { puback: 4, pubrec: 5, pubrel: 6, pubcomp: 7 } as const
export type AcknowledgementType = keyof typeof ACKNOWLEDGEMENTS

export type AcknowledgementPacket = {
  type: AcknowledgementType
  packetId: number
  reasonCode: number
  properties: Readonly<Properties>
}

/** PUBREL alone has flags, 0010 [MQTT-3.6.1-1]. */
const flagsOf = (type: AcknowledgementType) => (type === 'pubrel' ? 0x02 : 0)

export function parseAcknowledgement(
  type: AcknowledgementType,
  reader: PacketReader,
  flags: number,
  version: ProtocolVersion,
): AcknowledgementPacket {
  if (flags !== flagsOf(type))
    throw malformed(`the flags in the fixed header of ${type.toUpperCase()} must be ${flagsOf(type)}`)
  const packetId = reader.packetId()
  let reasonCode: number = REASON.success
  let properties: Readonly<Properties> = NO_PROPERTIES
  // 5.0 allows omitting trailing default values (section 3.4.2.1).
  if (version === 5 && !reader.isAtEnd) {
    reasonCode = reader.byte()
    if (!reader.isAtEnd) properties = readProperties(reader, 'acknowledgement')
  }
  reader.requireEnd()
  return { type, packetId, reasonCode, properties }
}

/** The reason code is omitted before 5.0 and when it is success. */
export function formatAcknowledgement(
  type: AcknowledgementType,
  version: ProtocolVersion,
  packetId: number,
  reasonCode: number = REASON.success,
): Buffer {
  const saysMore = version === 5 && reasonCode !== REASON.success
  const packet = Buffer.allocUnsafe(saysMore ? 5 : 4)
  packet[0] = (ACKNOWLEDGEMENTS[type] << 4) | flagsOf(type)
  packet[1] = saysMore ? 3 : 2
  packet[2] = packetId >> 8
  packet[3] = packetId & 0xff
  if (saysMore) packet[4] = reasonCode
  return packet
}
