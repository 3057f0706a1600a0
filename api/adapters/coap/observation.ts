/**
 * A peer observes a channel (RFC 7641): a notification for each message, until it or its rights go. After a confirmable
 * notification the next one waits for its acknowledgement, so that a peer that is not there, or never asked, is sent little.
 */
import type { MessageAccess } from '#api/devices/index.ts'
import type { Delivery, EndReason, LiveMessage, Messages } from '#api/messages/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { AddressProofs } from './addresses.ts'
import type { Block } from './blocks.ts'
import { represent } from './content-formats.ts'
import type { Endpoint, Endpoints, Observation, Peer } from './endpoints.ts'
import { CODES, NOTHING, TYPES, codeOfKind, formatMessage, payloadRoom } from './message.ts'
import type { CoapOption } from './message.ts'
import { OPTIONS, uintOption } from './options.ts'
import { MAX_COPIES } from './outbox.ts'
import type { Outbox } from './outbox.ts'
import type { Representations } from './representations.ts'

/** One notification of so many asks for an acknowledgement, and at least one in these times (contract section 7.4). */
const CONFIRM_EVERY = 20
const CONFIRM_ACTIVE_MS = 60_000
const CONFIRM_SILENT_MS = 24 * 3_600_000
/**
 * Messages that wait until the observer has got its first answer, or has acknowledged a notification; the oldest are dropped
 * beyond. Those of one observer, and the bytes of all of them.
 */
const MAX_HELD = 1000
const MAX_HELD_BYTES = 64 * 1024 * 1024
/** 24 bits, compared by RFC 7641 section 3.4. */
const SEQUENCES = 2 ** 24
/** A new observation begins above an older one of the same token that is forgotten, unless that had more a second. */
const SEQUENCES_PER_SECOND = 64

