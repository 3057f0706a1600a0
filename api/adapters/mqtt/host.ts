/** What a connection needs of the server that has it. */
import type { Logger } from '#core/logging/index.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import type { Connection } from './connection.ts'
import type { Identity } from './exchange.ts'
import type { Packet } from './packets/packet.ts'
import type { Unsettled } from './publishing.ts'
import type { Session } from './session.ts'

export type ConnectionHost = {
  readonly logger: Logger
  /** Of what waits for readers of this process. */
  readonly budget: StreamBudget
  /** A coarse monotonic clock: one reading for all connections. */
  readonly nowMs: number
  /** Largest packet of a client that is known. */
  readonly maxPacketBytes: number
  /** The connection of the same client and identifier is closed, if there is one [MQTT-3.1.4-3]. */
  takeOver(identity: Identity, clientIdentifier: string): Promise<void>
  /** It has its session now; messages of the session that an earlier connection brought may await their commit. */
  accepted(connection: Connection, session: Session): Unsettled
  /** Writes what the connection was given to send, at the latest when this turn is over. */
  flushLater(connection: Connection): void
  closing(connection: Connection): void
  closed(connection: Connection): void
  countPacket(type: Packet['type']): void
  countRefusal(reasonCode: number): void
  countDropped(reason: string): void
  countStored(durationMs: number): void
}
