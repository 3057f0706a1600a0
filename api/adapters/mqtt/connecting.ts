/** CONNECT in its steps (section 3.1.4): who is it, may he have that will, which session is it; then CONNACK. */
import type { DeviceCredentials } from '#api/devices/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { withDeadline } from '#core/time.ts'
import type { Exchange, SessionWill } from './exchange.ts'
import type { ConnectPacket } from './packets/connect.ts'
import type { Properties } from './packets/properties.ts'
import { REASON, reasonCodeOf } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import { RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM } from './publishing.ts'
import type { Session } from './session.ts'
import type { Identity } from './targets.ts'

/** A session of the older versions that is not clean is kept for so long without a connection. */
const PERSISTENT_SECONDS = 7 * 86_400
/** Longer ones are cut to this, and clients of 5.0 are told so. */
const MAX_EXPIRY_SECONDS = PERSISTENT_SECONDS
/** One and a half times what the client promised [MQTT-3.1.2-22]. */
const KEEP_ALIVE_FACTOR = 1.5
const CONNECT_DEADLINE_MS = 10_000
/** Longer identifiers are refused; the standards demand 23. */
const MAX_IDENTIFIER_LENGTH = 1024

/** The connection that CONNECT came over. */
export type ConnectingConnection = {
  readonly address: string
  /** Who a client certificate stands for. */
  readonly certificate: DeviceCredentials | undefined
  readonly isOpen: boolean
  readonly maxIncomingBytes: number
  /** Until the next packet is due; 0: for ever. */
  keepAliveMs: number
  receiveMaximum: number
  /** The connection of the same client and identifier is closed, if there is one [MQTT-3.1.4-3]. */
  takeOver(identity: Identity, clientIdentifier: string): Promise<void>
  /** A session was opened for it, and it has gone meanwhile. */
  abandon(session: Session): void
  refuseConnect(reasonCode: number, reason: string): void
  /** Something failed on this side. */
  failedToConnect(error: unknown): void
}

export type Accepted = { session: Session; isPresent: boolean; properties: Readonly<Properties> }

class ConnectRefusal extends Error {
  readonly reasonCode: number

  constructor(reasonCode: number, message: string) {
    super(message)
    this.reasonCode = reasonCode
  }
}

/** Undefined: refused, and the client was told. */
export async function connect(
  connection: ConnectingConnection,
  packet: ConnectPacket,
  exchange: Exchange,
): Promise<Accepted | undefined> {
  try {
    return await withDeadline(accept(connection, packet, exchange), CONNECT_DEADLINE_MS, 'connecting')
  } catch (error) {
    if (error instanceof ConnectRefusal || error instanceof ProtocolError)
      connection.refuseConnect(error.reasonCode, error.message)
    else {
      const kind = kindOf(error)
      if (kind === 'internal') connection.failedToConnect(error)
      connection.refuseConnect(reasonCodeOf(kind), kind === 'internal' ? 'internal error' : (error as Error).message)
    }
    return undefined
  }
}

async function accept(connection: ConnectingConnection, packet: ConnectPacket, exchange: Exchange): Promise<Accepted> {
  const { version, properties } = packet
  if (properties.authenticationMethod !== undefined)
    throw new ConnectRefusal(REASON.badAuthenticationMethod, 'no authentication method is offered')
  const identifier = identifierOf(packet)
  const identity = await exchange.authenticate(packet, connection.certificate)
  const will = await willOf(packet, identity, exchange)
  const expirySeconds = expiryOf(packet, identity)
  await connection.takeOver(identity, identifier)
  const { session, isPresent } = await exchange
    .open({ identity, clientIdentifier: identifier, connect: packet, expirySeconds, will, address: connection.address })
    .catch((error: unknown) => {
      // As many sessions as the client may have (contract section 15, SKEIN_MQTT_SESSIONS_PER_CLIENT).
      if (kindOf(error) === 'unprocessable') throw new ConnectRefusal(REASON.quotaExceeded, (error as Error).message)
      throw error
    })
  if (!connection.isOpen) {
    connection.abandon(session)
    throw new ConnectRefusal(REASON.unspecified, 'the connection is gone')
  }
  connection.keepAliveMs = packet.keepAliveSeconds * 1000 * KEEP_ALIVE_FACTOR
  connection.receiveMaximum = properties.receiveMaximum ?? connection.receiveMaximum
  return {
    session,
    isPresent,
    properties: version === 5 ? offered(connection, packet, identifier, expirySeconds) : {},
  }
}

/** [MQTT-3.1.3-6] to [MQTT-3.1.3-8]: an empty identifier is given out by the server, before 5.0 for clean sessions only. */
function identifierOf({ version, clientIdentifier, cleanStart }: ConnectPacket): string {
  if (clientIdentifier.length > MAX_IDENTIFIER_LENGTH)
    throw new ConnectRefusal(REASON.clientIdentifierNotValid, 'the client identifier is too long')
  if (clientIdentifier !== '') return clientIdentifier
  if (version === 3 || (version === 4 && !cleanStart))
    throw new ConnectRefusal(REASON.clientIdentifierNotValid, 'an empty client identifier needs a clean session')
  return newId()
}

/** A will is authorised like a publish, at CONNECT and when it is sent (contract section 7.3). */
async function willOf(
  { will }: ConnectPacket,
  identity: Identity,
  exchange: Exchange,
): Promise<SessionWill | undefined> {
  if (will === undefined) return undefined
  if (will.topic === '' || /[+#]/.test(will.topic))
    throw new ConnectRefusal(REASON.topicNameInvalid, 'the topic of a will must be a topic name')
  const target = await exchange.target(identity, will.topic)
  return { ...will, target, delaySeconds: will.properties.willDelayInterval ?? 0 }
}

function expiryOf({ version, cleanStart, properties }: ConnectPacket, identity: Identity): number {
  // Nobody knows yet whose session it is.
  if (identity.ownerKey === undefined) return 0
  if (version === 5) return Math.min(properties.sessionExpiryInterval ?? 0, MAX_EXPIRY_SECONDS)
  return cleanStart ? 0 : PERSISTENT_SECONDS
}

function offered(
  { maxIncomingBytes }: ConnectingConnection,
  { properties, clientIdentifier }: ConnectPacket,
  identifier: string,
  expirySeconds: number,
): Readonly<Properties> {
  return {
    receiveMaximum: RECEIVE_MAXIMUM,
    maximumPacketSize: maxIncomingBytes,
    topicAliasMaximum: TOPIC_ALIAS_MAXIMUM,
    // Only where it is not what the client asked for (section 3.2.2.3.2).
    ...(expirySeconds === (properties.sessionExpiryInterval ?? 0) ? {} : { sessionExpiryInterval: expirySeconds }),
    ...(clientIdentifier === '' ? { assignedClientIdentifier: identifier } : {}),
  }
}
