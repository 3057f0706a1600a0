/**
 * Messages published by a client: stored in order, and acknowledged after the commit in the order of their PUBLISH packets
 * [MQTT-4.6.0-2]. When there is no room, they are retried while the socket is not read (contract section 7.6).
 */
import { kindOf } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import type { MqttBackend, Publication } from './backend.ts'
import { formatAcknowledgement } from './packets/acknowledgement.ts'
import type { ProtocolVersion } from './packets/protocol.ts'
import type { PublishPacket } from './packets/publish.ts'
import { REASON, permittedReasonCode, reasonCodeOf } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import type { Session } from './session.ts'
import type { Target } from './targets.ts'

/**
 * The limit of uncommitted publishes of one connection. Clients of 5.0 receive it as the receive maximum, which limits unacknowledged
 * messages with QoS 1 and 2; those with QoS 2 until PUBCOMP (section 4.9).
 */
export const RECEIVE_MAXIMUM = 1000
/** Topic aliases that a client of 5.0 may use (section 3.2.2.3.8). */
export const TOPIC_ALIAS_MAXIMUM = 100
/** The interval of retries while nothing can be stored. */
const RETRY_MS = 100
/** The length of the answered front of the queue from which it is removed. */
const COMPACT_AT = 256

/** The connection of the messages. */
export type PublishingConnection = {
  readonly version: ProtocolVersion
  readonly isOpen: boolean
  send(bytes: Buffer): void
  /** Closes it; clients of 5.0 receive the reason. */
  close(reasonCode: number, reason: string): void
  /** There is room again. */
  resumeReading(): void
  /** A message was rejected, with the reason. */
  refused(reasonCode: number): void
  /** A message was not stored, with the reason. */
  dropped(reason: 'no_room' | 'ignored_topic'): void
  /** How long a message waited for its commit. */
  stored(durationMs: number): void
}

/** Uncommitted messages of a session by packet identifier; they outlive their connection. */
export type Unsettled = Map<number, Promise<void>>

type Pending = { publication: Publication; sequence: number; sinceMs: number; isSettled: boolean; error: unknown }

export class Publishing {
  readonly #connection: PublishingConnection
  readonly #session: Session
  readonly #backend: MqttBackend
  readonly #unsettled: Unsettled
  /** Messages to acknowledge, in the order of their packets; those before the head are done. */
  #pending: Pending[] = []
  #head = 0
  /** Uncommitted messages with QoS 0. */
  #unacknowledged = 0
  #sequence = 0
  /** Identifiers of messages of this connection that await PUBACK or PUBCOMP. */
  readonly #unanswered = new Set<number>()
  /** Messages for which there was no room. */
  #refusedForNow: Pending[] = []
  #isStalled = false

  constructor(connection: PublishingConnection, session: Session, backend: MqttBackend, unsettled: Unsettled) {
    this.#connection = connection
    this.#session = session
    this.#backend = backend
    this.#unsettled = unsettled
  }

  /** Messages that wait for their commit. */
  get pending(): number {
    return this.#pending.length - this.#head + this.#unacknowledged
  }

  /** No further message may be accepted now. */
  get isFull(): boolean {
    return this.#isStalled || this.pending >= RECEIVE_MAXIMUM
  }

  /** A message was parsed; it may wait before it is published. Throws above the receive maximum [MQTT-3.3.4-7]. */
  arrived({ qos, packetId }: PublishPacket): void {
    if (qos === 0 || this.#connection.version < 5) return
    this.#unanswered.add(packetId)
    if (this.#unanswered.size > RECEIVE_MAXIMUM)
      throw new ProtocolError(
        REASON.receiveMaximumExceeded,
        `at most ${RECEIVE_MAXIMUM} messages with QoS 1 and 2 may be unacknowledged`,
      )
  }

  /** The message is completely acknowledged. */
  answered(packetId: number): void {
    this.#unanswered.delete(packetId)
  }

  /** Publishes a message; returns a promise when the next packet must wait for the authorization of its topic, or for a quota. */
  take(packet: PublishPacket): Promise<void> | undefined {
    const { qos, packetId, topic } = packet
    if (qos === 2 && this.#session.received.has(packetId)) {
      // The message is already stored: the acknowledgement was lost, or the client did not wait for it [MQTT-4.3.3-10].
      this.#connection.send(formatAcknowledgement('pubrec', this.#connection.version, packetId))
      return undefined
    }
    if (this.#backend.isIgnored(topic)) return this.#ignore(packet)
    let target: Target | Promise<Target>
    try {
      target = this.#backend.target(this.#session.identity, topic)
    } catch (error) {
      this.#settle(this.#await(packet, undefined), error)
      return undefined
    }
    if (!(target instanceof Promise)) return this.#admit(packet, target)
    return target.then(
      (found) => this.#admit(packet, found),
      (error: unknown) => this.#settle(this.#await(packet, undefined), error),
    )
  }

  /** Acknowledges a message that is neither stored nor delivered. */
  #ignore(packet: PublishPacket): undefined {
    this.#connection.dropped('ignored_topic')
    this.#settle(this.#await(packet, undefined), undefined)
  }

  /** A message that was received is published even if its connection has ended while it waited. */
  #admit(packet: PublishPacket, target: Target): Promise<void> | undefined {
    // Only an acknowledgement of 5.0 can refuse a message and leave it to its sender (section 3.4.2.1).
    const canRefuse = packet.qos > 0 && this.#connection.version === 5
    const admitted = this.#backend.admit(target, packet.payload.length, canRefuse)
    if (admitted !== undefined)
      return admitted.then(
        () => this.#publish(packet, target),
        (error: unknown) => this.#settle(this.#await(packet, target), error),
      )
    this.#publish(packet, target)
    return undefined
  }

  #publish(packet: PublishPacket, target: Target): void {
    const pending = this.#await(packet, target)
    const { qos, packetId, dup } = packet
    const first = qos === 0 || (qos === 1 && !dup) ? undefined : this.#unsettled.get(packetId)
    // A duplicate while the first copy awaits its commit is stored once.
    if (first !== undefined)
      void first.then(
        () => this.#settle(pending, undefined),
        () => this.#attempt(pending),
      )
    // It waited for its admission meanwhile, and must not overtake those that are repeated.
    else if (this.#isStalled && qos > 0) this.#stall(pending)
    else void this.#attempt(pending)
  }

  #await({ payload, qos, retain, properties, packetId }: PublishPacket, target: Target | undefined): Pending {
    const publication = { target, payload, qos, retain, properties, packetId, session: this.#session } as Publication
    const pending = {
      publication,
      sequence: this.#sequence++,
      sinceMs: performance.now(),
      isSettled: false,
      error: null,
    }
    if (qos === 0) this.#unacknowledged++
    else this.#pending.push(pending)
    return pending
  }

  /** Resolves when the attempt is over, with any outcome. */
  #attempt(pending: Pending): Promise<void> | undefined {
    const { qos, packetId } = pending.publication
    let stored: Promise<void> | undefined
    try {
      stored = this.#backend.publish(pending.publication)
    } catch (error) {
      this.#settle(pending, error)
      return undefined
    }
    if (stored === undefined) {
      this.#settle(pending, undefined)
      return undefined
    }
    if (qos > 0) this.#unsettled.set(packetId, stored)
    return stored.then(
      () => {
        this.#removeUnsettled(pending, stored)
        this.#settle(pending, undefined)
      },
      (error: unknown) => {
        this.#removeUnsettled(pending, stored)
        this.#failed(pending, error)
      },
    )
  }

