/**
 * An observation of what a device may read about itself (RFC 7641). Only the newest representation matters: while one is not acknowledged,
 * later ones replace each other. Every notification is confirmable, because there are few.
 */
import type { DeviceRepresentation, DeviceSubscription, ToDevice } from '#api/devices/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Block } from './blocks.ts'
import { formatOf } from './content-formats.ts'
import type { Endpoint, Observation, Peer } from './endpoints.ts'
import { CODES, EMPTY_BYTES, codeOfKind, maxPayloadBytes } from './message.ts'
import { sendNotification } from './notification.ts'
import type { NotificationDeps } from './notification.ts'
import { OPTIONS, uintOption } from './options.ts'
import type { Representations } from './representations.ts'

/** 24 bits, compared by RFC 7641 section 3.4. */
const SEQUENCES = 2 ** 24
/** Sequence numbers start at a time-based value, above those of an earlier observation with the same token. */
const SEQUENCES_PER_SECOND = 64
/** After a day of silence, an observer is asked whether it is still there (RFC 7641 section 4.5). */
const CONFIRM_SILENT_MS = 24 * 3_600_000
/** Above these limits, the request is answered like a plain GET (RFC 7641 section 4.1). */
const MAX_OBSERVATIONS = 50_000
const MAX_OBSERVATIONS_PER_ENDPOINT = 100

export type DeviceObservationRequest = {
  peer: Peer
  token: Buffer
  /** The block of the first request; notifications use its size. */
  block: Block | undefined
  /** Identifies the resource and the peer, for requests of later blocks. */
  representationKey: string
  /** Rejects when the device may not be notified any more. */
  authorize: () => Promise<unknown>
  /** The bytes that may be sent before the address is verified. */
  unpaidBytes: number
}

export type DeviceObservationDeps = NotificationDeps & { representations: Representations }

export class DeviceObservation implements Observation {
  readonly #request: DeviceObservationRequest
  readonly #endpoint: Endpoint
  readonly #deps: DeviceObservationDeps
  readonly #onClosed: () => void
  #subscription: DeviceSubscription | undefined
  #newest: (DeviceRepresentation & Pick<ToDevice, 'onAcknowledged'>) | undefined
  #last: DeviceRepresentation | undefined
  #isOpen = true
  #hasBegun = false
  #isChecking = false
  #unpaidBytes: number
  #isProven: boolean
  #lastSentAt: number
  #sequence = Math.floor((Date.now() / 1000) * SEQUENCES_PER_SECOND) % SEQUENCES

  constructor(
    request: DeviceObservationRequest,
    endpoint: Endpoint,
    deps: DeviceObservationDeps,
    onClosed: () => void,
  ) {
    this.#request = request
    this.#endpoint = endpoint
    this.#deps = deps
    this.#onClosed = onClosed
    this.#unpaidBytes = request.unpaidBytes
    this.#isProven = request.unpaidBytes === Infinity
    this.#lastSentAt = deps.nowMs()
  }

  nextSequence(): number {
    this.#sequence = (this.#sequence + 1) % SEQUENCES
    return this.#sequence
  }

  subscribed(subscription: DeviceSubscription): void {
    if (this.#isOpen) this.#subscription = subscription
    else subscription.close()
  }

  /** The first response was sent. */
  begin(answered: DeviceRepresentation): void {
    this.#last ??= answered
    this.#hasBegun = true
    this.resume()
  }

  send(message: ToDevice): void {
    this.#newest = message
    this.resume()
  }

  resume(): void {
    if (this.#isFree && this.#newest !== undefined) void this.#notifyAllowed()
  }

  get #isFree(): boolean {
    return this.#isOpen && this.#hasBegun && !this.#isChecking && this.#endpoint.awaited === 0
  }

  end(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#newest = undefined
    this.#subscription?.close()
    this.#onClosed()
  }

  /** Delivery cannot continue: an error response tells the observer (RFC 7641 section 4.2). */
  failed(error: unknown): void {
    if (!this.#isOpen) return
    this.end()
    const kind = kindOf(error)
    const options = kind === 'unavailable' || kind === 'timeout' ? [uintOption(OPTIONS.maxAge, 1)] : []
    this.#notify(codeOfKind(kind), options, EMPTY_BYTES)
  }

  tick(now: number): void {
    if (!this.#isFree || this.#newest !== undefined || now - this.#lastSentAt < CONFIRM_SILENT_MS) return
    this.#newest = this.#last
    this.resume()
  }

  /** The right is checked again for each notification, because an observation may last for months. */
  async #notifyAllowed(): Promise<void> {
    this.#isChecking = true
    try {
      await this.#request.authorize()
    } catch (error) {
      this.failed(error)
      return
    } finally {
      this.#isChecking = false
    }
    const { addresses, outbox, representations } = this.#deps
    const { peer, block, representationKey } = this.#request
    this.#isProven ||= addresses.isProven(peer)
    const newest = this.#newest
    // The outbox cannot track an acknowledgement now: the tick tries again.
    if (!this.#isFree || newest === undefined || (this.#isProven ? outbox.isFull : outbox.isFullForUnproven)) return
    this.#newest = undefined
    this.#last = newest
    const { payload, contentType, onAcknowledged } = newest
    const first = block === undefined ? undefined : { ...block, number: 0 }
    const room = this.#isProven ? Infinity : maxPayloadBytes(this.#unpaidBytes)
    const part = representations.part(representationKey, { payload, contentFormat: formatOf(contentType) }, first, room)
    const observe = uintOption(OPTIONS.observe, this.nextSequence())
    this.#notify(CODES.content, [observe, ...part.options], part.payload, onAcknowledged)
  }

  #notify(
    code: number,
    options: Parameters<typeof sendNotification>[1]['options'],
    payload: Buffer,
    onAcknowledged?: () => void,
  ): void {
    const { peer, token } = this.#request
    this.#lastSentAt = this.#deps.nowMs()
    this.#unpaidBytes = sendNotification(this.#deps, {
      peer,
      token,
      endpoint: this.#endpoint,
      observation: this,
      code,
      options,
      payload,
      isConfirmable: true,
      isProven: this.#isProven,
      unpaidBytes: this.#unpaidBytes,
      onEnd: (fate) => {
        if (fate === 'acknowledged') onAcknowledged?.()
      },
    })
  }
}

/** All of them of this process, and their bounds. */
export class DeviceObservations {
  readonly #deps: DeviceObservationDeps
  readonly #open = new Set<DeviceObservation>()

  constructor(deps: DeviceObservationDeps) {
    this.#deps = deps
  }

  get size(): number {
    return this.#open.size
  }

  /** Undefined above the limits. The same token of the same peer replaces its observation. */
  open(endpoint: Endpoint, request: DeviceObservationRequest): DeviceObservation | undefined {
    const name = request.token.toString('hex')
    const before = endpoint.observations.get(name)
    const isFull = this.#open.size >= MAX_OBSERVATIONS || endpoint.observations.size >= MAX_OBSERVATIONS_PER_ENDPOINT
    if (before === undefined && isFull) return undefined
    before?.end()
    const observation = new DeviceObservation(request, endpoint, this.#deps, () => {
      this.#open.delete(observation)
      if (endpoint.observations.get(name) === observation) endpoint.observations.delete(name)
    })
    endpoint.observations.set(name, observation)
    this.#open.add(observation)
    return observation
  }

  /** Sends what waits for room, and asks observers that received nothing for a day. */
  tick(): void {
    const now = this.#deps.nowMs()
    for (const observation of this.#open) {
      observation.resume()
      observation.tick(now)
    }
  }
}
