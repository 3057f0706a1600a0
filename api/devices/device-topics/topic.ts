/** Topics of a device itself: `c/<domain>/<noun>[/<level>…]`. They are no channels, so nothing is stored as a message. */

export type DeviceTopic = {
  /** Id or alias of the domain, as the device wrote it. */
  readonly domain: string
  /** What the topic is about: `state`. */
  readonly noun: string
  /** The levels after the noun. In a filter they may be wildcards. */
  readonly levels: readonly string[]
}

const DEVICE_TOPIC = /^\/?c\/([^/]+)\/([^/]+)(?:\/(.*))?$/s

const SMALL_C = 0x63
const SLASH = 0x2f

/** Whether the topic, filter or path is one of a device itself, also an incomplete one. It is asked for each message. */
export function isDeviceTopic(topic: string): boolean {
  const first = topic.charCodeAt(0) === SLASH ? 1 : 0
  return topic.charCodeAt(first) === SMALL_C && (topic.length === first + 1 || topic.charCodeAt(first + 1) === SLASH)
}

/** Undefined for every other text, and for an incomplete topic. */
export function parseDeviceTopic(topic: string): DeviceTopic | undefined {
  const found = DEVICE_TOPIC.exec(topic)
  if (found === null) return undefined
  const [, domain, noun, rest] = found
  return { domain: domain as string, noun: noun as string, levels: rest === undefined ? [] : rest.split('/') }
}

export const formatDeviceTopic = ({ domain, noun, levels }: DeviceTopic): string =>
  ['c', domain, noun, ...levels].join('/')
