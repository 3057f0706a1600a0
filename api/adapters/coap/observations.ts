/** Peers that observe a channel (RFC 7641): a notification for each message, until they or their rights go. */
import type { MessageAccess } from '#api/devices/index.ts'
import type { Delivery, EndReason, LiveMessage, Messages } from '#api/messages/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Block } from './blocks.ts'
import { formatFor } from './content-formats.ts'
import type { Endpoint, Endpoints, Peer } from './endpoints.ts'
import { CODES, NOTHING, TYPES, codeOfKind, formatMessage } from './message.ts'
import type { CoapOption } from './message.ts'
import { OPTIONS, uintOption } from './options.ts'
import type { Outbox } from './outbox.ts'
import type { Representation, Representations } from './representations.ts'

/** Beyond these an observer is answered as one who asks once (RFC 7641 section 4.1). */
const MAX_OBSERVATIONS = 50_000
const MAX_OBSERVATIONS_PER_ENDPOINT = 100
/** One notification of so many asks for an acknowledgement, and at least one in these times (contract section 7.4). */
const CONFIRM_EVERY = 20
const CONFIRM_ACTIVE_MS = 60_000
const CONFIRM_SILENT_MS = 24 * 3_600_000
/** Messages that wait until the observer has got its first answer; the oldest are dropped beyond. */
const MAX_EARLY = 1000
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
}

export type Observation = { end(): void }

export type ObservationsDeps = {
  messages: Messages
  endpoints: Endpoints
  outbox: Outbox
  representations: Representations
  send: (bytes: Buffer, peer: Peer) => void
  nowMs: () => number
  logger: Logger
}

export class Observations {
  readonly #deps: ObservationsDeps
  readonly #open = new Set<OpenObservation>()
  #opening = 0

  constructor(deps: ObservationsDeps) {
    this.#deps = deps
  }

  get size(): number {
    return this.#open.size
  }

  /**
   * Begins an observation; it is silent until `begin` is called with the message that the observer was answered with.
   * Undefined where there are too many. The same token of the same peer replaces its observation.
   */
  async open(observing: Observing): Promise<OpenObservation | undefined> {
    const { messages, endpoints } = this.#deps
    const endpoint = endpoints.of(observing.peer)
    const name = observing.token.toString('hex')
    const before = endpoint.observations.get(name)
    const isOneMore = before === undefined
    const isFull = this.#open.size + this.#opening >= MAX_OBSERVATIONS
    if (isOneMore && (isFull || endpoint.observations.size >= MAX_OBSERVATIONS_PER_ENDPOINT)) return undefined
    const sequence = before instanceof OpenObservation ? before.sequence : undefined
    before?.end()
    const observation = new OpenObservation(observing, endpoint, this.#deps, sequence, () => {
      this.#open.delete(observation)
      if (endpoint.observations.get(name) === observation) endpoint.observations.delete(name)
    })
    endpoint.observations.set(name, observation)
    this.#opening++
    try {
      const { access, filter, authorize } = observing
      const { close } = await messages.follow({
        access,
        filter,
        authorize,
        deliver: (deliveries) => observation.deliver(deliveries),
        onEnd: (reason) => observation.ended(reason),
      })
      observation.whenEnded(close)
      if (observation.isOpen) {
        this.#open.add(observation)
        observation.showOnline()
      }
      return observation
    } catch (error) {
      observation.end()
      throw error
    } finally {
      this.#opening--
    }
  }

  /** Ends the observation of the token (RFC 7641 section 3.6). */
  close(peer: Peer, token: Buffer): void {
    this.#deps.endpoints.find(peer.key)?.observations.get(token.toString('hex'))?.end()
  }

  /** Asks those for a sign of life to whom nothing was sent for a day. */
  tick(): void {
    const now = this.#deps.nowMs()
    for (const observation of this.#open) observation.tick(now)
  }
}

