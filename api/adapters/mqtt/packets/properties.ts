/** Properties of MQTT 5.0 (section 2.2.2): one table with their types and the packets that may contain them. */
import { MAX_VARINT, PacketWriter, malformed, protocolError } from './wire.ts'
import type { PacketReader } from './wire.ts'

export type Properties = {
  payloadFormatIndicator?: number
  messageExpiryInterval?: number
  contentType?: string
  responseTopic?: string
  correlationData?: Buffer
  subscriptionIdentifiers?: number[]
  sessionExpiryInterval?: number
  assignedClientIdentifier?: string
  serverKeepAlive?: number
  authenticationMethod?: string
  authenticationData?: Buffer
  requestProblemInformation?: number
  willDelayInterval?: number
  requestResponseInformation?: number
  responseInformation?: string
  serverReference?: string
  reasonString?: string
  receiveMaximum?: number
  topicAliasMaximum?: number
  topicAlias?: number
  maximumQos?: number
  retainAvailable?: number
  /** The user properties are in the order in which they were sent [MQTT-3.3.2-18]. */
  userProperties?: (readonly [string, string])[]
  maximumPacketSize?: number
  wildcardSubscriptionAvailable?: number
  subscriptionIdentifierAvailable?: number
  sharedSubscriptionAvailable?: number
}

type Kind = 'byte' | 'flag' | 'uint16' | 'uint32' | 'varint' | 'text' | 'binary' | 'pair'
export type PropertyCarrier =
  | 'connect'
  | 'will'
  | 'connack'
  | 'publish'
  | 'acknowledgement'
  | 'subscribe'
  | 'unsubscribe'
  | 'disconnect'
  | 'auth'

type Definition = { id: number; name: keyof Properties; kind: Kind; carriers: readonly PropertyCarrier[] }

const define = (id: number, name: keyof Properties, kind: Kind, ...carriers: PropertyCarrier[]): Definition => ({
  id,
  name,
  kind,
  carriers,
})

const DEFINITIONS: readonly Definition[] = [
  define(0x01, 'payloadFormatIndicator', 'flag', 'publish', 'will'),
  define(0x02, 'messageExpiryInterval', 'uint32', 'publish', 'will'),
  define(0x03, 'contentType', 'text', 'publish', 'will'),
  define(0x08, 'responseTopic', 'text', 'publish', 'will'),
  define(0x09, 'correlationData', 'binary', 'publish', 'will'),
  define(0x0b, 'subscriptionIdentifiers', 'varint', 'publish', 'subscribe'),
  define(0x11, 'sessionExpiryInterval', 'uint32', 'connect', 'connack', 'disconnect'),
  define(0x12, 'assignedClientIdentifier', 'text', 'connack'),
  define(0x13, 'serverKeepAlive', 'uint16', 'connack'),
  define(0x15, 'authenticationMethod', 'text', 'connect', 'connack', 'auth'),
  define(0x16, 'authenticationData', 'binary', 'connect', 'connack', 'auth'),
  define(0x17, 'requestProblemInformation', 'flag', 'connect'),
  define(0x18, 'willDelayInterval', 'uint32', 'will'),
  define(0x19, 'requestResponseInformation', 'flag', 'connect'),
  define(0x1a, 'responseInformation', 'text', 'connack'),
  define(0x1c, 'serverReference', 'text', 'connack', 'disconnect'),
  define(0x1f, 'reasonString', 'text', 'connack', 'acknowledgement', 'disconnect', 'auth'),
  define(0x21, 'receiveMaximum', 'uint16', 'connect', 'connack'),
  define(0x22, 'topicAliasMaximum', 'uint16', 'connect', 'connack'),
  define(0x23, 'topicAlias', 'uint16', 'publish'),
  define(0x24, 'maximumQos', 'flag', 'connack'),
  define(0x25, 'retainAvailable', 'flag', 'connack'),
  define(0x26, 'userProperties', 'pair', 'connect', 'will', 'connack', 'publish', 'acknowledgement', 'subscribe'),
  define(0x26, 'userProperties', 'pair', 'unsubscribe', 'disconnect', 'auth'),
  define(0x27, 'maximumPacketSize', 'uint32', 'connect', 'connack'),
  define(0x28, 'wildcardSubscriptionAvailable', 'flag', 'connack'),
  define(0x29, 'subscriptionIdentifierAvailable', 'flag', 'connack'),
  define(0x2a, 'sharedSubscriptionAvailable', 'flag', 'connack'),
]

