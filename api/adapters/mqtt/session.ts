/**
 * A session (section 4.1): subscriptions, and messages on their way to the client. It outlives its connections; what is sent
 * with QoS 1 and 2 is kept until it is acknowledged, in order, within the receive maximum of the client.
 */
import type { Arrival } from './arrival.ts'
import { formatAcknowledgement } from './packets/acknowledgement.ts'
import type { Qos, Version } from './packets/protocol.ts'
import type { PublishTemplate } from './packets/publish.ts'
import { REASON } from './packets/reason-codes.ts'
import { protocolError } from './packets/wire.ts'
import type { FilterTarget, Identity } from './targets.ts'

/** Messages that are sent and not acknowledged; a client may ask for less (receive maximum). */
export const MAX_IN_FLIGHT = 512
/** Bytes of those; beyond, the client must acknowledge some before it is sent more. */
export const MAX_IN_FLIGHT_BYTES = 4 * 1024 * 1024
/** Messages that wait for a place among those; beyond, the session falls behind. */
export const MAX_QUEUED = 1000
/** Bytes of those. */
export const MAX_QUEUED_BYTES = 4 * 1024 * 1024
const MAX_PACKET_ID = 65_535
/** What has left the queue is cut off when it is so much. */
const COMPACT_AT = 256

/** What a session needs of its connection. */
export type Outlet = {
  readonly version: Version
  readonly receiveMaximum: number
  /** Larger packets are not sent to it [MQTT-3.1.2-24]. */
  readonly maxPacketBytes: number
  /** False while the peer does not read what was sent to it. */
  readonly isWritable: boolean
  send(bytes: Buffer): void
  sendMessage(template: PublishTemplate, packetId: number, isRepeated: boolean): void
}

/** A batch of the message log: what came with it is done when nothing of it is under way. */
export type LogBatch = { token: string; pending: number }

/** How a session wants a message. */
export type DeliveryOptions = {
  /** At most. */
  qos: Qos
  retain: boolean
  prefix: string | undefined
  identifiers: readonly number[] | undefined
  streamKey: number
  isShared?: boolean
}

export type Outbound = Omit<DeliveryOptions, 'isShared'> & {
  arrival: Arrival
  /** Names it in its session. */
  ordinal: number
  packetId: number
  /** `waiting` for its turn or to be written down, `sent`, `released`: PUBREL was sent. */
  state: 'waiting' | 'sent' | 'released'
  /** Sent on an earlier connection. */
  isRepeated: boolean
  /** It came of a shared subscription. */
  isShared: boolean
  batch: LogBatch | undefined
}

export type Subscription = FilterTarget & {
  session: Session
  /** As the client wrote it; names the subscription in its session. */
  filter: string
  /** The same without `$share/<group>/`. */
  topicFilter: string
  /** Of a shared subscription. */
  group: string | undefined
  qos: Qos
  noLocal: boolean
  retainAsPublished: boolean
  retainHandling: 0 | 1 | 2
  identifier: number | undefined
}

export type SessionHost = {
  /** See `Exchange.remember`. */
  remember(session: Session, outbound: readonly Outbound[]): Promise<void> | undefined
  /** A message was not delivered, and why. */
  dropped(
    session: Session | undefined,
    reason: 'slow' | 'expired' | 'too_large' | 'will' | 'skipped',
    messages?: number,
  ): void
  /** So many messages were sent. */
  sent(session: Session): void
  /** Something could not be written; the session must not go on. */
  failed(session: Session, error: unknown): void
  /** More waits than should. */
  filled(session: Session): void
  /** Nothing waits any more in a session that fell behind. */
  drained(session: Session): void
  /** So many bytes more, or fewer, are kept for what is on its way to sessions. */
  held(bytes: number): void
  /** What was remembered for it went its whole way. */
  completed(session: Session, outbound: Outbound): void
}

export type SessionOptions = {
  /** Names it for ever; 0: it is not kept in the database. */
  key: number
  /** Raised with each connection: who has an older one may write no more. */
  epoch: number
  identity: Identity
  clientIdentifier: string
  expirySeconds: number
}

export class Session {
  readonly key: number
  readonly epoch: number
  readonly identity: Identity
  readonly clientIdentifier: string
  expirySeconds: number
  readonly subscriptions = new Map<string, Subscription>()
  /** Identifiers of received QoS 2 messages that are stored and not released. */
  readonly received = new Set<number>()
  outlet: Outlet | undefined
  /** Of the exchange. */
  isBehind = false
  readonly #host: SessionHost
  readonly #inFlight = new Map<number, Outbound>()
  #queue: Outbound[] = []
  /** Those before it have left. */
  #head = 0
  #queuedBytes = 0
  #inFlightBytes = 0
  #isReleased = false
  /** Something is being remembered: what follows must not overtake it. */
  #isWriting = false
  #lastPacketId = 0
  #nextOrdinal = 1