export class OpenObservation implements Observation {
  readonly #observing: Observing
  readonly #endpoint: Endpoint
  readonly #deps: ObservationsDeps
  readonly #onClosed: () => void
  /** Messages that came before the first answer went out. */
  #early: LiveMessage[] | undefined = []
  #stop: (() => void) | undefined
  #isOpen = true
  #isShown = false
  #sent = 0
  #lastSentAt: number
  #lastConfirmedAt: number
  #awaitsAcknowledgement = false
  sequence: number

  constructor(
    observing: Observing,
    endpoint: Endpoint,
    deps: ObservationsDeps,
    sequence: number | undefined,
    onClosed: () => void,
  ) {
    this.#observing = observing
    this.#endpoint = endpoint
    this.#deps = deps
    this.#onClosed = onClosed
    this.#lastSentAt = this.#lastConfirmedAt = deps.nowMs()
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

  /** The first answer has gone out, with this message; what came after it follows. */
  begin(answered: LiveMessage | undefined): void {
    const early = this.#early ?? []
    this.#early = undefined
    const at = early.findIndex(({ batchSeq, index }) => batchSeq === answered?.batchSeq && index === answered.index)
    for (const message of early.slice(at + 1)) this.#notify(message)
  }

  deliver(deliveries: readonly Delivery[]): void {
    for (const { message } of deliveries) {
      if (this.#early === undefined) this.#notify(message)
      else {
        this.#early.push(message)
        if (this.#early.length > MAX_EARLY) this.#early.shift()
      }
    }
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

  tick(now: number): void {
    if (this.#early !== undefined || now - this.#lastSentAt < CONFIRM_SILENT_MS) return
    // Not once more while the message is looked for.
    this.#lastSentAt = now
    const { access, filter } = this.#observing
    this.#deps.messages.latest(access, filter).then(
      (message) => this.#notify(message),
      (error: unknown) => this.#deps.logger.warn({ err: error }, 'an observer could not be asked for a sign of life'),
    )
  }

  #notify(message: LiveMessage | undefined): void {
    if (!this.#isOpen) return
    const { accept, block, representationKey } = this.#observing
    const contentFormat = message === undefined ? undefined : formatFor(message.contentType, accept)
    // Of a channel with messages in several formats the observer is sent those that it accepts.
    if (contentFormat === false) return
    const representation: Representation = { payload: message?.payload ?? NOTHING, contentFormat }
    const first = block === undefined ? undefined : { ...block, number: 0 }
    const { options, payload } = this.#deps.representations.part(representationKey, representation, first)
    const now = this.#deps.nowMs()
    this.#sent++
    const isDue = this.#sent % CONFIRM_EVERY === 0 || now - this.#lastConfirmedAt >= CONFIRM_ACTIVE_MS
    const observe = uintOption(OPTIONS.observe, this.nextSequence())
    this.#send(CODES.content, [observe, ...options], payload, isDue && !this.#awaitsAcknowledgement)
    this.#lastSentAt = now
    if (message !== undefined && this.#isShown)
      this.#deps.messages.presence.delivered(this.#observing.access.publisherKey as number, 1)
  }

  #send(code: number, options: readonly CoapOption[], payload: Buffer, isConfirmable: boolean): void {
    const { peer, token } = this.#observing
    const messageId = this.#endpoint.nextMessageId()
    const type = isConfirmable ? TYPES.confirmable : TYPES.nonConfirmable
    const bytes = formatMessage({ type, code, messageId, token, options, payload })
    this.#endpoint.notified(messageId, this)
    if (!isConfirmable) {
      this.#deps.send(bytes, peer)
      return
    }
    this.#awaitsAcknowledgement = true
    this.#lastConfirmedAt = this.#deps.nowMs()
    this.#deps.outbox.send(peer, messageId, bytes, (fate) => {
      this.#awaitsAcknowledgement = false
      if (fate !== 'acknowledged') this.end()
    })
  }
}
