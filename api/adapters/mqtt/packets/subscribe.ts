/** SUBSCRIBE (section 3.8) and its answer SUBACK (section 3.9). */
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, readProperties } from './properties.ts'
import type { Qos, ProtocolVersion } from './protocol.ts'
import { PacketWriter, malformed, protocolError } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type SubscribeFilter = {
  /** The filter as the client wrote it, `$share/…` included. */
  filter: string
  qos: Qos
  noLocal: boolean
  retainAsPublished: boolean
  /** 0: send retained messages; 1: only for a new subscription; 2: do not (section 3.8.3.1). */
  retainHandling: 0 | 1 | 2
}

export type SubscribePacket = {
  type: 'subscribe'
  packetId: number
  filters: SubscribeFilter[]
  properties: Readonly<Properties>
}

const SUBACK = 9
const RESERVED_FLAGS = 0x02

export function parseSubscribe(reader: PacketReader, flags: number, version: ProtocolVersion): SubscribePacket {
  // [MQTT-3.8.1-1]
  if (flags !== RESERVED_FLAGS) throw malformed('the flags in the fixed header of SUBSCRIBE must be 2')
  const packetId = reader.packetId()
  const properties = version === 5 ? readProperties(reader, 'subscribe') : NO_PROPERTIES
  const filters: SubscribeFilter[] = []
  // [MQTT-3.8.3-2] (5.0), [MQTT-3.8.3-3] (3.1.1)
  do filters.push(readFilter(reader, version))
  while (!reader.isAtEnd)
  return { type: 'subscribe', packetId, filters, properties }
}

function readFilter(reader: PacketReader, version: ProtocolVersion): SubscribeFilter {
  const filter = reader.text()
  if (filter === '') throw malformed('a topic filter must not be empty')
  const options = reader.byte()
  const qos = options & 0x03
  const retainHandling = (options >> 4) & 0x03
  // [MQTT-3.8.3-4] of 3.1.1, [MQTT-3.8.3-5] of 5.0
  if (qos > 2 || (options & (version === 5 ? 0xc0 : 0xfc)) !== 0)
    throw malformed('the reserved bits of the subscription options must be 0')
  if (retainHandling > 2) throw protocolError('retain handling must be 0, 1 or 2')
  const noLocal = (options & 0x04) !== 0
  // [MQTT-3.8.3-4]
  if (noLocal && filter.startsWith('$share/')) throw protocolError('a shared subscription must not set No Local')
  return {
    filter,
    qos: qos as Qos,
    noLocal,
    retainAsPublished: (options & 0x08) !== 0,
    retainHandling: retainHandling as 0 | 1 | 2,
  }
}

export function formatSuback(version: ProtocolVersion, packetId: number, codes: readonly number[]): Buffer {
  return formatCodes(SUBACK, version, packetId, codes)
}

/** Packet identifier, in 5.0 no properties, and a code for each filter. */
export function formatCodes(
  type: number,
  version: ProtocolVersion,
  packetId: number,
  codes: readonly number[],
): Buffer {
  const writer = new PacketWriter().uint16(packetId)
  if (version === 5) writer.byte(0)
  return writer.bytes(Uint8Array.from(codes)).packet(type)
}