export type Observing = {
  peer: Peer
  token: Buffer
  access: MessageAccess
  filter: string
  accept: number | undefined
  /** The block in which the first answer was asked for; notifications have its size. */
  block: Block | undefined
  /** Names the resource and the peer, for the blocks that are asked for later. */
  representationKey: string
  authorize: () => Promise<unknown>
  /** The bytes that it may be sent before its address has proved itself. */
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

/** Payloads that wait in all observations. */
export type HeldPayloads = { bytes: number }

export class OpenObservation implements Observation {
  readonly #observing: Observing
  readonly #endpoint: Endpoint
  readonly #deps: ObservationDeps
  readonly #onClosed: () => void
  readonly #allHeld: HeldPayloads
  /** Messages that wait: for the first answer, or for an acknowledgement. */
  #held: LiveMessage[] = []
  #hasBegun = false
  #stop: (() => void) | undefined
  #isOpen = true
  #isShown = false
  #lastSentAt: number
  /** The peer was at its address when it was sent a notification of this observation, or asked for it. */
  #isProven = false
  /** Of what it was sent first: what follows has the same (RFC 7641 section 4.2). */
  #format: number | undefined
  #unpaidBytes: number
  sequence: number

  constructor(
    observing: Observing,
    endpoint: Endpoint,
    deps: ObservationDeps,
    allHeld: HeldPayloads,
    sequence: number | undefined,
    onClosed: () => void,
  ) {
    this.#observing = observing
    this.#endpoint = endpoint
    this.#deps = deps
    this.#allHeld = allHeld
    this.#onClosed = onClosed
    this.#lastSentAt = deps.nowMs()
    this.#format = observing.accept
    this.#unpaidBytes = observing.unpaidBytes
    this.#isProven = observing.unpaidBytes === Infinity
    this.sequence = sequence ?? Math.floor((Date.now() / 1000) * SEQUENCES_PER_SECOND) % SEQUENCES
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The value of the next answer or notification. */
  nextSequence(): number {
    this.sequence = (this.sequence + 1) % SEQUENCES
    return this.sequence
  }

  /** The first answer has gone out, with this message in this format; what came after it follows. */
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

  /** From now to its end the client counts as online. */
  showOnline(): void {
    const { publisherKey } = this.#observing.access
    if (publisherKey === null || !this.#isOpen) return
    this.#isShown = true
    this.#deps.messages.presence.online(publisherKey, 'coap')
    this.#deps.messages.presence.subscribed(publisherKey, 'coap')
  }

  #showOffline(): void {
    const { publisherKey } = this.#observing.access
    if (publisherKey === null || !this.#isShown) return
    this.#isShown = false
    this.#deps.messages.presence.unsubscribed(publisherKey, 'coap')
    this.#deps.messages.presence.offline(publisherKey, 'coap')
  }

  /** The peer wants no more, or is lost: nothing is sent any more. */
  end(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    while (this.#held.length > 0) this.#takeHeld()
    this.#showOffline()
    this.#onClosed()
    this.#stop?.()
  }

  /** No longer followed: an answer that is no success tells the observer so (RFC 7641 section 4.2). */
  ended(reason: EndReason): void {
    if (!this.#isOpen) return
    this.end()
    if (reason === 'closed') return
    const isForbidden = reason === 'forbidden'
    const options = isForbidden ? [] : [uintOption(OPTIONS.maxAge, 1)]
    this.#send(codeOfKind(isForbidden ? 'forbidden' : 'unavailable'), options, NOTHING, reason !== 'stopping')
  }

  /** A message has another format than those before it. */
  #endUnacceptable(): void {
    this.end()
    this.#send(CODES.notAcceptable, [], NOTHING, true)
  }

  tick(now: number): void {
    if (!this.#isFree || now - this.#lastSentAt < CONFIRM_SILENT_MS) return
    // Not once more while the message is looked for.
    this.#lastSentAt = now
    const { access, filter } = this.#observing
    this.#deps.messages.latest(access, filter).then(
      (message) => void (this.#isFree && this.#notify(message)),
      (error: unknown) => this.#deps.logger.warn({ err: error }, 'failed to ping an observer'),
    )
  }

  #notify(message: LiveMessage | undefined): void {
    const { peer, block, representationKey } = this.#observing
    const { addresses, outbox, representations, nowMs, messages } = this.#deps
    const representation =
      message === undefined ? { payload: NOTHING, contentFormat: undefined } : represent(message, this.#format)
    if (representation === undefined) return this.#endUnacceptable()
    const now = nowMs()
    const endpoint = this.#endpoint
    this.#isProven ||= addresses.isProven(peer)
    const isConfirmable =
      !this.#isProven ||
      endpoint.unconfirmed + 1 >= CONFIRM_EVERY ||
      now - endpoint.lastConfirmableAt >= CONFIRM_ACTIVE_MS
    // It would not be known whether it was acknowledged: dropped, as a network does.
    if (isConfirmable && (this.#isProven ? outbox.isFull : outbox.isFullForUnproven)) return
    this.#format ??= representation.contentFormat
    const first = block === undefined ? undefined : { ...block, number: 0 }
    const room = this.#isProven ? Infinity : payloadRoom(this.#unpaidBytes)
    const { options, payload } = representations.part(representationKey, representation, first, room)
    const observe = uintOption(OPTIONS.observe, this.nextSequence())
    this.#send(CODES.content, [observe, ...options], payload, isConfirmable)
    this.#lastSentAt = now
    if (message !== undefined && this.#isShown)
      messages.presence.delivered(this.#observing.access.publisherKey as number, 1)
  }

  #send(code: number, options: readonly CoapOption[], payload: Buffer, isConfirmable: boolean): void {
    const { peer, token } = this.#observing
    const endpoint = this.#endpoint
    const messageId = endpoint.nextMessageId()
    const type = isConfirmable ? TYPES.confirmable : TYPES.nonConfirmable
    const bytes = formatMessage({ type, code, messageId, token, options, payload })
    endpoint.notified(messageId, this)
    if (!isConfirmable) {
      endpoint.unconfirmed++
      this.#deps.send(bytes, peer)
      return
    }
    const { addresses, outbox, nowMs } = this.#deps
    const paidCopies = Math.max(1, Math.floor(this.#unpaidBytes / bytes.length))
    const maxCopies = this.#isProven ? MAX_COPIES : Math.min(MAX_COPIES, paidCopies)
    if (!this.#isProven) this.#unpaidBytes = Math.max(0, this.#unpaidBytes - maxCopies * bytes.length)
    addresses.challenge(peer, messageId)
    endpoint.unconfirmed = 0
    endpoint.lastConfirmableAt = nowMs()
    if (!outbox.isFull) endpoint.awaited++
    outbox.send(peer, messageId, bytes, {
      maxCopies,
      onEnd: (fate) => {
        endpoint.awaited--
        if (fate === 'lost') endpoint.endObservations()
        else {
          if (fate === 'reset') this.end()
          endpoint.resumeObservations()
        }
      },
    })
  }
}
