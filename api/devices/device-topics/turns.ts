/**
 * Turns of what devices write about themselves: the writes of one device are done one after the other, in the order in which they came, and
 * those of all devices use few connections to the database. Without turns, a device that writes without a pause would hold every connection,
 * waiting for its own row.
 */
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import type { IdentifiedDevice } from '../gate/index.ts'

/** Writes that are done at a time, of one domain and in all. */
const MAX_WRITING = 6
const MAX_WRITING_OF_DOMAIN = 4
const MAX_WAIT_MS = 10_000
/** Devices of one domain that wait. */
const MAX_WAITING_DEVICES = 20_000
/** Writes of one device that wait. An MQTT connection is not read while it has as many messages without an answer. */
const MAX_WAITING_OF_DEVICE = 1000
/** What waits keeps its bytes: of the process, and of one domain. */
const MAX_WAITING_BYTES = 32 * 1024 * 1024
const MAX_WAITING_BYTES_OF_DOMAIN = 8 * 1024 * 1024

/**
 * `refusal`: it takes no more until it is empty. `failure`: what waits in it fails as well.
 */
type Queue = {
  last: Promise<unknown>
  waiting: number
  refusal: ServiceError | undefined
  failure: ServiceError | undefined
}

export class DeviceTurns {
  readonly #what: string
  readonly #queues = new Map<number, Queue>()
  readonly #slots: Slots
  /** Bytes of what waits and of what is written, of each domain and in all. */
  readonly #bytesOf = new Map<number, number>()
  #bytes = 0

  /** `what` names the writes in errors: `reports`. */
  constructor(what: string) {
    this.#what = what
    this.#slots = new Slots({
      what: `${what} of devices`,
      max: MAX_WRITING,
      share: MAX_WRITING_OF_DOMAIN,
      waitMs: MAX_WAIT_MS,
      maxWaiting: MAX_WAITING_DEVICES,
      retryAfterSeconds: 1,
      shareKind: 'unavailable',
    })
  }

  /** Bytes of what waits and of what is written. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * Its place in the order is that of the call. `bytes`: what it keeps in memory until it is done. Rejects with `unavailable` when too many
   * wait, and with the errors of the work. What stands behind an `unavailable` is rejected with it: its sender repeats everything in order, and
   * an older write that is repeated alone would come after a newer one.
   */
  async run<T>(
    { clientKey, domainKey }: Pick<IdentifiedDevice, 'clientKey' | 'domainKey'>,
    bytes: number,
    work: () => Promise<T>,
  ): Promise<T> {
    const queue: Queue = this.#queues.get(clientKey) ?? {
      last: Promise.resolve(),
      waiting: 0,
      refusal: undefined,
      failure: undefined,
    }
    if (queue.refusal !== undefined) throw queue.refusal
    const refusal = this.#refusalFor(queue, domainKey, bytes)
    if (refusal !== undefined) {
      this.#refuseMore(clientKey, queue, refusal)
      throw refusal
    }
    this.#enter(clientKey, queue)
    this.#count(domainKey, bytes)
    const mine = queue.last.then(() => {
      if (queue.failure !== undefined) throw queue.failure
      return this.#slots.run(domainKey, work)
    })
    queue.last = mine.catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.kind !== 'unavailable' || queue.failure !== undefined) return
      queue.failure = error
      this.#refuseMore(clientKey, queue, error)
    })
    try {
      return await mine
    } finally {
      this.#count(domainKey, -bytes)
      this.#leave(clientKey, queue)
    }
  }

  #refusalFor(queue: Queue, domainKey: number, bytes: number): ServiceError | undefined {
    const what = this.#what
    const refusal = (text: string) => new ServiceError('unavailable', `${text}: try again`, { retryAfterSeconds: 1 })
    if (queue.waiting >= MAX_WAITING_OF_DEVICE) return refusal(`too many ${what} of this device are waiting`)
    const ofDomain = (this.#bytesOf.get(domainKey) ?? 0) + bytes
    if (ofDomain > MAX_WAITING_BYTES_OF_DOMAIN) return refusal(`too many ${what} of this domain are waiting`)
    return this.#bytes + bytes > MAX_WAITING_BYTES ? refusal(`too many ${what} are waiting`) : undefined
  }

  /** At least until the sender knows of it, which is in this turn of the event loop: what it sends next must not overtake. */
  #refuseMore(clientKey: number, queue: Queue, error: ServiceError): void {
    queue.refusal ??= error
    this.#enter(clientKey, queue)
    setImmediate(() => this.#leave(clientKey, queue))
  }

  #enter(clientKey: number, queue: Queue): void {
    this.#queues.set(clientKey, queue)
    queue.waiting++
  }

  #leave(clientKey: number, queue: Queue): void {
    queue.waiting--
    if (queue.waiting === 0) this.#queues.delete(clientKey)
  }

  #count(domainKey: number, bytes: number): void {
    this.#bytes += bytes
    const ofDomain = (this.#bytesOf.get(domainKey) ?? 0) + bytes
    if (ofDomain > 0) this.#bytesOf.set(domainKey, ofDomain)
    else this.#bytesOf.delete(domainKey)
  }
}
