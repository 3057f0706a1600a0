/**
 * A session (section 4.1): subscriptions and messages in flight to the client. It outlives its connections. Messages with QoS 1 and 2 are
 * kept until they are acknowledged, in order, within the receive maximum of the client.
 */
import type { DropReason } from '#api/devices/index.ts'
import type { ApplicationMessage } from './application-message.ts'
import { formatAcknowledgement } from './packets/acknowledgement.ts'
import type { ConnectPacket } from './packets/connect.ts'
import type { Qos, ProtocolVersion } from './packets/protocol.ts'
import type { PublishTemplate } from './packets/publish.ts'
import { REASON } from './packets/reason-codes.ts'
import { protocolError } from './packets/wire.ts'
import type { FilterTarget, Identity } from './targets.ts'

/** The limit of unacknowledged messages; a client may set a lower one (receive maximum). */
export const MAX_IN_FLIGHT = 512
/** The limit of their bytes; above it, the client must acknowledge some before it receives more. */
export const MAX_IN_FLIGHT_BYTES = 4 * 1024 * 1024
/** The limit of queued messages; above it, the session falls behind. */
export const MAX_QUEUED = 1000
/** The limit of their bytes. */
export const MAX_QUEUED_BYTES = 4 * 1024 * 1024
const MAX_PACKET_ID = 65_535
/** The length of the sent front of the queue from which it is removed. */
const COMPACT_AT = 256

/** The interface of a session to its connection. */
export type Outlet = {
  readonly version: ProtocolVersion
  readonly receiveMaximum: number
  /** Larger packets are not sent to it [MQTT-3.1.2-24]. */
  readonly maxPacketBytes: number
  /** False while the peer does not read. */
  readonly isWritable: boolean
  send(bytes: Buffer): void
  sendMessage(template: PublishTemplate, packetId: number, isRepeated: boolean): void
}

/** A batch of the changelog; it is completed when none of its messages is in flight. */
export type LogBatch = { token: string; pending: number }

/** Options of the delivery of a message to a session. */
export type DeliveryOptions = {
  /** The maximum QoS. */
  qos: Qos
  retain: boolean
  prefix: string | undefined
  identifiers: readonly number[] | undefined
  streamKey: number
  isShared?: boolean
  /** The client has acknowledged the message; with QoS 0, it was sent. */
  onAcknowledged?: (() => void) | undefined
  /** The message is not sent on this connection. */
  onDropped?: ((reason: DropReason) => void) | undefined
}

export type Outbound = Omit<DeliveryOptions, 'isShared' | 'onAcknowledged' | 'onDropped'> & {
  applicationMessage: ApplicationMessage
  /** Identifies it in its session. */
  ordinal: number
  packetId: number
  /** `waiting` in the queue or to be stored, `sent`, `released`: PUBREL was sent. */
  state: 'waiting' | 'sent' | 'released'
  /** Sent on an earlier connection. */
  isRepeated: boolean
  /** It came through a shared subscription. */
  isShared: boolean
  batch: LogBatch | undefined
  onAcknowledged: (() => void) | undefined
  onDropped: ((reason: DropReason) => void) | undefined
}

export type Subscription = FilterTarget & {
  session: Session
  /** The filter from the client, which identifies the subscription in its session. */
  filter: string
  /** The filter without `$share/<group>/`. */
  topicFilter: string
  /** The group of a shared subscription. */
  group: string | undefined
  qos: Qos
  noLocal: boolean
  retainAsPublished: boolean
  retainHandling: 0 | 1 | 2
  identifier: number | undefined
}

export type SessionHost = {
  /** See `MqttBackend.remember`. */
  remember(session: Session, outbound: readonly Outbound[]): Promise<void> | undefined
  /** A message was not delivered, with the reason. */
  dropped(
    session: Session | undefined,
    reason: 'slow' | 'expired' | 'too_large' | 'will' | 'skipped',
    messages?: number,
  ): void
  /** Counts sent messages. */
  sent(session: Session): void
  /** A write failed; the session must not continue. */
  failed(session: Session, error: unknown): void
  /** The queue is full. */
  filled(session: Session): void
  /** The queue of a session that fell behind is empty. */
  drained(session: Session): void
  /** Changes the bytes that are kept for messages in flight. */
  held(bytes: number): void
  /** Stored messages in flight are completed. */
  completed(session: Session, outbound: Outbound): void
}

export type SessionOptions = {
  /** Permanent key; 0: the session is not stored. */
  key: number
  /** Incremented with each connection: a connection with an older one may write no more. */
  epoch: number
  identity: Identity
  clientIdentifier: string
  expirySeconds: number
  /** Its client is another broker, whose own messages are not sent back to it. */
  isBridge: boolean
  /** The session is stored with its messages, for the subscription option "no local". */
  isSenderKept: boolean
}

