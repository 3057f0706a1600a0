/**
 * An observation of a channel (RFC 7641): a notification for each message, until the peer ends it or loses its right. After a confirmable
 * notification, the next one waits for its acknowledgement, so that an absent peer receives little.
 */
import type { ChannelAccess } from '#api/devices/index.ts'
import type { Delivery, EndReason, LiveMessage, Messages } from '#api/messages/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { AddressProofs } from './addresses.ts'
import type { Block } from './blocks.ts'
import { represent } from './content-formats.ts'
import type { Endpoint, Endpoints, Observation, Peer } from './endpoints.ts'
import { CODES, EMPTY_BYTES, codeOfKind, maxPayloadBytes } from './message.ts'
import type { CoapOption } from './message.ts'
import { sendNotification } from './notification.ts'
import { OPTIONS, uintOption } from './options.ts'
import type { Outbox } from './outbox.ts'
import type { Representations } from './representations.ts'

/**
 * A notification is confirmable if it is the 20th since the last confirmable one, or if a minute has passed since then. After a day of
 * silence, the latest message is sent again as such a notification (contract section 7.4).
 */
const CONFIRM_EVERY = 20
const CONFIRM_ACTIVE_MS = 60_000
const CONFIRM_SILENT_MS = 24 * 3_600_000
/**
 * Limits of messages that wait for the first response or an acknowledgement: the number of one observer, and the bytes of all. Above
 * them the oldest are dropped.
 */
const MAX_HELD = 1000
const MAX_HELD_BYTES = 64 * 1024 * 1024
/** 24 bits, compared by RFC 7641 section 3.4. */
const SEQUENCES = 2 ** 24
/** Sequence numbers start at a time-based value, above those of an earlier observation with the same token. */
const SEQUENCES_PER_SECOND = 64

export type ObservationRequest = {
  peer: Peer
  token: Buffer
  access: ChannelAccess
  filter: string
  accept: number | undefined
  /** The block of the first request; notifications use its size. */
  block: Block | undefined
  /** Identifies the resource and the peer, for requests of later blocks. */
  representationKey: string
  authorize: () => Promise<unknown>
  /** The bytes that may be sent before the address is verified. */
  unpaidBytes: number
}

export type ObservationDeps = {
  messages: Messages
  endpoints: Endpoints
  outbox: Outbox
  addresses: AddressProofs
  representations: Representations
  send: (bytes: Buffer, peer: Peer) => void
  nowMs: () => number
  logger: Logger
}

/** The bytes of held payloads in all observations. */
export type HeldPayloads = { bytes: number }

export class OpenObservation implements Observation {
  readonly #request: ObservationRequest
  readonly #endpoint: Endpoint
  readonly #deps: ObservationDeps
  readonly #onClosed: () => void
  readonly #allHeld: HeldPayloads
  /** Messages that wait for the first response or for an acknowledgement. */
  #held: LiveMessage[] = []
  #hasBegun = false
  #stop: (() => void) | undefined
  #isOpen = true
  #isShown = false
  #lastSentAt: number
  /** The address was verified when the observation was requested or a notification was sent. */
  #isProven = false
  /** The content format of the first response; later ones have the same (RFC 7641 section 4.2). */
  #format: number | undefined
  #unpaidBytes: number
  sequence: number

  constructor(
    request: ObservationRequest,
    endpoint: Endpoint,
    deps: ObservationDeps,
    allHeld: HeldPayloads,
    sequence: number | undefined,
    onClosed: () => void,
  ) {
    this.#request = request
    this.#endpoint = endpoint
    this.#deps = deps
    this.#allHeld = allHeld
    this.#onClosed = onClosed
    this.#lastSentAt = deps.nowMs()
    this.#format = request.accept
    this.#unpaidBytes = request.unpaidBytes
    this.#isProven = request.unpaidBytes === Infinity
    this.sequence = sequence ?? Math.floor((Date.now() / 1000) * SEQUENCES_PER_SECOND) % SEQUENCES
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The value of the next response or notification. */
  nextSequence(): number {
    this.sequence = (this.sequence + 1) % SEQUENCES
    return this.sequence
  }

  /** The first response was sent, with this message in this format; later messages follow. */
  begin(answered: LiveMessage | undefined, contentFormat: number | undefined): void {
    this.#format ??= contentFormat
    const at = this.#held.findIndex(
      ({ batchSeq, index }) => batchSeq === answered?.batchSeq && index === answered.index,
    )
    for (let count = 0; count <= at; count++) this.#takeHeld()
    this.#hasBegun = true
    this.resume()
  }

