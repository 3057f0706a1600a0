/** A message that is delivered to subscribed sessions. Sessions that need the same packet share the formatted packet. */
import type { Envelope } from '#api/messages/index.ts'
import type { Properties } from './packets/properties.ts'
import { NO_PROPERTIES } from './packets/properties.ts'
import type { Qos, ProtocolVersion } from './packets/protocol.ts'
import type { PublishTemplate } from './packets/publish.ts'
import { formatPublish } from './packets/publish.ts'

export type ApplicationMessageFields = {
  subtopic: string
  payload: Buffer
  qos: Qos
  /** The retain flag of the PUBLISH packet that the publisher sent. */
  retain: boolean
  properties: Readonly<Properties>
  /** Epoch milliseconds after which the message is not delivered; undefined: no expiry. */
  expiresAtMs: number | undefined
  /** The session that published it, for the option "no local". */
  sender: number | undefined
  envelope: Envelope | undefined
  /** The batch that stored it and its number in the batch; undefined when it is not stored. */
  batchSeq: number | undefined
  index: number
}

export class ApplicationMessage {
  readonly facts: ApplicationMessageFields
  /** The number of outbound messages that share it. */
  #holders = 0
  #last:
    | { version: ProtocolVersion; retain: boolean; prefix: string | undefined; template: PublishTemplate }
    | undefined

  constructor(facts: ApplicationMessageFields) {
    this.facts = facts
  }

  /** The approximate memory of the message and its formatted packet. */
  get bytes(): number {
    return 2 * this.facts.payload.length
  }

  /** Adds one outbound message. Returns the change of the memory in use, in bytes. */
  hold(): number {
    this.#holders += 1
    return this.#holders === 1 ? this.bytes : 0
  }

  /** Removes one outbound message. Returns the change of the memory in use, in bytes. */
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

  /** Returns the packet in this form. The last packet is cached, because the next receiver usually needs the same form. */
  template(
    version: ProtocolVersion,
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
      // The remaining expiry interval [MQTT-3.3.2-6].
      ...(expiresAtMs === undefined
        ? {}
        : { messageExpiryInterval: Math.max(1, Math.ceil((expiresAtMs - Date.now()) / 1000)) }),
      ...(identifiers === undefined ? {} : { subscriptionIdentifiers: [...identifiers] }),
    }
  }
}

/** The properties that are forwarded to receivers unchanged (section 3.3.2.3). */
export function forwardedProperties(properties: Readonly<Properties>): Readonly<Properties> {
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