/** Only clients of 5.0 and bridges can have the option "no local". */
export function roleOf({ version, isBridge }: ConnectPacket): Pick<SessionOptions, 'isBridge' | 'isSenderKept'> {
  return { isBridge, isSenderKept: version === 5 || isBridge }
}

export class Session {
  readonly key: number
  readonly epoch: number
  readonly identity: Identity
  readonly clientIdentifier: string
  readonly isBridge: boolean
  readonly isSenderKept: boolean
  expirySeconds: number
  readonly subscriptions = new Map<string, Subscription>()
  /** Identifiers of received QoS 2 messages that are stored and not released. */
  readonly received = new Set<number>()
  outlet: Outlet | undefined
  /** The backend sets it while it waits for the queue to become empty. */
  isBehind = false
  readonly #host: SessionHost
  readonly #inFlight = new Map<number, Outbound>()
  #queue: Outbound[] = []
  /** The index of the first queued message. */
  #head = 0
  #queuedBytes = 0
  #inFlightBytes = 0
  #isReleased = false
  /** Called once when a connection has resumed the session. */
  #whenConnected: (() => void)[] | undefined
  /** Messages are being stored: later ones must not overtake them. */
  #isWriting = false
  #lastPacketId = 0
  #nextOrdinal = 1

  constructor(options: SessionOptions, host: SessionHost) {
    this.key = options.key
    this.epoch = options.epoch
    this.identity = options.identity
    this.clientIdentifier = options.clientIdentifier
    this.expirySeconds = options.expirySeconds
    this.isBridge = options.isBridge
    this.isSenderKept = options.isSenderKept && options.key !== 0
    this.#host = host
  }

  get inFlight(): number {
    return this.#inFlight.size
  }

  /** Bytes of messages in flight, which other sessions may share. */
  get keptBytes(): number {
    return this.#isReleased ? 0 : 2 * (this.#queuedBytes + this.#inFlightBytes)
  }

  get queued(): number {
    return this.#queue.length - this.#head
  }

  get isFull(): boolean {
    return this.queued >= MAX_QUEUED || this.#queuedBytes >= MAX_QUEUED_BYTES
  }

  /** Whether it outlives its connection. */
  get isPersistent(): boolean {
    return this.expirySeconds > 0
  }

  /** Messages in flight, oldest first: sent ones, then queued ones. */
  *outbound(): Iterable<Outbound> {
    yield* this.#inFlight.values()
    yield* this.#queue.slice(this.#head)
  }

  /** Restores a message of an earlier connection, in order. */
  restore(outbound: Outbound): void {
    this.#host.held(outbound.applicationMessage.hold())
    if (outbound.packetId === 0) this.#enqueue(outbound)
    else this.#takePlace(outbound)
    this.#lastPacketId = Math.max(this.#lastPacketId, outbound.packetId)
    this.#nextOrdinal = Math.max(this.#nextOrdinal, outbound.ordinal + 1)
  }

  /**
   * Delivers a message that matched these subscriptions once, with their highest QoS.
   */
  deliver(
    applicationMessage: ApplicationMessage,
    subscriptions: readonly Subscription[],
    batch: LogBatch | undefined,
  ): void {
    const [first] = subscriptions
    if (first === undefined) return
    if (subscriptions.length === 1) {
      if (first.noLocal && this.isOwn(applicationMessage)) return
      const { qos, prefix, streamKey, identifier, retainAsPublished } = first
      const identifiers = identifier === undefined ? undefined : [identifier]
      const retain = applicationMessage.facts.retain && retainAsPublished
      this.push(
        applicationMessage,
        { qos, retain, prefix, identifiers, streamKey, isShared: first.group !== undefined },
        batch,
      )
      return
    }
    const wanted = this.isOwn(applicationMessage) ? subscriptions.filter(({ noLocal }) => !noLocal) : subscriptions
    const best = wanted.reduce<Subscription | undefined>(
      (one, other) => (one === undefined || other.qos > one.qos ? other : one),
      undefined,
    )
    if (best === undefined) return
    const identifiers = wanted.flatMap(({ identifier }) => (identifier === undefined ? [] : [identifier]))
    const retain = applicationMessage.facts.retain && wanted.some(({ retainAsPublished }) => retainAsPublished)
    const { qos, prefix, streamKey } = best
    const options = { qos, retain, prefix, identifiers: identifiers.length === 0 ? undefined : identifiers, streamKey }
    this.push(applicationMessage, options, batch)
  }

  /** Whether its client has published the message. */
  isOwn(applicationMessage: ApplicationMessage): boolean {
    return this.key !== 0 && applicationMessage.facts.sender === this.key
  }

