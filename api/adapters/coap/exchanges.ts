/**
 * Processes requests from datagram to response (RFC 7252 sections 4 and 5.2): duplicates, acknowledgements before a late response, and
 * the limit of concurrent requests.
 */
import { randomInt } from 'node:crypto'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { MAX_AMPLIFICATION } from './addresses.ts'
import type { AddressProofs } from './addresses.ts'
import type { CoapResponse } from './response.ts'
import { refusal } from './response.ts'
import type { Endpoints, Peer } from './endpoints.ts'
import { CODES, METHODS, EMPTY_BYTES, TYPES, emptyMessage, encodeMessage, isRequest, parseMessage } from './message.ts'
import type { CoapMessage, CoapOption } from './message.ts'
import { MAX_COPIES } from './outbox.ts'
import type { Outbox } from './outbox.ts'
import type { ChannelResource } from './resource.ts'

/** The limit of pending requests, of this process and of one peer; above it 5.03, or dropped when non-confirmable. */
const MAX_UNANSWERED = 10_000
const MAX_UNANSWERED_PER_PEER = 1000
/** A slower response is preceded by an empty acknowledgement (contract section 7.6). */
const ACKNOWLEDGE_AFTER_MS = 1000
const RETRY_AFTER_SECONDS = 2
const MESSAGE_IDS = 0x1_0000
const EMPTY_MESSAGE_BYTES = 4

const BUSY: CoapResponse = refusal(
  new ServiceError('unavailable', 'too many requests are waiting: try again', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  }),
)

/** The limit of the response to a request from an unverified address (RFC 7252 section 11.3, RFC 9175 section 2.4). */
type AmplificationLimit = {
  /** Bytes of the request. */
  askedBytes: number
  /** Bytes of everything that answers it, to a peer that is known. */
  maxBytes: number
  isEchoed: boolean
}

type Unanswered = { request: CoapMessage; peer: Peer; sinceMs: number; isAcknowledged: boolean }

export type ExchangesDeps = {
  endpoints: Endpoints
  outbox: Outbox
  addresses: AddressProofs
  resource: ChannelResource
  send: (bytes: Buffer, peer: Peer) => void
  /** Called at the end of a request, with its kind and the code of the response; undefined without a response. */
  onAnswered: (route: string, code: number | undefined, durationMs: number) => void
  acknowledgeAfterMs?: number | undefined
}

export class Exchanges {
  readonly #deps: ExchangesDeps
  /** The keys are the peer and the message identifier. The oldest message comes first. */
  readonly #unanswered = new Map<string, Map<number, Unanswered>>()
  #count = 0
  #isStopping = false
  #whenEmpty: (() => void)[] = []

  constructor(deps: ExchangesDeps) {
    this.#deps = deps
  }

  get unanswered(): number {
    return this.#count
  }

  /** Never throws. */
  take(datagram: Buffer, peer: Peer): void {
    const message = parseMessage(datagram)
    if (message === undefined) return
    const { type, messageId } = message
    const isConfirmable = type === TYPES.confirmable
    if (type === TYPES.acknowledgement || type === TYPES.reset) return this.#settle(peer, type, messageId)
    if ('malformed' in message || !isRequest(message.code)) {
      // Messages with format errors and unexpected ones, such as pings, are rejected (sections 4.2 and 4.3).
      if (isConfirmable) this.#deps.send(emptyMessage(TYPES.reset, messageId), peer)
      return
    }
    this.#request(message, peer, datagram.length)
  }

