/**
 * Converts the bytes of a message to stored content (contract decision 17b). Accepted content is stored unchanged; content that
 * PostgreSQL would reject or change is rejected.
 */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { parseJsonBody } from '#http/index.ts'
import { requireBoundedJson } from '#core/json-text.ts'
import { parseExactJson } from '../model/exact-json.ts'
import type { MessageContent } from '../model/message.ts'
import { parseCborPack, parseJson, resolvePack, resolvePlainPack } from '../senml/index.ts'
import { RAW_FORMAT } from '../store/message-rows.ts'

export const SENML_JSON = 'application/senml+json'
export const SENML_CBOR = 'application/senml+cbor'
export const JSON_TYPE = 'application/json'
export const OCTET_STREAM = 'application/octet-stream'
export const TEXT_PLAIN = 'text/plain'

/** The maximum number of JSON objects in one message, each of which is stored separately. */
const MAX_DOCUMENTS = 10_000

/** The format name of JSON messages without a subtopic. */
export const JSON_FORMAT = 'json'
/** The format name of SenML records. */
export const RECORDS_FORMAT = 'messages'

/** Keys that a JSON message may not use at the top level: readers of flat records could confuse them with fields of the record. */
const RESERVED_KEYS = ['channel', 'subtopic', 'publisher', 'protocol', 'created', 'payload'] as const

export type ContentFacts = { subtopic: string; receivedAtSeconds: number }

/**
 * Parses a body of one of the content types above, without parameters; undefined when none was given. Throws `malformed` for a body
 * of another type, `too_large` for too many records or values, and `unsupported_media_type` for other types.
 */
export function parseContent(contentType: string | undefined, body: Buffer, facts: ContentFacts): MessageContent {
  switch (contentType) {
    case SENML_JSON: {
      const { receivedAtSeconds } = facts
      const plain = resolvePlainPack(body, receivedAtSeconds)
      if (plain !== undefined) return { kind: 'records', records: plain }
      requireBoundedJson(body)
      return { kind: 'records', records: resolvePack(parseJson(body), receivedAtSeconds) }
    }
    case SENML_CBOR:
      return { kind: 'records', records: resolvePack(parseCborPack(body), facts.receivedAtSeconds) }
    case JSON_TYPE:
      return parsePackOrDocuments(body, facts)
    case OCTET_STREAM:
    case TEXT_PLAIN:
      return { kind: 'raw', contentType, body }
    case undefined:
      return sniffContent(body, facts)
    default:
      throw new ServiceError(
        'unsupported_media_type',
        `unsupported content type: use ${SENML_JSON}, ${SENML_CBOR}, ${JSON_TYPE}, ${TEXT_PLAIN} or ${OCTET_STREAM}`,
      )
  }
}

/** The content of bytes without a content type; `fault`: why bytes that resemble SenML or JSON were stored as another type. */
export type Sniffed = { content: MessageContent; fault: string | undefined }

/** A valid pack becomes SenML, other JSON objects JSON, anything else raw bytes. Never throws `malformed`. */
export function sniffContent(body: Buffer, facts: ContentFacts): MessageContent {
  return sniff(body, facts).content
}

/** Does the same as `sniffContent`, and also returns a fault for the publisher. */
export function sniff(body: Buffer, facts: ContentFacts): Sniffed {
  let notPack: string | undefined
  try {
    const content = parsePackOrDocuments(body, facts, (reason) => (notPack = reason))
    return { content, fault: notPack === undefined ? undefined : `stored as JSON, not as SenML: ${notPack}` }
  } catch (error) {
    const kind = kindOf(error)
    if (kind !== 'malformed' && kind !== 'too_large') throw error
    const fault = looksLikeJson(body) ? `stored as bytes, not as JSON: ${(error as Error).message}` : undefined
    return { content: { kind: 'raw', contentType: OCTET_STREAM, body }, fault }
  }
}

/** The number of blanks before a JSON text that are skipped. */
const MAX_BLANKS = 64

/** The first character begins an object or an array. */
function looksLikeJson(body: Buffer): boolean {
  return /^\s*[[{]/.test(body.toString('latin1', 0, MAX_BLANKS))
}

/** The first item has a name and a SenML value. */
function looksLikePack([first]: readonly unknown[]): boolean {
  const has = (...labels: string[]) => isObject(first) && labels.some((label) => Object.hasOwn(first, label))
  return has('n', 'bn') && has('v', 'vs', 'vb', 'vd', 's')
}

function parsePackOrDocuments(
  body: Buffer,
  facts: ContentFacts,
  onNoPack: (reason: string) => void = () => undefined,
): MessageContent {
  const records = resolvePlainPack(body, facts.receivedAtSeconds)
  if (records !== undefined) return { kind: 'records', records }
  const value = parseJsonBody(body)
  if (value === undefined) throw refusal('', 'must be JSON')
  if (Array.isArray(value)) {
    try {
      return { kind: 'records', records: resolvePack(value, facts.receivedAtSeconds) }
    } catch (error) {
      if (!(error instanceof ServiceError) || error.kind !== 'malformed') throw error
      if (looksLikePack(value)) onNoPack(error.message)
    }
  }
  return {
    kind: 'documents',
    format: formatOf(facts.subtopic),
    contentType: JSON_TYPE,
    documents: documentsOf(value, body.toString('utf8')),
  }
}

/** The JSON texts of an object, or of each object of an array. */
function documentsOf(value: unknown, text: string): string[] {
  if (isObject(value)) {
    requireFreeKeys(value, '')
    return [text]
  }
  if (!Array.isArray(value) || value.length === 0) throw refusal('', 'must be an object or an array of objects')
  if (value.length > MAX_DOCUMENTS)
    throw new ServiceError('too_large', `the message must have at most ${MAX_DOCUMENTS} JSON objects`)
  value.forEach((element: unknown, index) => {
    if (!isObject(element)) throw refusal(`/${index}`, 'must be an object')
    requireFreeKeys(element, `/${index}`)
  })
  return (parseExactJson(text) as unknown[]).map((element) => JSON.stringify(element))
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function requireFreeKeys(document: Record<string, unknown>, path: string): void {
  const used = RESERVED_KEYS.find((key) => Object.hasOwn(document, key))
  if (used !== undefined)
    throw refusal(`${path}/${used}`, `is a reserved key; reserved are ${RESERVED_KEYS.join(', ')}`)
}

/** The last element of the subtopic names the format, except for the two names of other kinds of messages. */
function formatOf(subtopic: string): string {
  const last = subtopic.slice(subtopic.lastIndexOf('.') + 1)
  return last === '' || last === RAW_FORMAT || last === RECORDS_FORMAT ? JSON_FORMAT : last
}

function refusal(path: string, rule: string): ServiceError {
  const where = path === '' ? 'the message' : path
  return new ServiceError('malformed', `${where} ${rule}`, { details: [{ path, message: rule }] })
}
