/** UNSUBSCRIBE (section 3.10) and its answer UNSUBACK (section 3.11). */
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, readProperties } from './properties.ts'
import type { ProtocolVersion } from './protocol.ts'
import { formatCodes } from './subscribe.ts'
import { PacketWriter, malformed } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type UnsubscribePacket = {
  type: 'unsubscribe'
  packetId: number
  filters: string[]
  properties: Readonly<Properties>
}

const UNSUBACK = 11
const RESERVED_FLAGS = 0x02

export function parseUnsubscribe(reader: PacketReader, flags: number, version: ProtocolVersion): UnsubscribePacket {
  // [MQTT-3.10.1-1]
  if (flags !== RESERVED_FLAGS) throw malformed('the flags in the fixed header of UNSUBSCRIBE must be 2')
  const packetId = reader.packetId()
  const properties = version === 5 ? readProperties(reader, 'unsubscribe') : NO_PROPERTIES
  const filters: string[] = []
  // [MQTT-3.10.3-2]
  do {
    const filter = reader.text()
    if (filter === '') throw malformed('a topic filter must not be empty')
    filters.push(filter)
  } while (!reader.isAtEnd)
  return { type: 'unsubscribe', packetId, filters, properties }
}

/** Older versions have no codes. */
export function formatUnsuback(version: ProtocolVersion, packetId: number, codes: readonly number[]): Buffer {
  if (version === 5) return formatCodes(UNSUBACK, version, packetId, codes)
  return new PacketWriter().uint16(packetId).packet(UNSUBACK)
}