  constructor(options: SessionOptions, host: SessionHost) {
    this.key = options.key
    this.epoch = options.epoch
    this.identity = options.identity
    this.clientIdentifier = options.clientIdentifier
    this.expirySeconds = options.expirySeconds
    this.#host = host
  }

  get inFlight(): number {
    return this.#inFlight.size
  }

  /** Bytes of what is on its way; others may share them. */
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

  /** What is under way, oldest first: what was sent, then what waits. */
  *outbound(): Iterable<Outbound> {
    yield* this.#inFlight.values()
    yield* this.#queue.slice(this.#head)
  }

  /** Takes up what an earlier connection left, in its order. */
  restore(outbound: Outbound): void {
    this.#host.held(outbound.arrival.hold())
    if (outbound.packetId === 0) this.#enqueue(outbound)
    else this.#takePlace(outbound)
    this.#lastPacketId = Math.max(this.#lastPacketId, outbound.packetId)
    this.#nextOrdinal = Math.max(this.#nextOrdinal, outbound.ordinal + 1)
  }

  /**
   * Delivers a message that matched these subscriptions once, with the highest QoS among them.
   */
  deliver(arrival: Arrival, subscriptions: readonly Subscription[], batch: LogBatch | undefined): void {
    const [first] = subscriptions
    if (first === undefined) return
    if (subscriptions.length === 1) {
      if (first.noLocal && this.#isOwn(arrival)) return
      const { qos, prefix, streamKey, identifier, retainAsPublished } = first
      const identifiers = identifier === undefined ? undefined : [identifier]
      const retain = arrival.facts.retain && retainAsPublished
      this.push(arrival, { qos, retain, prefix, identifiers, streamKey, isShared: first.group !== undefined }, batch)
      return
    }
    const wanted = this.#isOwn(arrival) ? subscriptions.filter(({ noLocal }) => !noLocal) : subscriptions
    const best = wanted.reduce<Subscription | undefined>(
      (one, other) => (one === undefined || other.qos > one.qos ? other : one),
      undefined,
    )
    if (best === undefined) return
    const identifiers = wanted.flatMap(({ identifier }) => (identifier === undefined ? [] : [identifier]))
    const retain = arrival.facts.retain && wanted.some(({ retainAsPublished }) => retainAsPublished)
    const { qos, prefix, streamKey } = best
    const options = { qos, retain, prefix, identifiers: identifiers.length === 0 ? undefined : identifiers, streamKey }
    this.push(arrival, options, batch)
  }

  #isOwn(arrival: Arrival): boolean {
    return this.key !== 0 && arrival.facts.sender === this.key
  }

  push(arrival: Arrival, options: DeliveryOptions, batch: LogBatch | undefined): void {
    const { retain, prefix, identifiers, streamKey } = options
    const qos = Math.min(arrival.qos, options.qos) as Qos
    const { outlet } = this
    if (qos === 0) {
      // Nobody waits for it: without a reader it is gone, and counted (contract section 7.6).
      if (outlet?.isWritable !== true || this.queued > 0) {
        if (outlet !== undefined) this.#host.dropped(this, 'slow')
        return
      }
      const template = arrival.template(outlet.version, 0, retain, prefix, identifiers)
      if (template.bytes.length > outlet.maxPacketBytes) return this.#host.dropped(this, 'too_large')
      outlet.sendMessage(template, 0, false)
      this.#host.sent(this)
      return
    }
    // Whoever reads the log again later looks at `isFull` before; who does not loses what finds no room.
    if (batch === undefined && this.isFull) return this.#host.dropped(this, 'slow')
    if (batch !== undefined) batch.pending++
    const outbound: Outbound = {
      arrival,
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
    }
    if (!this.#isReleased) this.#host.held(arrival.hold())
    // Nothing is before it, as with most: it does not go through the queue.
    if (qos === 1 && !this.isBehind && this.queued === 0 && outlet !== undefined && this.#hasPlace(outlet)) {
      this.#next(outbound, outlet)
      return
    }
    this.#enqueue(outbound)
    if (this.queued === 1) this.pump()
    if (this.isFull) this.#host.filled(this)
  }

  /** The client takes one more. */
  #hasPlace(outlet: Outlet): boolean {
    return (
      !this.#isWriting &&
      this.#inFlight.size < Math.min(outlet.receiveMaximum, MAX_IN_FLIGHT) &&
      this.#inFlightBytes < MAX_IN_FLIGHT_BYTES &&
      outlet.isWritable
    )
  }