  /** Acknowledges requests whose responses take long. */
  tick(): void {
    const now = monotonicMs()
    for (const exchanges of this.#unanswered.values()) {
      for (const exchange of exchanges.values()) {
        if (now - exchange.sinceMs < (this.#deps.acknowledgeAfterMs ?? ACKNOWLEDGE_AFTER_MS)) break
        if (exchange.isAcknowledged || exchange.request.type !== TYPES.confirmable) continue
        exchange.isAcknowledged = true
        this.#deps.send(emptyMessage(TYPES.acknowledgement, exchange.request.messageId), exchange.peer)
      }
    }
  }

  /** Accepts no new requests, and resolves when all pending requests are answered. */
  async drain(): Promise<void> {
    this.#isStopping = true
    if (this.#count > 0) await new Promise<void>((resolve) => this.#whenEmpty.push(resolve))
  }

  #settle(peer: Peer, type: number, messageId: number): void {
    const { endpoints, outbox, addresses } = this.#deps
    const isReset = type === TYPES.reset
    if (outbox.awaits(peer, messageId)) {
      // A reset proves nothing: any CoAP host resets unexpected messages.
      if (!isReset) addresses.acknowledged(peer, messageId)
      outbox.settle(peer, messageId, isReset ? 'reset' : 'acknowledged')
    } else if (!isReset) addresses.strayed(peer)
    // A notification that was sent once.
    else endpoints.find(peer.key)?.notificationOf(messageId)?.end()
  }

  #request(request: CoapMessage, peer: Peer, askedBytes: number): void {
    const { endpoints, resource, addresses, onAnswered } = this.#deps
    const isConfirmable = request.type === TYPES.confirmable
    const waiting = this.#unanswered.get(peer.key)
    const same = waiting?.get(request.messageId)
    if (same !== undefined) {
      if (same.isAcknowledged) this.#deps.send(emptyMessage(TYPES.acknowledgement, request.messageId), peer)
      return
    }
    const isEchoed = addresses.isEchoed(peer, request.options)
    const isProven = isEchoed || addresses.isProven(peer)
    const limit = { askedBytes, maxBytes: isProven ? Infinity : MAX_AMPLIFICATION * askedBytes, isEchoed }
    const before = endpoints.responseCodeOf(peer.key, request.messageId)
    if (before !== undefined) {
      // A non-confirmable duplicate is ignored (section 4.5).
      if (isConfirmable) this.#send(request, peer, resource.again(request, before), false, limit)
      return
    }
    const isBusy =
      this.#count >= MAX_UNANSWERED ||
      (waiting?.size ?? 0) >= MAX_UNANSWERED_PER_PEER ||
      (request.code !== METHODS.get && endpoints.isFull(this.#count))
    if (isBusy || this.#isStopping) {
      if (isConfirmable) this.#send(request, peer, BUSY, false, limit)
      onAnswered('refused', isConfirmable ? BUSY.code : undefined, 0)
      return
    }
    const sinceMs = monotonicMs()
    const handled = resource.handle(request, peer, limit.maxBytes)
    if (!(handled instanceof Promise)) {
      this.#respond(request, peer, handled, false, limit, sinceMs)
      return
    }
    const exchange: Unanswered = { request, peer, sinceMs, isAcknowledged: false }
    if (waiting === undefined) this.#unanswered.set(peer.key, new Map([[request.messageId, exchange]]))
    else waiting.set(request.messageId, exchange)
    this.#count++
    void handled
      .catch((error: unknown) => refusal(error))
      .then((answered) => {
        this.#remove(exchange)
        this.#respond(request, peer, answered, exchange.isAcknowledged, limit, sinceMs)
      })
  }

  #remove({ request, peer }: Unanswered): void {
    const exchanges = this.#unanswered.get(peer.key)
    exchanges?.delete(request.messageId)
    if (exchanges?.size === 0) this.#unanswered.delete(peer.key)
    this.#count--
    if (this.#count === 0) for (const resolve of this.#whenEmpty.splice(0)) resolve()
  }

  #respond(
    request: CoapMessage,
    peer: Peer,
    answered: CoapResponse,
    isAcknowledged: boolean,
    limit: AmplificationLimit,
    sinceMs: number,
  ): void {
    if (answered.isPeerKnown && (limit.isEchoed || answered.isProof)) this.#deps.addresses.prove(peer)
    if (answered.isRemembered) this.#deps.endpoints.remember(peer, request.messageId, answered.code)
    // A non-confirmable request cannot be distinguished from a lost one, so it is dropped above the limit (contract section 7.6).
    const isDropped = request.type === TYPES.nonConfirmable && answered.code === BUSY.code
    // It is rejected with a reset: a response would look like that to a request that was processed (sections 4.3 and 5.4.1).
    const isRejected = request.type === TYPES.nonConfirmable && answered.code === CODES.badOption
    if (isRejected) this.#deps.send(emptyMessage(TYPES.reset, request.messageId), peer)
    else if (!isDropped) this.#send(request, peer, answered, isAcknowledged, limit)
    const isAnswered = !isRejected && !isDropped
    this.#deps.onAnswered(answered.route, isAnswered ? answered.code : undefined, monotonicMs() - sinceMs)
    answered.afterwards?.()
  }

  /** Piggybacked on the acknowledgement if it was not sent yet, otherwise in a separate message. */
  #send(
    request: CoapMessage,
    peer: Peer,
    answered: CoapResponse,
    isAcknowledged: boolean,
    limit: AmplificationLimit,
  ): void {
    const { endpoints, outbox, addresses, send } = this.#deps
    const isPiggybacked = request.type === TYPES.confirmable && !isAcknowledged
    const messageId = isPiggybacked
      ? request.messageId
      : (endpoints.find(peer.key)?.nextMessageId() ?? randomInt(MESSAGE_IDS))
    const type = isPiggybacked
      ? TYPES.acknowledgement
      : request.type === TYPES.confirmable
        ? TYPES.confirmable
        : TYPES.nonConfirmable
    const maxBytes =
      (answered.isPeerKnown || answered.isPublic ? limit.maxBytes : limit.askedBytes) -
      (isAcknowledged ? EMPTY_MESSAGE_BYTES : 0)
    const isProven = limit.maxBytes === Infinity
    const { code, options, payload } = answered
    const message = { type, code, messageId, token: request.token, options, payload }
    const isOffered = request.code === METHODS.get && !isProven
    const bytes = fit(message, isOffered ? [addresses.echoOption(peer)] : [], maxBytes)
    if (type !== TYPES.confirmable) return send(bytes, peer)
    if (answered.isPeerKnown) addresses.challenge(peer, messageId)
    const maxCopies = Math.min(MAX_COPIES, Math.max(1, Math.floor(maxBytes / bytes.length)))
    outbox.send(peer, messageId, bytes, { maxCopies })
  }
}

/** Adds the offered options when there is room, and omits the payload when there is none. */
function fit(message: CoapMessage, offered: readonly CoapOption[], maxBytes: number): Buffer {
  const bytes = encodeMessage(message)
  if (bytes.length > maxBytes) return encodeMessage({ ...message, payload: EMPTY_BYTES })
  if (offered.length === 0) return bytes
  const more = encodeMessage({ ...message, options: [...message.options, ...offered] })
  return more.length > maxBytes ? bytes : more
}