  #removeUnsettled({ publication: { qos, packetId } }: Pending, stored: Promise<void>): void {
    if (qos > 0 && this.#unsettled.get(packetId) === stored) this.#unsettled.delete(packetId)
  }

  #failed(pending: Pending, error: unknown): void {
    if (kindOf(error) !== 'unavailable') this.#settle(pending, error)
    else if (pending.publication.qos > 0) this.#stall(pending)
    else {
      this.#connection.dropped('no_room')
      this.#settle(pending, undefined)
    }
  }

  #stall(pending: Pending): void {
    this.#refusedForNow.push(pending)
    if (this.#isStalled) return
    this.#isStalled = true
    void this.#tryAgain()
  }

  /** Repeats until everything is stored or the connection is closed. */
  async #tryAgain(): Promise<void> {
    while (this.#refusedForNow.length > 0 && this.#connection.isOpen) {
      await sleep(RETRY_MS)
      const again = this.#refusedForNow.toSorted((left, right) => left.sequence - right.sequence)
      this.#refusedForNow = []
      await Promise.all(again.map((pending) => this.#attempt(pending) ?? Promise.resolve()))
    }
    this.#isStalled = false
    this.#connection.resumeReading()
  }

  #settle(pending: Pending, error: unknown): void {
    const { qos, packetId } = pending.publication
    this.#connection.stored(performance.now() - pending.sinceMs)
    if (qos === 0) {
      this.#unacknowledged--
      if (error !== undefined) this.#refuse(error, undefined)
    } else {
      if (qos === 2 && error === undefined) this.#session.received.add(packetId)
      pending.isSettled = true
      pending.error = error
      this.#acknowledge()
    }
    this.#connection.resumeReading()
  }

  #acknowledge(): void {
    for (let next = this.#pending[this.#head]; next?.isSettled === true; next = this.#pending[this.#head]) {
      this.#head++
      const { qos, packetId } = next.publication
      const type = qos === 1 ? 'puback' : 'pubrec'
      if (qos === 1 || next.error !== undefined) this.answered(packetId)
      if (next.error === undefined)
        this.#connection.send(formatAcknowledgement(type, this.#connection.version, packetId))
      else this.#refuse(next.error, { type, packetId })
    }
    if (this.#head === this.#pending.length) {
      this.#pending = []
      this.#head = 0
    } else if (this.#head >= COMPACT_AT) {
      this.#pending = this.#pending.slice(this.#head)
      this.#head = 0
    }
  }

  /**
   * 5.0 has the reason in the acknowledgement. Older versions have no negative acknowledgement, so the connection is closed: a device must
   * not assume that the message was stored [MQTT-3.3.5-2]. When the outcome is unknown it is closed in every version.
   */
  #refuse(error: unknown, answer: { type: 'puback' | 'pubrec'; packetId: number } | undefined): void {
    const { version } = this.#connection
    const kind = kindOf(error)
    const reasonCode = error instanceof ProtocolError ? error.reasonCode : reasonCodeOf(kind)
    const message = error instanceof Error && kind !== 'internal' ? error.message : 'internal error'
    this.#connection.refused(reasonCode)
    const isUnknown =
      !(error instanceof ProtocolError) && (kind === 'timeout' || kind === 'internal' || kind === 'unavailable')
    if (version < 5 || answer === undefined || isUnknown)
      this.#connection.close(reasonCode || REASON.unspecified, message)
    else
      this.#connection.send(
        formatAcknowledgement(answer.type, version, answer.packetId, permittedReasonCode('puback', reasonCode)),
      )
  }
}
