/**
 * The interface between the protocol and its backend: authentication, the meaning of topics, storage of messages and sessions. The
 * platform is one implementation, the broker of the conformance profile another; the rest of the adapter is shared.
 */
import type { DeviceCredentials } from '#api/devices/index.ts'
import type { ConnectPacket, Will } from './packets/connect.ts'
import type { Properties } from './packets/properties.ts'
import type { Qos } from './packets/protocol.ts'
import type { Outbound, Session, SessionHost, Subscription } from './session.ts'
import type { FilterTarget, Identity, Target } from './targets.ts'

/** An incoming message. */
export type Publication = {
  target: Target
  payload: Buffer
  qos: Qos
  retain: boolean
  properties: Readonly<Properties>
  /** Undefined for a will. */
  session: Session | undefined
  /** The packet identifier of a QoS 2 message of a session. It is stored with the message. */
  packetId: number
}

export type OpenRequest = {
  identity: Identity
  clientIdentifier: string
  connect: ConnectPacket
  /** Seconds for which the session is kept without a connection; 2^32 - 1: unlimited. */
  expirySeconds: number
  will: SessionWill | undefined
  /** Address of the peer, for operators. */
  address: string
}

export type SessionWill = Will & { target: Target; delaySeconds: number }

/** Callbacks of a backend about sessions. */
export type BackendHost = SessionHost & {
  /** Another node has taken over the session: closes its connection here. */
  takenOver(session: Session): void
}

export type MqttBackend = {
  /** Throws `unauthenticated`, or the error that prevented the check. */
  authenticate(connect: ConnectPacket, certificate: DeviceCredentials | undefined): Promise<Identity>
  /** An entity of the session changed. Throws when its connection must be closed; ends subscriptions that are no longer allowed. */
  recheck(session: Session): Promise<void>
  /** Messages to this topic are acknowledged and dropped. */
  isIgnored(topic: string): boolean
  /** Authorizes publishing to the topic; synchronous when cached. Throws, or rejects with, `forbidden`, `malformed` and others. */
  target(identity: Identity, topic: string): Target | Promise<Target>
  /** Authorizes subscribing to the filter, without `$share/…`. */
  filter(identity: Identity, filter: string): Promise<FilterTarget>
  /**
   * Resolves when a message of this size may be published; undefined: now. Rejects with `quota_exceeded` if `canRefuse`; otherwise the
   * message waits for its turn.
   */
  admit(target: Target, bytes: number, canRefuse: boolean): Promise<void> | undefined
  /** Resolves when the message is stored; undefined: it was delivered at once. */
  publish(publication: Publication): Promise<void> | undefined
  /** Delivers the retained messages of a new subscription. */
  sendRetained(subscription: Subscription): Promise<void>

  /** The stored session of this identifier, or a new one. An earlier connection of it is closed. */
  open(request: OpenRequest): Promise<{ session: Session; isPresent: boolean }>
  /** Its connection has ended: keeps the session until it expires, or ends it; sends the will unless the client sent DISCONNECT. */
  close(session: Session, isWillDropped: boolean): Promise<void>
  /** How many more subscriptions the domain of the session may have; Infinity: no limit. */
  subscriptionRoom(session: Session): Promise<number>
  /** Throws `unavailable` when the session would not keep a subscription to topics of its device for now. */
  requireKept(session: Session): Promise<void>
  /** Starts delivery; resolves when the subscriptions are stored. */
  subscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void>
  unsubscribe(session: Session, subscriptions: readonly Subscription[]): Promise<void>
  /** Releases the identifier of a received message [MQTT-4.3.3-11]; undefined: nothing to store. */
  release(session: Session, packetId: number): Promise<void> | undefined
  /** Stores QoS 2 messages before they are sent or released; undefined: nothing to store. */
  remember(session: Session, outbound: readonly Outbound[]): Promise<void> | undefined
  /** Sends due wills and ends expired sessions; called about once a second. */
  tick(): void
  /** The number of sessions and subscriptions here, for operators. */
  counts(): { sessions: number; subscriptions: number }
  stop(): Promise<void>
}
