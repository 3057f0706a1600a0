/**
 * Whether a peer is at the address that its datagrams name. Anybody can write any source address into a datagram, so an
 * address that has not proved itself is sent at most three times what came from it (RFC 7252 section 11.3, RFC 9175 section
 * 2.4). It proves itself by an answer that only a receiver of ours can give: the value of an Echo option, the ETag of a
 * message in blocks, or the acknowledgement of a confirmable message. A proof lasts five minutes.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Endpoints, Peer } from './endpoints.ts'
import type { CoapOption } from './message.ts'
import { OPTIONS } from './options.ts'

/** Bytes sent for each byte received from an address that has not proved itself, repeated messages included. */
export const MAX_AMPLIFICATION = 3
const ECHO_BYTES = 8
/** An Echo value is valid in the period that it was made in and in the next one: at most five minutes together. */
const ECHO_PERIOD_MS = 150_000
/**
 * A message identifier has 16 bits only. After so many acknowledgements of nothing from one address, its acknowledgements
 * prove nothing until it has been quiet for the time below; Echo still does.
 */
const MAX_STRAY_ACKNOWLEDGEMENTS = 3
const STRAY_MS = 300_000
/** Addresses with stray acknowledgements, some 200 bytes each; the one that is quiet longest is forgotten beyond. */
const MAX_STRAY_ADDRESSES = 50_000

export class AddressProofs {
  readonly #endpoints: Endpoints
  readonly #nowMs: () => number
  readonly #key = randomBytes(32)
  /** By address without port: an attacker has one address to guess for, and 65,536 ports. */
  readonly #strays: LRUCache<string, number>

  /** `nowMs`: a clock that nobody sets. */
  constructor(endpoints: Endpoints, nowMs: () => number) {
    this.#endpoints = endpoints
    this.#nowMs = nowMs
    this.#strays = new LRUCache({ max: MAX_STRAY_ADDRESSES, ttl: STRAY_MS, perf: { now: nowMs }, ttlResolution: 0 })
  }

  isProven(peer: Peer): boolean {
    return this.#endpoints.isProven(peer.key)
  }

  /** Remembers the proof, where there is room. To be called for peers alone that have shown a secret. */
  prove(peer: Peer): void {
    if (this.#endpoints.find(peer.key) !== undefined || !this.#endpoints.isFull(0)) this.#endpoints.prove(peer)
  }

  /** The option that is offered with an answer; a client that knows it sends it back with its next request. */
  echoOption(peer: Peer): CoapOption {
    return { number: OPTIONS.echo, value: this.#echo(peer, 0) }
  }

  isEchoed(peer: Peer, options: readonly CoapOption[]): boolean {
    const echoed = options.find(({ number }) => number === OPTIONS.echo)?.value
    if (echoed?.length !== ECHO_BYTES) return false
    return [0, 1].some((periodsAgo) => timingSafeEqual(echoed, this.#echo(peer, periodsAgo)))
  }

  /** The acknowledgement of this message, of the newest alone, will prove the address. */
  challenge(peer: Peer, messageId: number): void {
    if (this.#endpoints.find(peer.key) !== undefined || !this.#endpoints.isFull(0))
      this.#endpoints.of(peer).challengeId = messageId
  }

  /** A message that awaited it was acknowledged. */
  acknowledged(peer: Peer, messageId: number): void {
    const endpoint = this.#endpoints.find(peer.key)
    if (endpoint?.challengeId !== messageId) return
    endpoint.challengeId = undefined
    if ((this.#strays.get(peer.address) ?? 0) < MAX_STRAY_ACKNOWLEDGEMENTS) this.#endpoints.prove(peer)
  }

  /** A message that nobody sent, or that was settled before, was acknowledged. Counts while there is something to guess. */
  strayed(peer: Peer): void {
    if (this.#endpoints.find(peer.key)?.challengeId === undefined) return
    this.#strays.set(peer.address, (this.#strays.get(peer.address) ?? 0) + 1)
  }

  #echo({ key }: Peer, periodsAgo: number): Buffer {
    const period = Math.floor(this.#nowMs() / ECHO_PERIOD_MS) - periodsAgo
    return createHmac('sha256', this.#key).update(`${period} ${key}`).digest().subarray(0, ECHO_BYTES)
  }
}
