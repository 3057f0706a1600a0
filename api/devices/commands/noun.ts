/**
 * Commands on the topics of a device, `c/<domain>/commands/…`. A subscription to `requests/+/+` gets what is open at once, then each new command;
 * `results/<id>` takes the answer. The device's acknowledgement is the delivery.
 */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { compileValidator, parseExactBody } from '#http/index.ts'
import { noSuchTopic } from '../device-topics/index.ts'
import type { DeviceNoun, DeviceSink, DeviceSubscription, DropReason, ToDevice } from '../device-topics/index.ts'
import type { CommandDelivery } from './delivery.ts'
import type { Offered } from './repository.ts'
import { CommandResult, presentOffered } from './schema.ts'
import type { CommandResult as GivenResult } from './schema.ts'

export const NOUN = 'commands'
const [REQUESTS, RESULTS] = ['requests', 'results']
const JSON_TYPE = 'application/json'
/** Levels of `requests/<id>/<name>`. */
const REQUEST_LEVELS = 3
const MAX_ID_BYTES = 64
/** The delay before a look that failed is repeated. */
const AGAIN_MS = 1000

const validate = compileValidator({ schema: CommandResult })

/** The answer of a device. Throws `malformed`. */
function resultOf(payload: Buffer): GivenResult {
  const checked = validate(parseExactBody(payload))
  if ('error' in checked) throw checked.error
  return checked.value as GivenResult
}

/** Whether a filter selects these levels. */
function selects(filter: readonly string[], levels: readonly string[]): boolean {
  for (const [index, level] of filter.entries()) {
    if (level === '#') return true
    if (index >= levels.length || (level !== '+' && level !== levels[index])) return false
  }
  return filter.length === levels.length
}

/** Whether a filter can select a request. */
function canSelect(filter: readonly string[]): boolean {
  const [first, ...others] = filter
  if (first === '#') return true
  if (first !== REQUESTS && first !== '+') return false
  const end = others.indexOf('#')
  return end === -1 ? filter.length === REQUEST_LEVELS : filter.length <= REQUEST_LEVELS + 1
}

function messageOf(command: Offered, domain: string): ToDevice {
  const { id, name, expiresAt, payload, hasPayload } = command
  return {
    levels: [REQUESTS as string, id, name],
    payload: hasPayload ? Buffer.from(JSON.stringify(payload)) : Buffer.alloc(0),
    contentType: JSON_TYPE,
    responseTopic: `c/${domain}/${NOUN}/${RESULTS}/${id}`,
    correlationData: Buffer.from(id),
    expiresAtMs: Date.parse(expiresAt),
  }
}

export function createCommandNoun(delivery: CommandDelivery): DeviceNoun {
  async function answer(device: DeviceSink['device'], id: string | undefined, payload: Buffer) {
    if (id === undefined || id.length > MAX_ID_BYTES) throw noSuchTopic()
    return await delivery.answer(device, id, { bytes: payload.length, result: () => resultOf(payload) })
  }

  return {
    noun: NOUN,
    async publish(device, levels, { payload, correlationData }) {
      const [first, id = correlationData?.toString(), ...more] = levels
      if (first !== RESULTS || more.length > 0) throw noSuchTopic()
      await answer(device, id, payload)
    },
    checkFilter(levels) {
      if (!canSelect(levels)) throw noSuchTopic()
    },
    subscribe: (sink) => new Following(delivery, sink),
    async request(device, { method, levels, queries, message }) {
      const [first, id, ...more] = levels
      if (first === undefined) {
        if (method !== 'get') throw new ServiceError('method_not_allowed', 'commands are read with GET')
        const wait = queries.find((query) => query.startsWith('wait='))?.slice('wait='.length)
        if (wait !== undefined) throw new ServiceError('malformed', 'commands are observed instead of waiting for them')
        return representationOf(await delivery.take(device, undefined, new AbortController().signal))
      }
      if (first !== RESULTS || id === undefined || more.length > 0) throw noSuchTopic()
      if (method !== 'post') throw new ServiceError('method_not_allowed', 'results are sent with POST')
      await answer(device, id, message.payload)
      return undefined
    },
    observe(sink) {
      if (sink.topic.levels.length > 0) return undefined
      return new Following(delivery, sink, true)
    },
  }
}

const representationOf = (commands: readonly Offered[]) => ({
  payload: Buffer.from(JSON.stringify({ commands: commands.map(presentOffered) })),
  contentType: JSON_TYPE,
})

