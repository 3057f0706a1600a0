/** Content-Format numbers of messages (RFC 7252 section 12.3, RFC 8428 section 12.3). */
import { JSON_TYPE, OCTET_STREAM, SENML_CBOR, SENML_JSON, TEXT_PLAIN } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'

const TYPES_BY_NUMBER: ReadonlyMap<number, string> = new Map([
  [0, TEXT_PLAIN],
  [42, OCTET_STREAM],
  [50, JSON_TYPE],
  [110, SENML_JSON],
  [112, SENML_CBOR],
])
const NUMBERS_BY_TYPE = new Map([...TYPES_BY_NUMBER].map(([number, type]) => [type, number]))

export const LINK_FORMAT = 40
const JSON_NUMBER = 50
const SENML_JSON_NUMBER = 110

/** Undefined where none is declared. Throws `unsupported_media_type`. */
export function contentTypeOf(format: number | undefined): string | undefined {
  if (format === undefined) return undefined
  const type = TYPES_BY_NUMBER.get(format)
  if (type === undefined) {
    throw new ServiceError(
      'unsupported_media_type',
      `content format ${format} is not taken: a message is 110, 112, 50, 42 or 0`,
    )
  }
  return type
}

/** The number that a message of the type is sent with; false where the peer accepts another one alone. */
export function formatFor(contentType: string, accept: number | undefined): number | undefined | false {
  const format = NUMBERS_BY_TYPE.get(contentType)
  if (accept === undefined || accept === format) return format
  // A pack in JSON is JSON.
  return accept === JSON_NUMBER && format === SENML_JSON_NUMBER ? JSON_NUMBER : false
}