  /** Takes its place among what is under way; false where it must be remembered before it is sent. */
  #next(outbound: Outbound, outlet: Outlet, isAfterRemembered = false): boolean {
    const template = templateOf(outbound, outlet)
    if (this.#isUnsendable(outbound.arrival, template, outlet)) {
      this.#done(outbound)
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
    this.#inFlightBytes += outbound.arrival.facts.payload.length
  }

  #enqueue(outbound: Outbound): void {
    this.#queue.push(outbound)
    this.#queuedBytes += outbound.arrival.facts.payload.length
  }

  /** Sends what waits, as far as the client takes it. */
  pump(): void {
    const { outlet } = this
    if (outlet === undefined || this.#isWriting) return
    let toRemember: Outbound[] | undefined
    while (this.queued > 0 && this.#hasPlace(outlet)) {
      const outbound = this.#dequeue()
      // What is sent with QoS 2 is written down first, and what follows it must not overtake it.
      if (!this.#next(outbound, outlet, toRemember !== undefined)) (toRemember ??= []).push(outbound)
    }
    if (toRemember !== undefined) this.#sendRemembered(toRemember)
    if (this.isBehind && this.queued === 0) this.#host.drained(this)
  }

  #dequeue(): Outbound {
    const outbound = this.#queue[this.#head++] as Outbound
    this.#queuedBytes -= outbound.arrival.facts.payload.length
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

  #isUnsendable(arrival: Arrival, { bytes }: PublishTemplate, outlet: Outlet): boolean {
    if (arrival.isExpired(Date.now())) {
      this.#host.dropped(this, 'expired')
      return true
    }
    if (bytes.length <= outlet.maxPacketBytes) return false
    this.#host.dropped(this, 'too_large')
    return true
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
      this.#inFlightBytes -= outbound.arrival.facts.payload.length
    if (!this.#isReleased) this.#host.held(outbound.arrival.release())
    if (outbound.batch !== undefined) outbound.batch.pending--
    if (outbound.qos === 2) this.#host.completed(this, outbound)
  }

  /** Its connection is over: what is on its way is kept for nobody here any more. */
  release(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    let bytes = 0
    for (const { arrival } of this.outbound()) bytes += arrival.release()
    this.#host.held(bytes)
  }

  /** A connection took the session up: what was sent and not acknowledged is sent again [MQTT-4.4.0-1]. */
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
  }

  /** PUBACK: false where nothing has this identifier. Throws where that awaits another answer. */
  acknowledged(packetId: number): boolean {
    const outbound = this.#inFlight.get(packetId)
    if (outbound === undefined) return false
    if (outbound.qos !== 1) throw protocolError('PUBACK does not answer a message with QoS 2')
    this.#done(outbound)
    if (this.queued > 0) this.pump()
    return true
  }

  /** PUBREC. Throws for a message that awaits another answer. The answer is a PUBREL, after what it says is remembered [MQTT-4.3.3-4]. */
  receivedByPeer(packetId: number, reasonCode: number): void {
    const { outlet } = this
    if (outlet === undefined) return
    const outbound = this.#inFlight.get(packetId)
    if (outbound === undefined) {
      outlet.send(formatAcknowledgement('pubrel', outlet.version, packetId, REASON.packetIdentifierNotFound))
      return
    }
    if (outbound.qos !== 2) throw protocolError('PUBREC does not answer a message with QoS 1')
    if (reasonCode >= 0x80) {
      // The client wants it no more: no PUBREL follows (section 4.3.3).
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

  /** PUBCOMP: false where nothing has this identifier. Throws where that awaits another answer. */
  completed(packetId: number): boolean {
    const outbound = this.#inFlight.get(packetId)
    if (outbound === undefined) return false
    if (outbound.qos !== 2 || outbound.state !== 'released') throw protocolError('PUBCOMP answers PUBREL alone')
    this.#done(outbound)
    if (this.queued > 0) this.pump()
    return true
  }
}

function templateOf({ arrival, qos, retain, prefix, identifiers }: Outbound, { version }: Outlet): PublishTemplate {
  return arrival.template(version, qos, retain, prefix, identifiers)
}