  push(applicationMessage: ApplicationMessage, options: DeliveryOptions, batch: LogBatch | undefined): void {
    const { retain, prefix, identifiers, streamKey } = options
    const qos = Math.min(applicationMessage.qos, options.qos) as Qos
    const { outlet } = this
    if (qos === 0) {
      // Without a connection a QoS 0 message is dropped and counted (contract section 7.6).
      if (outlet?.isWritable !== true || this.queued > 0) {
        if (outlet !== undefined) this.#host.dropped(this, 'slow')
        return options.onDropped?.('slow')
      }
      const template = applicationMessage.template(outlet.version, 0, retain, prefix, identifiers)
      if (template.bytes.length > outlet.maxPacketBytes) {
        this.#host.dropped(this, 'too_large')
        return options.onDropped?.('too_large')
      }
      outlet.sendMessage(template, 0, false)
      this.#host.sent(this)
      return options.onAcknowledged?.()
    }
    // Followers that can read the changelog later check `isFull` before; others lose messages without room.
    if (batch === undefined && this.isFull) {
      this.#host.dropped(this, 'slow')
      return options.onDropped?.('slow')
    }
    if (batch !== undefined) batch.pending++
    const outbound: Outbound = {
      applicationMessage,
      qos,
      retain,
      prefix,
      identifiers,
      streamKey,
      ordinal: this.#nextOrdinal++,
      packetId: 0,
      state: 'waiting',
      isRepeated: false,
      isShared: options.isShared === true,
      batch,
      onAcknowledged: options.onAcknowledged,
      onDropped: options.onDropped,
    }
    if (!this.#isReleased) this.#host.held(applicationMessage.hold())
    // The queue is empty, as usual: the message bypasses it.
    if (qos === 1 && !this.isBehind && this.queued === 0 && outlet !== undefined && this.#hasPlace(outlet)) {
      this.#next(outbound, outlet)
      return
    }
    this.#enqueue(outbound)
    if (this.queued === 1) this.pump()
    if (this.isFull) this.#host.filled(this)
  }

  /** The client accepts one more message. */
  #hasPlace(outlet: Outlet): boolean {
    return (
      !this.#isWriting &&
      this.#inFlight.size < Math.min(outlet.receiveMaximum, MAX_IN_FLIGHT) &&
      this.#inFlightBytes < MAX_IN_FLIGHT_BYTES &&
      outlet.isWritable
    )
  }

