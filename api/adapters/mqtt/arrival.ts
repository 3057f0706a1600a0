/** A message that was stored, on its way to the sessions that subscribed to it; put into bytes once for many of them. */
import type { Envelope } from '#api/messages/index.ts'
import type { Properties } from './packets/properties.ts'
import { NO_PROPERTIES } from './packets/properties.ts'
import type { Qos, Version } from './packets/protocol.ts'
import type { PublishTemplate } from './packets/publish.ts'
import { formatPublish } from './packets/publish.ts'

export type ArrivalFacts = {
  subtopic: string
  payload: Buffer
  qos: Qos
  /** As it was published. */
  retain: boolean
  properties: Readonly<Properties>
  /** Milliseconds of the epoch after which it is sent to nobody; undefined: none. */
  expiresAtMs: number | undefined
  /** Names the session that published it, for those who want no message of their own. */
  sender: number | undefined
  envelope: Envelope | undefined
  /** The batch that stored it and its number in there; undefined: it is not stored. */
  batchSeq: number | undefined
  index: number
}

export class Arrival {
  readonly facts: ArrivalFacts
  /** Messages on their way that are this one. */
  #holders = 0
  #last: { version: Version; retain: boolean; prefix: string | undefined; template: PublishTemplate } | undefined

  constructor(facts: ArrivalFacts) {
    this.facts = facts
  }

  /** About how much memory it takes: what was published, and the packet made of it. */
  get bytes(): number {
    return 2 * this.facts.payload.length
  }

  /** One more, or one fewer, has it on its way; the bytes that are kept more, or fewer, for it. */
  hold(): number {
    this.#holders += 1
    return this.#holders === 1 ? this.bytes : 0
  }

  release(): number {
    this.#holders -= 1
    return this.#holders === 0 ? -this.bytes : 0
  }

  get qos(): Qos {
    return this.facts.qos
  }

  isExpired(nowMs: number): boolean {
    return this.facts.expiresAtMs !== undefined && nowMs >= this.facts.expiresAtMs
  }

  topicUnder(prefix: string | undefined): string {
    const { subtopic } = this.facts
    if (prefix === undefined) return subtopic
    return subtopic === '' ? prefix : `${prefix}/${subtopic.replaceAll('.', '/')}`
  }

  /** The packet in this form; the last one is kept, since neighbours mostly want the same. */
  template(
    version: Version,
    qos: Qos,
    retain: boolean,
    prefix: string | undefined,
    identifiers: readonly number[] | undefined,
  ): PublishTemplate {
    const isPlain = identifiers === undefined && this.facts.expiresAtMs === undefined
    const last = this.#last
    if (
      isPlain &&
      last !== undefined &&
      last.version === version &&
      last.template.qos === qos &&
      last.retain === retain &&
      last.prefix === prefix
    )
      return last.template
    const template = formatPublish(version, {
      topic: this.topicUnder(prefix),
      payload: this.facts.payload,
      qos,
      retain,
      properties: version === 5 ? this.#properties(identifiers) : NO_PROPERTIES,
    })
    if (isPlain) this.#last = { version, retain, prefix, template }
    return template
  }

  #properties(identifiers: readonly number[] | undefined): Readonly<Properties> {
    const { properties, expiresAtMs } = this.facts
    if (identifiers === undefined && expiresAtMs === undefined) return properties
    return {
      ...properties,
      // What is left of it [MQTT-3.3.2-6].
      ...(expiresAtMs === undefined
        ? {}
        : { messageExpiryInterval: Math.max(1, Math.ceil((expiresAtMs - Date.now()) / 1000)) }),
      ...(identifiers === undefined ? {} : { subscriptionIdentifiers: [...identifiers] }),
    }
  }
}

/** Of what a publisher sent, what its receivers are sent unaltered (section 3.3.2.3). */
export function forwarded(properties: Readonly<Properties>): Readonly<Properties> {
  const { payloadFormatIndicator, contentType, responseTopic, correlationData, userProperties } = properties
  const kept = {
    ...(payloadFormatIndicator === undefined ? {} : { payloadFormatIndicator }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(responseTopic === undefined ? {} : { responseTopic }),
    ...(correlationData === undefined ? {} : { correlationData }),
    ...(userProperties === undefined ? {} : { userProperties }),
  }
  return Object.keys(kept).length === 0 ? NO_PROPERTIES : kept
}
