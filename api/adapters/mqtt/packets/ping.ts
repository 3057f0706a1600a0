/** PINGREQ and PINGRESP (sections 3.12 and 3.13). */
import { malformed } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type PingPacket = { type: 'pingreq' }

const PINGREQ: PingPacket = { type: 'pingreq' }

export function parsePing(reader: PacketReader, flags: number): PingPacket {
  if (flags !== 0) throw malformed('the flags in the fixed header of PINGREQ must be 0')
  reader.requireEnd()
  return PINGREQ
}

export const PINGRESP: Buffer = Buffer.from([0xd0, 0])
