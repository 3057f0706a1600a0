/** Content-Format numbers of messages (RFC 7252 section 12.3, RFC 8428 section 12.3). */
import {
  JSON_TYPE,
  OCTET_STREAM,
  SENML_CBOR,
  SENML_JSON,
  TEXT_PLAIN,
  packOfFields,
  packToCbor,
  packToJson,
} from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { parseWithExactIntegers } from '#core/exact-integers.ts'

const TYPES_BY_NUMBER: ReadonlyMap<number, string> = new Map([
  [0, TEXT_PLAIN],
  [42, OCTET_STREAM],
  [50, JSON_TYPE],
  [110, SENML_JSON],
  [112, SENML_CBOR],
])
const NUMBERS_BY_TYPE = new Map([...TYPES_BY_NUMBER].map(([number, type]) => [type, number]))

/** RFC 8132 section 8.2; only for what a device says about itself. */
const MERGE_PATCH: readonly [number, string] = [52, 'application/merge-patch+json']

export const LINK_FORMAT = 40
const JSON_NUMBER = 50
const SENML_JSON_NUMBER = 110
const SENML_CBOR_NUMBER = 112

/** A payload with the number of its format, if it has one. */
export type Representation = { payload: Buffer; contentFormat: number | undefined }

/** Packs converted to the other notation, because many observers request the same one. */
const converted = new WeakMap<LiveMessage, Buffer>()

/** Undefined where none is declared. Throws `unsupported_media_type`. */
export function contentTypeOf(format: number | undefined): string | undefined {
  if (format === undefined) return undefined
  const type = TYPES_BY_NUMBER.get(format)
  if (type === undefined) {
    throw new ServiceError(
      'unsupported_media_type',
      `content format ${format} is not supported: use 110, 112, 50, 42 or 0`,
    )
  }
  return type
}

/** Returns the type of a body that a device sends about itself, which may be a merge patch. */
export function deviceContentTypeOf(format: number | undefined): string | undefined {
  return format === MERGE_PATCH[0] ? MERGE_PATCH[1] : contentTypeOf(format)
}

/** Whether it is one of the two formats of SenML. */
export const isSenmlFormat = (format: number | undefined): boolean =>
  format === SENML_JSON_NUMBER || format === SENML_CBOR_NUMBER

/** The difference of a document of a device's state as SenML; undefined: it is not flat, or this is no such document. */
export function deltaAsSenml(document: Buffer, format: number): { payload: Buffer; contentType: string } | undefined {
  const { delta } = parseWithExactIntegers(String(document)) as { delta?: Readonly<Record<string, unknown>> }
  const pack = delta === undefined ? undefined : packOfFields(delta)
  if (pack === undefined) return undefined
  return format === SENML_CBOR_NUMBER
    ? { payload: packToCbor(pack), contentType: SENML_CBOR }
    : { payload: pack, contentType: SENML_JSON }
}

/** Undefined for a type without a number. */
export const formatOf = (contentType: string): number | undefined => NUMBERS_BY_TYPE.get(contentType)

/**
 * The message in the accepted format, by default SenML JSON for a pack; undefined when the message has another format. Stored packs have
 * no notation and are available in both.
 */
export function represent(message: LiveMessage, accept: number | undefined): Representation | undefined {
  const { contentType, payload } = message
  if (contentType === SENML_JSON || contentType === SENML_CBOR) {
    const contentFormat = accept ?? SENML_JSON_NUMBER
    if (contentFormat === SENML_CBOR_NUMBER) return { payload: packIn(SENML_CBOR, message), contentFormat }
    // A pack in JSON is JSON.
    const isJson = contentFormat === SENML_JSON_NUMBER || contentFormat === JSON_NUMBER
    return isJson ? { payload: packIn(SENML_JSON, message), contentFormat } : undefined
  }
  const contentFormat = NUMBERS_BY_TYPE.get(contentType)
  return accept === undefined || accept === contentFormat ? { payload, contentFormat } : undefined
}

function packIn(contentType: string, message: LiveMessage): Buffer {
  if (message.contentType === contentType) return message.payload
  let payload = converted.get(message)
  if (payload === undefined) {
    payload = contentType === SENML_CBOR ? packToCbor(message.payload) : packToJson(message.payload)
    converted.set(message, payload)
  }
  return payload
}
