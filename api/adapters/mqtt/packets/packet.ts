/** Packets that a client may send, by the type in the fixed header (section 2.1.2). */
import type { AcknowledgementPacket } from './acknowledgement.ts'
import { parseAcknowledgement } from './acknowledgement.ts'
import type { AuthPacket } from './auth.ts'
import { parseAuth } from './auth.ts'
import type { ConnectPacket } from './connect.ts'
import { parseConnect } from './connect.ts'
import type { DisconnectPacket } from './disconnect.ts'
import { parseDisconnect } from './disconnect.ts'
import type { PingPacket } from './ping.ts'
import { parsePing } from './ping.ts'
import type { ProtocolVersion } from './protocol.ts'
import type { PublishPacket } from './publish.ts'
import { parsePublish } from './publish.ts'
import type { SubscribePacket } from './subscribe.ts'
import { parseSubscribe } from './subscribe.ts'
import type { UnsubscribePacket } from './unsubscribe.ts'
import { parseUnsubscribe } from './unsubscribe.ts'
import { PacketReader, malformed, protocolError } from './wire.ts'

export type Packet =
  | ConnectPacket
  | PublishPacket
  | AcknowledgementPacket
  | SubscribePacket
  | UnsubscribePacket
  | PingPacket
  | DisconnectPacket
  | AuthPacket

/**
 * Parses a packet. `first` is the first byte of the fixed header. The remaining bytes are between `start` and `end`. `version` is
 * the version in the CONNECT packet. Before that packet it is undefined, and every other packet is an error [MQTT-3.1.0-1]. Throws
 * `ProtocolError`, or `UnsupportedVersion` for a CONNECT with an unsupported version.
 */
export function parsePacket(
  first: number,
  bytes: Buffer,
  start: number,
  end: number,
  version: ProtocolVersion | undefined,
): Packet {
  const type = first >> 4
  const flags = first & 0x0f
  const reader = new PacketReader(bytes, start, end)
  if (version === undefined) {
    if (type !== 1) throw protocolError('the first packet must be CONNECT')
    return parseConnect(reader, flags)
  }
  switch (type) {
    case 3:
      return parsePublish(reader, flags, version)
    case 4:
      return parseAcknowledgement('puback', reader, flags, version)
    case 5:
      return parseAcknowledgement('pubrec', reader, flags, version)
    case 6:
      return parseAcknowledgement('pubrel', reader, flags, version)
    case 7:
      return parseAcknowledgement('pubcomp', reader, flags, version)
    case 8:
      return parseSubscribe(reader, flags, version)
    case 10:
      return parseUnsubscribe(reader, flags, version)
    case 12:
      return parsePing(reader, flags)
    case 14:
      return parseDisconnect(reader, flags, version)
    case 15:
      if (version === 5) return parseAuth(reader, flags)
      throw malformed(`packet type ${type} is reserved`)
    case 1:
      // [MQTT-3.1.0-2]
      throw protocolError('CONNECT must be sent only once')
    case 2:
    case 9:
    case 11:
    case 13:
      throw protocolError(`packet type ${type} is sent only by servers`)
    default:
      throw malformed(`packet type ${type} is reserved`)
  }
}
