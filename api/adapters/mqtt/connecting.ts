/** The steps of CONNECT (section 3.1.4): authentication, authorization of the will, opening of the session; then CONNACK. */
import type { DeviceCredentials } from '#api/devices/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import { withDeadline } from '#core/time.ts'
import type { MqttBackend, SessionWill } from './backend.ts'
import type { ConnectPacket } from './packets/connect.ts'
import type { Properties } from './packets/properties.ts'
import { REASON, reasonCodeOf } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import { RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM } from './publishing.ts'
import type { Session } from './session.ts'
import type { Identity } from './targets.ts'

/** How long a session of 3.1 and 3.1.1 without clean session is kept without a connection. */
const PERSISTENT_SECONDS = 7 * 86_400
/** The maximum session expiry; clients of 5.0 receive the reduced value. */
const MAX_EXPIRY_SECONDS = PERSISTENT_SECONDS
/** One and a half times the keep alive of the client [MQTT-3.1.2-22]. */
const KEEP_ALIVE_FACTOR = 1.5
const CONNECT_DEADLINE_MS = 10_000
/** The maximum length of a client identifier; the standards require 23. */
const MAX_IDENTIFIER_LENGTH = 1024

/** The connection that received the CONNECT packet. */
export type ConnectingConnection = {
  readonly address: string
  /** The client of the certificate. */
  readonly certificate: DeviceCredentials | undefined
  readonly isOpen: boolean
  readonly maxIncomingBytes: number
  /** The deadline of the next packet; 0: none. */
  keepAliveMs: number
  receiveMaximum: number
  /**
   * Waits for its turn to open a session; the returned function ends the turn. Rejects when too many of the domain wait, or it takes too
   * long.
   */
  admit(identity: Identity): Promise<() => void>
  /** Closes the connection of the same client and identifier, if there is one [MQTT-3.1.4-3]. */
  takeOver(identity: Identity, clientIdentifier: string): Promise<void>
  /** Releases a session that was opened after the connection closed. */
  abandon(session: Session): void
  refuseConnect(reasonCode: number, reason: string): void
  /** A message of the client is not stored, with the reason. */
  dropped(reason: 'ignored_topic'): void
  /** Logs an internal error. */
  failedToConnect(error: unknown): void
}

export type AcceptedConnect = { session: Session; isPresent: boolean; properties: Readonly<Properties> }

class ConnectRefusal extends Error {
  readonly reasonCode: number

  constructor(reasonCode: number, message: string) {
    super(message)
    this.reasonCode = reasonCode
  }
}

/** Handles a CONNECT packet. Returns undefined after it refuses the connection. */
export async function handleConnect(
  connection: ConnectingConnection,
  packet: ConnectPacket,
  backend: MqttBackend,
): Promise<AcceptedConnect | undefined> {
  try {
    return await withDeadline(accept(connection, packet, backend), CONNECT_DEADLINE_MS, 'connecting')
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

async function accept(
  connection: ConnectingConnection,
  packet: ConnectPacket,
  backend: MqttBackend,
): Promise<AcceptedConnect> {
  const { version, properties } = packet
  if (properties.authenticationMethod !== undefined)
    throw new ConnectRefusal(
      REASON.badAuthenticationMethod,
      'authentication methods are not supported: send user name and password',
    )
  const identifier = identifierOf(packet)
  const identity = await backend.authenticate(packet, connection.certificate)
  const will = await willOf(connection, packet, identity, backend)
  const expirySeconds = expiryOf(packet, identity)
  const { session, isPresent } = await inTurn(connection, identity, async () => {
    await connection.takeOver(identity, identifier)
    return await backend
      .open({
        identity,
        clientIdentifier: identifier,
        connect: packet,
        expirySeconds,
        will,
        address: connection.address,
      })
      .catch((error: unknown) => {
        // The client has reached its limit of sessions (contract section 15, SKEIN_MQTT_SESSIONS_PER_CLIENT).
        if (kindOf(error) === 'unprocessable') throw new ConnectRefusal(REASON.quotaExceeded, (error as Error).message)
        throw error
      })
  })
  if (!connection.isOpen) {
    connection.abandon(session)
    throw new ConnectRefusal(REASON.unspecified, 'the connection was closed')
  }
  connection.keepAliveMs = packet.keepAliveSeconds * 1000 * KEEP_ALIVE_FACTOR
  connection.receiveMaximum = properties.receiveMaximum ?? connection.receiveMaximum
  return {
    session,
    isPresent,
    properties: version === 5 ? offered(connection, packet, identifier, expirySeconds) : {},
  }
}

/** Opens the session of a connection that is still there when its turn comes. */
async function inTurn<T>(connection: ConnectingConnection, identity: Identity, open: () => Promise<T>): Promise<T> {
  const end = await connection.admit(identity).catch((error: unknown) => {
    throw new ConnectRefusal(REASON.serverBusy, (error as Error).message)
  })
  try {
    // A device that has given up meanwhile connects again: its session would only be in the way of that.
    if (!connection.isOpen) throw new ConnectRefusal(REASON.unspecified, 'the connection was closed')
    return await open()
  } finally {
    end()
  }
}

/**
 * The server assigns an identifier to a client without one ([MQTT-3.1.3-6] to [MQTT-3.1.3-8]). MQTT 3.1.1 requires a clean
 * session for this. MQTT 3.1 requires an identifier.
 */
function identifierOf({ version, clientIdentifier, cleanStart }: ConnectPacket): string {
  if (clientIdentifier.length > MAX_IDENTIFIER_LENGTH)
    throw new ConnectRefusal(
      REASON.clientIdentifierNotValid,
      `the client identifier is limited to ${MAX_IDENTIFIER_LENGTH} characters`,
    )
  if (clientIdentifier !== '') return clientIdentifier
  if (version === 3 || (version === 4 && !cleanStart))
    throw new ConnectRefusal(REASON.clientIdentifierNotValid, 'an empty client identifier requires a clean session')
  return newId()
}

/** A will is authorized like a publish, at CONNECT and when it is sent (contract section 7.3). */
async function willOf(
  connection: ConnectingConnection,
  { will }: ConnectPacket,
  identity: Identity,
  backend: MqttBackend,
): Promise<SessionWill | undefined> {
  if (will === undefined) return undefined
  if (will.topic === '' || /[+#]/.test(will.topic))
    throw new ConnectRefusal(REASON.topicNameInvalid, 'the topic of a will must be a topic name')
  if (backend.isIgnored(will.topic)) {
    connection.dropped('ignored_topic')
    return undefined
  }
  const target = await backend.target(identity, will.topic)
  if (target.device !== undefined) throw new ConnectRefusal(REASON.topicNameInvalid, 'a will is a message of a channel')
  return { ...will, target, delaySeconds: will.properties.willDelayInterval ?? 0 }
}

function expiryOf({ version, cleanStart, properties }: ConnectPacket, identity: Identity): number {
  // The credentials do not identify exactly one client: the session ends with the connection.
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
    // The interval is sent only when it differs from the client's request (section 3.2.2.3.2).
    ...(expirySeconds === (properties.sessionExpiryInterval ?? 0) ? {} : { sessionExpiryInterval: expirySeconds }),
    ...(clientIdentifier === '' ? { assignedClientIdentifier: identifier } : {}),
  }
}
