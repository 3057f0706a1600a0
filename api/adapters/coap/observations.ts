/** All observations of this process, and their bounds. */
import type { Peer } from './endpoints.ts'
import type { HeldPayloads, ObservationDeps, ObservationRequest } from './observation.ts'
import { OpenObservation } from './observation.ts'

/** Above these limits, the request is answered like a plain GET (RFC 7641 section 4.1). */
const MAX_OBSERVATIONS = 50_000
const MAX_OBSERVATIONS_PER_ENDPOINT = 100
export class Observations {
  readonly #deps: ObservationDeps
  readonly #open = new Set<OpenObservation>()
  #opening = 0
  readonly #held: HeldPayloads = { bytes: 0 }

  constructor(deps: ObservationDeps) {
    this.#deps = deps
  }

  get size(): number {
    return this.#open.size
  }

  /**
   * Creates an observation, which is silent until `begin` is called with the first response. Undefined above the limits. The same token of
   * the same peer replaces its observation.
   */
  async open(request: ObservationRequest): Promise<OpenObservation | undefined> {
    const { messages, endpoints } = this.#deps
    const endpoint = endpoints.of(request.peer)
    const name = request.token.toString('hex')
    const before = endpoint.observations.get(name)
    const isOneMore = before === undefined
    const isFull = this.#open.size + this.#opening >= MAX_OBSERVATIONS
    if (isOneMore && (isFull || endpoint.observations.size >= MAX_OBSERVATIONS_PER_ENDPOINT)) return undefined
    const sequence = before instanceof OpenObservation ? before.sequence : undefined
    before?.end()
    const observation = new OpenObservation(request, endpoint, this.#deps, this.#held, sequence, () => {
      this.#open.delete(observation)
      if (endpoint.observations.get(name) === observation) endpoint.observations.delete(name)
    })
    endpoint.observations.set(name, observation)
    this.#opening++
    try {
      const { access, filter, authorize } = request
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

  /** Ends the observation of the token (RFC 7641 section 3.6). Returns whether there was one. */
  close(peer: Peer, token: Buffer): boolean {
    const observation = this.#deps.endpoints.find(peer.key)?.observations.get(token.toString('hex'))
    observation?.end()
    return observation !== undefined
  }

  /** Pings observers that received nothing for a day. */
  tick(): void {
    const now = this.#deps.nowMs()
    for (const observation of this.#open) observation.tick(now)
  }
}