  /** Adds it to the messages in flight; false when it must be stored before it is sent. */
  #next(outbound: Outbound, outlet: Outlet, isAfterRemembered = false): boolean {
    const template = templateOf(outbound, outlet)
    const reason = this.#unsendable(outbound.applicationMessage, template, outlet)
    if (reason !== undefined) {
      this.#host.dropped(this, reason)
      this.#done(outbound)
      outbound.onDropped?.(reason)
      return true
    }
    outbound.packetId = this.#nextPacketId()
    this.#takePlace(outbound)
    if (outbound.qos === 2 || isAfterRemembered) return false
    this.#send(outbound, outlet, template)
    return true
  }

  #takePlace(outbound: Outbound): void {
    this.#inFlight.set(outbound.packetId, outbound)
    this.#inFlightBytes += outbound.applicationMessage.facts.payload.length
  }

  #enqueue(outbound: Outbound): void {
    this.#queue.push(outbound)
    this.#queuedBytes += outbound.applicationMessage.facts.payload.length
  }

  /** Sends queued messages within the limits of the client. */
  pump(): void {
    const { outlet } = this
    if (outlet === undefined || this.#isWriting) return
    let toRemember: Outbound[] | undefined
    while (this.queued > 0 && this.#hasPlace(outlet)) {
      const outbound = this.#dequeue()
      // A QoS 2 message is stored before it is sent, and later messages must not overtake it.
      if (!this.#next(outbound, outlet, toRemember !== undefined)) (toRemember ??= []).push(outbound)
    }
    if (toRemember !== undefined) this.#sendRemembered(toRemember)
    if (this.isBehind && this.queued === 0) this.#host.drained(this)
  }

  #dequeue(): Outbound {
    const outbound = this.#queue[this.#head++] as Outbound
    this.#queuedBytes -= outbound.applicationMessage.facts.payload.length
    if (this.#head === this.#queue.length) {
      this.#queue = []
      this.#head = 0
    } else if (this.#head >= COMPACT_AT) {
      this.#queue = this.#queue.slice(this.#head)
      this.#head = 0
    }
    return outbound
  }

  /** A crash must not send it twice. */
  #sendRemembered(outbound: readonly Outbound[]): void {
    const send = () => {
      for (const one of outbound) {
        if (this.outlet === undefined) one.state = 'sent'
        else this.#send(one, this.outlet)
      }
    }
    const exactlyOnce = outbound.filter(({ qos }) => qos === 2)
    const written = this.#host.remember(this, exactlyOnce)
    if (written === undefined) return send()
    this.#isWriting = true
    written.then(
      () => {
        this.#isWriting = false
        send()
        this.pump()
      },
      (error: unknown) => this.#host.failed(this, error),
    )
  }

  #unsendable(
    applicationMessage: ApplicationMessage,
    { bytes }: PublishTemplate,
    outlet: Outlet,
  ): 'expired' | 'too_large' | undefined {
    if (applicationMessage.isExpired(Date.now())) return 'expired'
    return bytes.length <= outlet.maxPacketBytes ? undefined : 'too_large'
  }

  #send(outbound: Outbound, outlet: Outlet, template = templateOf(outbound, outlet)): void {
    outbound.state = 'sent'
    outlet.sendMessage(template, outbound.packetId, outbound.isRepeated)
    this.#host.sent(this)
  }

  #nextPacketId(): number {
    do this.#lastPacketId = this.#lastPacketId === MAX_PACKET_ID ? 1 : this.#lastPacketId + 1
    while (this.#inFlight.has(this.#lastPacketId))
    return this.#lastPacketId
  }

  #done(outbound: Outbound): void {
    if (outbound.packetId !== 0 && this.#inFlight.delete(outbound.packetId))
      this.#inFlightBytes -= outbound.applicationMessage.facts.payload.length
    if (!this.#isReleased) this.#host.held(outbound.applicationMessage.release())
    if (outbound.batch !== undefined) outbound.batch.pending--
    if (outbound.qos === 2) this.#host.completed(this, outbound)
  }

  /** Its connection has ended: releases the kept bytes. */
  release(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    let bytes = 0
    for (const { applicationMessage } of this.outbound()) bytes += applicationMessage.release()
    this.#host.held(bytes)
  }

  /** A connection has resumed the session: sends unacknowledged messages again [MQTT-4.4.0-1]. */
  resume(outlet: Outlet): void {
    this.outlet = outlet
    for (const outbound of this.#inFlight.values()) {
      if (outbound.state === 'released') outlet.send(formatAcknowledgement('pubrel', outlet.version, outbound.packetId))
      else if (outbound.state === 'sent') {
        outbound.isRepeated = true
        this.#send(outbound, outlet)
      }
    }
    this.pump()
    const waiting = this.#whenConnected ?? []
    this.#whenConnected = undefined
    for (const begin of waiting) begin()
  }

  /** Calls the function when the session, which has no connection yet, is resumed by one. */
  whenConnected(begin: () => void): void {
    ;(this.#whenConnected ??= []).push(begin)
  }

  /** PUBACK: false for an unknown identifier. Throws when the message awaits another packet. */
  acknowledged(packetId: number): boolean {
    const outbound = this.#inFlight.get(packetId)
    if (outbound === undefined) return false
    if (outbound.qos !== 1) throw protocolError('a message with QoS 2 requires PUBREC instead of PUBACK')
    this.#done(outbound)
    outbound.onAcknowledged?.()
    if (this.queued > 0) this.pump()
    return true
  }

  /** PUBREC. Throws when the message awaits another packet. Answered with PUBREL after the state is stored [MQTT-4.3.3-4]. */
  receivedByPeer(packetId: number, reasonCode: number): void {
    const { outlet } = this
    if (outlet === undefined) return
    const outbound = this.#inFlight.get(packetId)
    if (outbound === undefined) {
      outlet.send(formatAcknowledgement('pubrel', outlet.version, packetId, REASON.packetIdentifierNotFound))
      return
    }
    if (outbound.qos !== 2) throw protocolError('a message with QoS 1 requires PUBACK instead of PUBREC')
    if (reasonCode >= 0x80) {
      // The client rejected it: no PUBREL follows (section 4.3.3).
      this.#done(outbound)
      this.pump()
      return
    }
    const release = () => this.outlet?.send(formatAcknowledgement('pubrel', outlet.version, packetId))
    if (outbound.state === 'released') {
      release()
      return
    }
    outbound.state = 'released'
    const written = this.#host.remember(this, [outbound])
    if (written === undefined) release()
    else written.then(release, (error: unknown) => this.#host.failed(this, error))
  }

  /** PUBCOMP: false for an unknown identifier. Throws when the message awaits another packet. */
  completed(packetId: number): boolean {
    const outbound = this.#inFlight.get(packetId)
    if (outbound === undefined) return false
    if (outbound.qos !== 2 || outbound.state !== 'released')
      throw protocolError('PUBCOMP is accepted only after PUBREL')
    this.#done(outbound)
    if (this.queued > 0) this.pump()
    return true
  }
}

function templateOf(
  { applicationMessage, qos, retain, prefix, identifiers }: Outbound,
  { version }: Outlet,
): PublishTemplate {
  return applicationMessage.template(version, qos, retain, prefix, identifiers)
}
