/**
 * What the protocol asks of whoever stands behind it: who connects, what a topic means to him, where messages are stored
 * and sessions kept. The platform is one such exchange, the bare broker of the conformance profile another; every other
 * line of the adapter is the same for both.
 */
import type { DeviceCredentials } from '#api/devices/index.ts'
import type { ConnectPacket, Will } from './packets/connect.ts'
import type { Properties } from './packets/properties.ts'
import type { Qos } from './packets/protocol.ts'
import type { Outbound, Session, SessionHost, Subscription } from './session.ts'
import type { FilterTarget, Identity, Target } from './targets.ts'

/** A message on its way in. */
export type Publication = {
  target: Target
  payload: Buffer
  qos: Qos
  retain: boolean
  properties: Readonly<Properties>
  /** Undefined for a will. */
  session: Session | undefined
  /** Of QoS 2 from a session: it is remembered with the message. */
  packetId: number
}

export type OpenRequest = {
  identity: Identity
  clientIdentifier: string
  connect: ConnectPacket
  /** Seconds that the session outlives its connection; 2^32 - 1: for ever. */
  expirySeconds: number
  will: SessionWill | undefined
  /** Address of the peer, for operators. */
  address: string
}

export type SessionWill = Will & { target: Target; delaySeconds: number }

/** What an exchange tells of sessions. */
export type ExchangeHost = SessionHost & {
  /** Another node has the session now: its connection here is closed. */
  takenOver(session: Session): void
}

export type Exchange = {
  /** Throws `unauthenticated`, or what kept it from finding out. */
  authenticate(connect: ConnectPacket, certificate: DeviceCredentials | undefined): Promise<Identity>
  /** Something changed that the session stands on. Throws when its connection must not go on; ends what it may not follow any more. */
  recheck(session: Session): Promise<void>
  /** May publish to this topic name? At once where it is known. Throws, or rejects with, `forbidden`, `malformed` and others. */
  target(identity: Identity, topic: string): Target | Promise<Target>
  /** May subscribe to this topic filter, without `$share/…`? */
  filter(identity: Identity, filter: string): Promise<FilterTarget>
  /** The message is stored when this resolves; undefined: it was handed on at once. */
  publish(publication: Publication): Promise<void> | undefined
  /** Delivers what is retained for a new subscription. */
  sendRetained(subscription: Subscription): Promise<void>

  /** The session of this identifier with what it holds, or a new one. What it was connected to before is disconnected. */
  open(request: OpenRequest): Promise<{ session: Session; isPresent: boolean }>
  /** Its connection is gone: keeps it for as long as it asked, or ends it; the will is sent unless the client said goodbye. */
  close(session: Session, isWillDropped: boolean): Promise<void>
  /** Delivery begins; resolves when the subscriptions are kept. */
  subscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void>
  unsubscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void>
  /** Forgets the identifier of a received message [MQTT-4.3.3-11]; undefined: nothing has to be written. */
  release(session: Session, packetId: number): Promise<void> | undefined
  /** Remembers what is sent with QoS 2, before it is sent or released; undefined: nothing has to be written. */
  remember(session: Session, outbound: readonly Outbound[]): Promise<void> | undefined
  /** Sends the wills whose delay is over and ends the sessions whose time is; called once a second or so. */
  tick(): void
  /** Sessions and subscriptions that are kept here, for operators. */
  counts(): { sessions: number; subscriptions: number }
  stop(): Promise<void>
}