  deliver(deliveries: readonly Delivery[]): void {
    for (const { message } of deliveries) {
      if (this.#isFree && this.#held.length === 0) this.#notify(message)
      else this.#hold(message)
    }
  }

  resume(): void {
    while (this.#isFree && this.#held.length > 0) this.#notify(this.#takeHeld())
  }

  get #isFree(): boolean {
    return this.#isOpen && this.#hasBegun && this.#endpoint.awaited === 0
  }

  #hold(message: LiveMessage): void {
    if (!this.#isOpen) return
    this.#held.push(message)
    this.#allHeld.bytes += message.payload.length
    while (this.#held.length > 0 && (this.#held.length > MAX_HELD || this.#allHeld.bytes > MAX_HELD_BYTES))
      this.#takeHeld()
  }

  #takeHeld(): LiveMessage | undefined {
    const message = this.#held.shift()
    this.#allHeld.bytes -= message?.payload.length ?? 0
    return message
  }

  whenEnded(stop: () => void): void {
    if (this.#isOpen) this.#stop = stop
    else stop()
  }

  /** Shows the client as online until the observation ends. */
  showOnline(): void {
    const { publisherKey } = this.#request.access
    if (publisherKey === null || !this.#isOpen) return
    this.#isShown = true
    this.#deps.messages.presence.online(publisherKey, 'coap')
    this.#deps.messages.presence.subscribed(publisherKey, 'coap')
  }

  #showOffline(): void {
    const { publisherKey } = this.#request.access
    if (publisherKey === null || !this.#isShown) return
    this.#isShown = false
    this.#deps.messages.presence.unsubscribed(publisherKey, 'coap')
    this.#deps.messages.presence.offline(publisherKey, 'coap')
  }

  /** The peer has cancelled the observation or is unreachable: nothing more is sent. */
  end(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    while (this.#held.length > 0) this.#takeHeld()
    this.#showOffline()
    this.#onClosed()
    this.#stop?.()
  }

  /** Delivery has ended: an error response tells the observer (RFC 7641 section 4.2). */
  ended(reason: EndReason): void {
    if (!this.#isOpen) return
    this.end()
    if (reason === 'closed') return
    const isForbidden = reason === 'forbidden'
    const options = isForbidden ? [] : [uintOption(OPTIONS.maxAge, 1)]
    this.#send(codeOfKind(isForbidden ? 'forbidden' : 'unavailable'), options, EMPTY_BYTES, reason !== 'stopping')
  }

  /** A message has another format than the earlier ones. */
  #endUnacceptable(): void {
    this.end()
    this.#send(CODES.notAcceptable, [], EMPTY_BYTES, true)
  }

  tick(now: number): void {
    if (!this.#isFree || now - this.#lastSentAt < CONFIRM_SILENT_MS) return
    // Prevents a second load while the first one is running.
    this.#lastSentAt = now
    const { access, filter } = this.#request
    this.#deps.messages.latest(access, filter).then(
      (message) => void (this.#isFree && this.#notify(message)),
      (error: unknown) => this.#deps.logger.warn({ err: error }, 'failed to ping an observer'),
    )
  }

  #notify(message: LiveMessage | undefined): void {
    const { peer, block, representationKey } = this.#request
    const { addresses, outbox, representations, nowMs, messages } = this.#deps
    const representation =
      message === undefined ? { payload: EMPTY_BYTES, contentFormat: undefined } : represent(message, this.#format)
    if (representation === undefined) return this.#endUnacceptable()
    const now = nowMs()
    const endpoint = this.#endpoint
    this.#isProven ||= addresses.isProven(peer)
    const isConfirmable =
      !this.#isProven ||
      endpoint.unconfirmed + 1 >= CONFIRM_EVERY ||
      now - endpoint.lastConfirmableAt >= CONFIRM_ACTIVE_MS
    // The outbox is full and cannot track an acknowledgement, so the notification is dropped. Networks drop notifications too.
    if (isConfirmable && (this.#isProven ? outbox.isFull : outbox.isFullForUnproven)) return
    this.#format ??= representation.contentFormat
    const first = block === undefined ? undefined : { ...block, number: 0 }
    const room = this.#isProven ? Infinity : maxPayloadBytes(this.#unpaidBytes)
    const { options, payload } = representations.part(representationKey, representation, first, room)
    const observe = uintOption(OPTIONS.observe, this.nextSequence())
    this.#send(CODES.content, [observe, ...options], payload, isConfirmable)
    this.#lastSentAt = now
    if (message !== undefined && this.#isShown)
      messages.presence.delivered(this.#request.access.publisherKey as number, 1)
  }

  #send(code: number, options: readonly CoapOption[], payload: Buffer, isConfirmable: boolean): void {
    const { peer, token } = this.#request
    this.#unpaidBytes = sendNotification(this.#deps, {
      peer,
      token,
      endpoint: this.#endpoint,
      observation: this,
      code,
      options,
      payload,
      isConfirmable,
      isProven: this.#isProven,
      unpaidBytes: this.#unpaidBytes,
    })
  }
}
