/**
 * The nouns below `c/<domain>/`, where devices and the platform talk about the device itself: its state, its commands. A protocol finds
 * the service of a noun here. What is not registered does not exist, so a new noun is closed until it is added.
 */
import { ServiceError } from '#core/errors/index.ts'
import type { IdentifiedDevice } from '../gate/index.ts'
import { DEVICE_TOPIC_METRICS } from './metrics.ts'
import type { DeviceTopic } from './topic.ts'

/** What a device sent. */
export type DeviceMessage = {
  readonly payload: Buffer
  /** The number of a CoAP content format is translated by its adapter. Undefined: not declared. */
  readonly contentType: string | undefined
  /** MQTT 5.0, section 3.3.2.3.6. */
  readonly correlationData: Buffer | undefined
}

/** `slow`: there is no room for now, and it may be sent later. The others: it will never be sent to this connection. */
export type DropReason = 'slow' | 'expired' | 'too_large'

/** What a device is sent. */
export type ToDevice = {
  /** The levels of the topic after the noun. */
  readonly levels: readonly string[]
  readonly payload: Buffer
  readonly contentType: string
  /** A topic of the same device to which it may answer; adapters without such a property leave it out. */
  readonly responseTopic?: string | undefined
  readonly correlationData?: Buffer | undefined
  /** Epoch milliseconds after which it is not sent any more. Undefined: no end. */
  readonly expiresAtMs?: number | undefined
  /**
   * The device has acknowledged it. With MQTT and QoS 0, which has no acknowledgement, called when it was sent. It is not called when the
   * connection ends before; the subscription is closed then.
   */
  readonly onAcknowledged?: (() => void) | undefined
  /** It is not sent to this connection, which goes on. Called instead of `onAcknowledged`, also before `send` returns. */
  readonly onDropped?: ((reason: DropReason) => void) | undefined
}

/** One subscribed connection of a device. */
export type DeviceSink = {
  readonly device: IdentifiedDevice
  /** The topic filter without the noun; its domain is written as the device wrote it. */
  readonly topic: DeviceTopic
  /** Queues a message. Never throws. */
  send(message: ToDevice): void
  /** The service cannot continue: the connection is closed, so that the device comes back. */
  failed(error: unknown): void
}

export type DeviceSubscription = {
  /** The subscription or its connection has ended. Nothing is sent afterwards. */
  close(): void
}

/** What a device reads. */
export type DeviceRepresentation = {
  readonly payload: Buffer
  readonly contentType: string
}

/** A request of a device of a protocol with methods (CoAP), below the noun. */
export type DeviceRequest = {
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete'
  readonly levels: readonly string[]
  /** Query options without the secret: `name=value`. */
  readonly queries: readonly string[]
  readonly message: DeviceMessage
}

/** The service of a noun. It knows no protocol; access is decided before it is called. */
export type DeviceNoun = {
  /** The name in topics and paths. */
  readonly noun: string
  /** Takes a published message. Resolves after the commit. Throws `not_found` for levels that devices cannot publish to. */
  publish(device: IdentifiedDevice, levels: readonly string[], message: DeviceMessage): Promise<void>
  /** Throws `not_found` for levels that devices cannot subscribe to. `+` and `#` are wildcards. */
  checkFilter(levels: readonly string[]): void
  /**
   * Begins to send what the filter selects: what waits for the device at once, then each change. The levels were checked. It is called for
   * each connection with the filter, so also when a stored session is resumed.
   */
  subscribe(sink: DeviceSink): DeviceSubscription
  /** Answers a request. Throws `not_found` and `method_not_allowed`. Undefined: done, without a representation. */
  request(device: IdentifiedDevice, request: DeviceRequest): Promise<DeviceRepresentation | undefined>
  /**
   * Observes what `get` of these levels returns: `send` is called for each later change with the whole representation, of which only the
   * newest matters. Undefined: the resource cannot be observed.
   */
  observe(sink: DeviceSink): DeviceSubscription | undefined
}

export type DeviceTopics = {
  register(noun: DeviceNoun): void
  /** Throws `not_found` for a noun that is not registered. */
  get(noun: string): DeviceNoun
  stop(): void
}

export function createDeviceTopics(): DeviceTopics {
  const nouns = new Map<string, DeviceNoun>()
  const open = new Map<string, number>()
  const removeSource = DEVICE_TOPIC_METRICS.subscriptions.from(() =>
    [...open].map(([noun, value]) => ({ labels: { noun }, value })),
  )
  const count = (noun: string, change: 1 | -1) => void open.set(noun, (open.get(noun) ?? 0) + change)
  return {
    register(noun) {
      if (nouns.has(noun.noun)) throw new Error(`the noun ${noun.noun} is registered twice`)
      open.set(noun.noun, 0)
      nouns.set(
        noun.noun,
        counted(noun, (change) => count(noun.noun, change)),
      )
    },
    get(noun) {
      const found = nouns.get(noun)
      if (found === undefined) throw noSuchTopic()
      return found
    },
    stop: removeSource,
  }
}

/** The noun, with each open subscription and observation counted. */
function counted(noun: DeviceNoun, count: (change: 1 | -1) => void): DeviceNoun {
  const opened = (subscription: DeviceSubscription): DeviceSubscription => {
    let isOpen = true
    count(1)
    return {
      close() {
        if (isOpen) count(-1)
        isOpen = false
        subscription.close()
      },
    }
  }
  return {
    noun: noun.noun,
    publish: (device, levels, message) => noun.publish(device, levels, message),
    checkFilter: (levels) => noun.checkFilter(levels),
    subscribe: (sink) => opened(noun.subscribe(sink)),
    request: (device, request) => noun.request(device, request),
    observe: (sink) => {
      const observed = noun.observe(sink)
      return observed === undefined ? undefined : opened(observed)
    },
  }
}

/** The error for every topic below `c/` that does not exist. */
export const noSuchTopic = (): ServiceError => new ServiceError('not_found', 'a device has no such topic')
