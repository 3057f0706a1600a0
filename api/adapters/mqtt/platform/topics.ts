/** Topics of the platform (contract section 7.3): message paths, whose subtopics may contain wildcards in filters. */
import { parseMessagePath, parseSubtopic, parseSubtopicFilter } from '#api/messages/index.ts'
import type { ChannelPath } from '#api/devices/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { BoundedCache } from '#core/bounded-cache.ts'
import { REASON } from '../packets/reason-codes.ts'
import { ProtocolError } from '../packets/wire.ts'

export type TopicName = { path: ChannelPath; subtopic: string }
export type TopicFilter = { path: ChannelPath; levels: readonly string[]; prefix: string }

/** Parsed topics are cached, because they are repeated. */
const MAX_CACHED_NAMES = 10_000
const names = new BoundedCache<string, TopicName>({ maxEntries: MAX_CACHED_NAMES })

/** Topics at which bridges report their state to a broker (Mosquitto, NanoMQ and EMQX). */
const BROKER_STATUS = ['$SYS/broker/connection/', '$SYS/brokers/']
const DOLLAR = 0x24

export const isBrokerStatus = (topic: string): boolean =>
  topic.charCodeAt(0) === DOLLAR && BROKER_STATUS.some((start) => topic.startsWith(start))

/** Throws an error with the reason code "topic name invalid". */
export function parseTopicName(topic: string): TopicName {
  const known = names.get(topic)
  if (known !== undefined) return known
  const path = parseMessagePath(topic)
  if (path === undefined)
    throw new ProtocolError(
      REASON.topicNameInvalid,
      'a topic is m/<domain>/c/<channel> or channels/<channel>/messages, and a subtopic behind it',
    )
  const name = {
    path: { domain: path.domain, channel: path.channel },
    subtopic: refused(REASON.topicNameInvalid, () => parseSubtopic(path.rest)),
  }
  names.set(topic, name)
  return name
}

/** Throws an error with the reason code "topic filter invalid". */
export function parseTopicFilter(filter: string): TopicFilter {
  const path = parseMessagePath(filter)
  // Wildcards are allowed in the subtopic only.
  if (path === undefined || /[+#]/.test(`${path.domain ?? ''}${path.channel}`))
    throw new ProtocolError(
      REASON.topicFilterInvalid,
      'a filter is m/<domain>/c/<channel> or channels/<channel>/messages, and a subtopic with wildcards behind it',
    )
  const canonical = refused(REASON.topicFilterInvalid, () => parseSubtopicFilter(path.rest))
  const levels = canonical === '' ? [] : canonical.split('.').map((level) => WILDCARDS.get(level) ?? level)
  const prefix = filter.slice(0, filter.length - path.rest.length).replace(/\/$/, '')
  return { path: { domain: path.domain, channel: path.channel }, levels, prefix }
}

/** The internal wildcards `*` and `>` as those of MQTT. */
const WILDCARDS: ReadonlyMap<string, string> = new Map([
  ['*', '+'],
  ['>', '#'],
])

/** The filter of `parseSubtopicFilter` with these levels. */
export function subtopicFilterOf(levels: readonly string[]): string {
  return levels.map((level) => (level === '+' ? '*' : level === '#' ? '>' : level)).join('.')
}

function refused<T>(reasonCode: number, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    if (error instanceof ServiceError && error.kind === 'malformed') throw new ProtocolError(reasonCode, error.message)
    throw error
  }
}
