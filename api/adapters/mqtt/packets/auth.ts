/** AUTH of 5.0 (section 3.15): no authentication method is offered, so it is read only to be refused. */
import type { Properties } from './properties.ts'
import { NO_PROPERTIES, readProperties } from './properties.ts'
import { REASON } from './reason-codes.ts'
import { malformed } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type AuthPacket = { type: 'auth'; reasonCode: number; properties: Readonly<Properties> }

export function parseAuth(reader: PacketReader, flags: number): AuthPacket {
  // [MQTT-3.15.1-1]
  if (flags !== 0) throw malformed('the flags in the fixed header of AUTH must be 0')
  if (reader.isAtEnd) return { type: 'auth', reasonCode: REASON.success, properties: NO_PROPERTIES }
  const reasonCode = reader.byte()
  const properties = reader.isAtEnd ? NO_PROPERTIES : readProperties(reader, 'auth')
  reader.requireEnd()
  return { type: 'auth', reasonCode, properties }
}
