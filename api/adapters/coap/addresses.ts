/**
 * Proof that a peer is at the source address of its datagrams. Source addresses can be forged, so an unverified address is sent at most
 * three times the bytes that it sent (RFC 7252 section 11.3, RFC 9175 section 2.4). A response that only a receiver of our messages can
 * give verifies it: the value of an Echo option, the ETag of a blockwise message, or the acknowledgement of a confirmable message. It is
 * valid for five minutes.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Endpoints, Peer } from './endpoints.ts'
import type { CoapOption } from './message.ts'
import { OPTIONS } from './options.ts'

/** Bytes sent for each byte received from an unverified address, including retransmissions. */
export const MAX_AMPLIFICATION = 3
const ECHO_BYTES = 8
/** An Echo value is valid in its period and the next one: at most five minutes in total. */
const ECHO_PERIOD_MS = 150_000
/**
 * A message identifier has only 16 bits. After this many unexpected acknowledgements from one address, its acknowledgements are not
 * accepted as proof until it has been quiet for the time below; Echo still is.
 */
const MAX_STRAY_ACKNOWLEDGEMENTS = 3
const STRAY_MS = 300_000
/** The limit of addresses with unexpected acknowledgements, about 200 bytes each; the least recent one is evicted. */
const MAX_STRAY_ADDRESSES = 50_000

export class AddressProofs {
  readonly #endpoints: Endpoints
  readonly #nowMs: () => number
  readonly #key = randomBytes(32)
  /** The keys are addresses without a port: an attacker would otherwise have 65,536 ports to guess with. */
  readonly #strays: BoundedCache<string, number>

  /** `nowMs`: a monotonic clock. */
  constructor(endpoints: Endpoints, nowMs: () => number) {
    this.#endpoints = endpoints
    this.#nowMs = nowMs
    this.#strays = new BoundedCache({
      maxEntries: MAX_STRAY_ADDRESSES,
      ttl: STRAY_MS,
      perf: { now: nowMs },
      ttlResolution: 0,
    })
  }

  isProven(peer: Peer): boolean {
    return this.#endpoints.isProven(peer.key)
  }

  /** Stores the proof if there is room. Call it only for peers that have presented a secret. */
  prove(peer: Peer): void {
    if (this.#endpoints.find(peer.key) !== undefined || !this.#endpoints.isFull(0)) this.#endpoints.prove(peer)
  }

  /** The option of a response; a client that supports it sends it back with its next request. */
  echoOption(peer: Peer): CoapOption {
    return { number: OPTIONS.echo, value: this.#echo(peer, 0) }
  }

  isEchoed(peer: Peer, options: readonly CoapOption[]): boolean {
    const echoed = options.find(({ number }) => number === OPTIONS.echo)?.value
    if (echoed?.length !== ECHO_BYTES) return false
    return [0, 1].some((periodsAgo) => timingSafeEqual(echoed, this.#echo(peer, periodsAgo)))
  }

  /** The acknowledgement of this message verifies the address; replaces an earlier challenge. */
  challenge(peer: Peer, messageId: number): void {
    if (this.#endpoints.find(peer.key) !== undefined || !this.#endpoints.isFull(0))
      this.#endpoints.of(peer).challengeId = messageId
  }

  /** A message in flight was acknowledged. */
  acknowledged(peer: Peer, messageId: number): void {
    const endpoint = this.#endpoints.find(peer.key)
    if (endpoint?.challengeId !== messageId) return
    endpoint.challengeId = undefined
    if ((this.#strays.get(peer.address) ?? 0) < MAX_STRAY_ACKNOWLEDGEMENTS) this.#endpoints.prove(peer)
  }

  /** An unknown or already settled message was acknowledged. Counted while guessing is possible. */
  strayed(peer: Peer): void {
    if (this.#endpoints.find(peer.key)?.challengeId === undefined) return
    this.#strays.set(peer.address, (this.#strays.get(peer.address) ?? 0) + 1)
  }

  #echo({ key }: Peer, periodsAgo: number): Buffer {
    const period = Math.floor(this.#nowMs() / ECHO_PERIOD_MS) - periodsAgo
    return createHmac('sha256', this.#key).update(`${period} ${key}`).digest().subarray(0, ECHO_BYTES)
  }
}