/** Sends the open commands to one connection of a device, each once. Looks for new ones when the journal tells of some. */
class Following implements DeviceSubscription {
  readonly #delivery: CommandDelivery
  readonly #sink: DeviceSink
  /** The whole representation is sent, of which the newest counts; reading it is the delivery. */
  readonly #isRepresentation: boolean
  readonly #unlisten: () => void
  #lastKey: number | undefined
  #isClosed = false
  #isWorking = false
  #isWoken = false
  #again: NodeJS.Timeout | undefined
  /** Delivered, and not written yet. */
  #acknowledged: number[] = []

  constructor(delivery: CommandDelivery, sink: DeviceSink, isRepresentation = false) {
    this.#delivery = delivery
    this.#sink = sink
    this.#isRepresentation = isRepresentation
    this.#unlisten = delivery.listen(sink.device.clientKey, () => void this.#work())
    void this.#work()
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#unlisten()
    clearTimeout(this.#again)
    if (!this.#isWorking && this.#acknowledged.length > 0) void this.#writeLast()
  }

  /** Looks and writes, one after the other, until nothing is left. Never rejects. */
  async #work(): Promise<void> {
    this.#isWoken = true
    if (this.#isWorking || this.#again !== undefined) return
    this.#isWorking = true
    try {
      while (!this.#isClosed && this.#again === undefined && (this.#isWoken || this.#acknowledged.length > 0)) {
        await this.#writeAcknowledged()
        if (!this.#isWoken) continue
        this.#isWoken = false
        await (this.#isRepresentation ? this.#sendRepresentation() : this.#sendNew())
      }
    } catch (error) {
      this.#failed(error)
    } finally {
      this.#isWorking = false
      if (this.#isClosed && this.#acknowledged.length > 0) void this.#writeLast()
    }
  }

  #failed(error: unknown): void {
    if (this.#isClosed) return
    const kind = kindOf(error)
    if (kind === 'unavailable' || kind === 'timeout') {
      // All connections would come back at once and ask the same database.
      this.#lookAgain()
      return
    }
    // The connection comes back, and everything that is open is sent again.
    this.#sink.failed(error)
    this.close()
  }

  #lookAgain(): void {
    this.#again ??= setTimeout(() => {
      this.#again = undefined
      void this.#work()
    }, AGAIN_MS).unref()
  }

  async #writeAcknowledged(): Promise<void> {
    const keys = this.#acknowledged
    this.#acknowledged = []
    try {
      await this.#delivery.delivered(this.#sink.device, keys)
    } catch (error) {
      this.#acknowledged.unshift(...keys)
      throw error
    }
  }

  async #sendNew(): Promise<void> {
    const { device, topic } = this.#sink
    const found = await this.#delivery.open(device, this.#lastKey ?? 0)
    if (this.#isClosed) return
    for (const command of found) {
      this.#lastKey = command.key
      if (!selects(topic.levels, [REQUESTS as string, command.id, command.name])) continue
      this.#sink.send({
        ...messageOf(command, topic.domain),
        onAcknowledged: () => this.#onAcknowledged(command.key),
        onDropped: (reason) => this.#onDropped(command.key, reason),
      })
      // Dropped: the others wait with it, so that they keep their order.
      if (this.#lastKey < command.key) return
    }
  }

  async #sendRepresentation(): Promise<void> {
    const { device } = this.#sink
    if (this.#lastKey === undefined) {
      // What is open is in the first answer, which is read after this.
      this.#lastKey = 0
      this.#lastKey = await this.#delivery.newest(device)
      return
    }
    // A device knows that its answers end the others, so only a new command is worth a notification.
    if ((await this.#delivery.newest(device)) <= this.#lastKey) return
    const all = await this.#delivery.open(device, 0)
    if (this.#isClosed) return
    this.#lastKey = all.at(-1)?.key ?? this.#lastKey
    const keys = all.map(({ key }) => key)
    this.#sink.send({
      levels: [],
      ...representationOf(all),
      onAcknowledged: () => {
        for (const key of keys) this.#onAcknowledged(key)
      },
    })
  }

  #onAcknowledged(key: number): void {
    this.#acknowledged.push(key)
    if (this.#isWorking || (this.#again !== undefined && !this.#isClosed)) return
    this.#isWorking = true
    // The acknowledgements that arrive together are written together.
    setImmediate(() => {
      this.#isWorking = false
      if (this.#isClosed) void this.#writeLast()
      else void this.#work()
    })
  }

  /** One for which the connection had no room is sent later. One that never fits stays queued until it expires, or another connection takes it. */
  #onDropped(key: number, reason: DropReason): void {
    if (reason !== 'slow' || this.#isClosed) return
    this.#lastKey = Math.min(this.#lastKey ?? 0, key - 1)
    this.#lookAgain()
  }

  /** Acknowledgements that arrived before the end count. */
  async #writeLast(): Promise<void> {
    // Without them the commands stay queued, and are sent again.
    await this.#writeAcknowledged().catch((error: unknown) => kindOf(error))
  }
}