const BY_CARRIER = new Map<PropertyCarrier, Map<number, Definition>>()
for (const definition of DEFINITIONS) {
  for (const carrier of definition.carriers) {
    const known = BY_CARRIER.get(carrier) ?? new Map<number, Definition>()
    BY_CARRIER.set(carrier, known.set(definition.id, definition))
  }
}

/** Properties that must not be 0: sections 3.1.2.11.3 and .4, 3.3.2.3.4 and .8. */
const NEVER_ZERO: ReadonlySet<keyof Properties> = new Set(['receiveMaximum', 'maximumPacketSize', 'topicAlias'])

export const NO_PROPERTIES: Readonly<Properties> = Object.freeze({})

/** Parses the length and the properties. Throws for properties that the packet must not contain, or not repeat [MQTT-2.2.2]. */
export function readProperties(reader: PacketReader, carrier: PropertyCarrier): Readonly<Properties> {
  const length = reader.varint()
  if (length === 0) return NO_PROPERTIES
  const part = reader.part(length)
  const allowed = BY_CARRIER.get(carrier) as Map<number, Definition>
  const found: Record<string, unknown> = {}
  while (!part.isAtEnd) {
    const id = part.varint()
    const definition = allowed.get(id)
    if (definition === undefined) throw malformed(`property ${id} is not allowed in ${carrier}`)
    const { name, kind } = definition
    if (kind === 'pair') {
      const pair = [part.text(), part.text()] as const
      const pairs = found[name] as (readonly [string, string])[] | undefined
      if (pairs === undefined) found[name] = [pair]
      else pairs.push(pair)
      continue
    }
    if (name === 'subscriptionIdentifiers') {
      const identifier = part.varint()
      if (identifier === 0) throw protocolError('a subscription identifier must not be 0')
      if (found[name] !== undefined) throw protocolError(`the property ${name} must not be repeated`)
      found[name] = [identifier]
      continue
    }
    if (found[name] !== undefined) throw protocolError(`the property ${name} must not be repeated`)
    const value = readValue(part, kind)
    if (value === 0 && NEVER_ZERO.has(name)) throw protocolError(`${name} must not be 0`)
    found[name] = value
  }
  return found as Properties
}

function readValue(reader: PacketReader, kind: Exclude<Kind, 'pair'>): number | string | Buffer {
  switch (kind) {
    case 'byte':
      return reader.byte()
    case 'flag': {
      const value = reader.byte()
      if (value > 1) throw protocolError('a flag must be 0 or 1')
      return value
    }
    case 'uint16':
      return reader.uint16()
    case 'uint32':
      return reader.uint32()
    case 'varint':
      return reader.varint()
    case 'text':
      return reader.text()
    case 'binary':
      return reader.binary()
  }
}

const BY_NAME = new Map(DEFINITIONS.map((definition) => [definition.name, definition]))

/** Writes the length and the properties. */
export function writeProperties(writer: PacketWriter, properties: Readonly<Properties>): void {
  const part = formatProperties(properties)
  if (part === undefined) writer.byte(0)
  else writer.varint(part.length).bytes(part)
}

/** The properties without their length; undefined when there are none. */
export function formatProperties(properties: Readonly<Properties>): Buffer | undefined {
  let part: PacketWriter | undefined
  for (const [name, value] of Object.entries(properties)) {
    const definition = BY_NAME.get(name as keyof Properties)
    if (definition === undefined || value === undefined) continue
    part ??= new PacketWriter()
    writeValue(part, definition, value)
  }
  return part?.written
}

function writeValue(part: PacketWriter, { id, kind, name }: Definition, value: unknown): void {
  if (kind === 'pair') {
    for (const [key, text] of value as (readonly [string, string])[]) part.byte(id).text(key).text(text)
    return
  }
  if (name === 'subscriptionIdentifiers') {
    for (const identifier of value as number[]) part.byte(id).varint(Math.min(identifier, MAX_VARINT))
    return
  }
  part.byte(id)
  if (kind === 'byte' || kind === 'flag') part.byte(value as number)
  else if (kind === 'uint16') part.uint16(value as number)
  else if (kind === 'uint32') part.uint32(value as number)
  else if (kind === 'varint') part.varint(value as number)
  else if (kind === 'text') part.text(value as string)
  else part.binary(value as Buffer)
}
