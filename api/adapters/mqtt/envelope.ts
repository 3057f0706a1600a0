/** Converts the properties of a packet to the stored envelope and back. */
import type { Envelope } from '#api/messages/index.ts'
import type { Properties } from './packets/properties.ts'
import { NO_PROPERTIES } from './packets/properties.ts'
import type { Qos } from './packets/protocol.ts'

/** Undefined for a message with QoS 1 and no properties. */
export function envelopeOf(
  { qos, retain, properties }: { qos: Qos; retain: boolean; properties: Readonly<Properties> },
  sender: number | undefined,
  nowMs: number,
): Envelope | undefined {
  if (qos === 1 && !retain && sender === undefined && properties === NO_PROPERTIES) return undefined
  const { messageExpiryInterval, payloadFormatIndicator, contentType, responseTopic } = properties
  const { correlationData, userProperties } = properties
  const envelope: Envelope = {
    ...(qos === 1 ? {} : { qos }),
    ...(retain ? { retain } : {}),
    ...(sender === undefined ? {} : { sender }),
    ...(messageExpiryInterval === undefined ? {} : { expiresAtMs: nowMs + messageExpiryInterval * 1000 }),
    ...(payloadFormatIndicator === undefined ? {} : { payloadFormat: payloadFormatIndicator }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(responseTopic === undefined ? {} : { responseTopic }),
    ...(correlationData === undefined ? {} : { correlationData: correlationData.toString('base64') }),
    ...(userProperties === undefined ? {} : { userProperties }),
  }
  return Object.keys(envelope).length === 0 ? undefined : envelope
}

/** The user property `traceparent` (W3C Trace Context for MQTT, section 3); undefined where there is none. */
export function traceparentOf({ userProperties }: Readonly<Properties>): string | undefined {
  return userProperties?.find(([name]) => name === 'traceparent')?.[1]
}

export function propertiesOf(envelope: Envelope | undefined): Readonly<Properties> {
  if (envelope === undefined) return NO_PROPERTIES
  const { payloadFormat, contentType, responseTopic, correlationData, userProperties } = envelope
  const properties: Properties = {
    ...(payloadFormat === undefined ? {} : { payloadFormatIndicator: payloadFormat }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(responseTopic === undefined ? {} : { responseTopic }),
    ...(correlationData === undefined ? {} : { correlationData: Buffer.from(correlationData, 'base64') }),
    ...(userProperties === undefined ? {} : { userProperties: [...userProperties] }),
  }
  return Object.keys(properties).length === 0 ? NO_PROPERTIES : properties
}
