/**
 * Turns of reports: those of one device are written one after the other, in the order in which they came, and those of all devices use few
 * connections to the database. Without turns, a device that reports without a pause would hold every connection, waiting for its own row.
 */
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import type { IdentifiedDevice } from '../gate/index.ts'

/** Reports that are written at a time, of one domain and in all. */
const MAX_WRITING = 6
const MAX_WRITING_OF_DOMAIN = 4
const MAX_WAIT_MS = 10_000
/** Devices of one domain that wait. */
const MAX_WAITING_DEVICES = 20_000
/** Reports of one device that wait. An MQTT connection is not read while it has as many messages without an answer. */
const MAX_WAITING_REPORTS = 1000

type Queue = { last: Promise<unknown>; waiting: number }

export class ReportTurns {
  readonly #queues = new Map<number, Queue>()
  readonly #slots = new Slots({
    what: 'reports of devices',
    max: MAX_WRITING,
    share: MAX_WRITING_OF_DOMAIN,
    waitMs: MAX_WAIT_MS,
    maxWaiting: MAX_WAITING_DEVICES,
    retryAfterSeconds: 1,
    shareKind: 'unavailable',
  })

  /** Its place in the order is that of the call. Rejects with `unavailable` when too many wait, and with the errors of the work. */
  async run<T>({ clientKey, domainKey }: IdentifiedDevice, work: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(clientKey) ?? { last: Promise.resolve(), waiting: 0 }
    if (queue.waiting >= MAX_WAITING_REPORTS)
      throw new ServiceError('unavailable', 'too many reports of this device are waiting: try again', {
        retryAfterSeconds: 1,
      })
    this.#queues.set(clientKey, queue)
    queue.waiting++
    const mine = queue.last.then(() => this.#slots.run(domainKey, work))
    queue.last = mine.catch(() => undefined)
    try {
      return await mine
    } finally {
      queue.waiting--
      if (queue.waiting === 0) this.#queues.delete(clientKey)
    }
  }
}
