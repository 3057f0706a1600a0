/**
 * From the bytes of a message to what is stored (contract decision 17b). What is accepted here is stored unaltered;
 * what PostgreSQL would refuse or change is refused.
 */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { parseJsonBody } from '#core/http/index.ts'
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

/** JSON objects of one message, each of which is stored for itself. */
const MAX_DOCUMENTS = 10_000

/** The format name of JSON messages without a subtopic. */
export const JSON_FORMAT = 'json'
/** The format name of SenML records. */
export const RECORDS_FORMAT = 'messages'

/** Keys that a JSON message may not use at its top: readers of flat records would mistake them for ours. */
const RESERVED_KEYS = ['channel', 'subtopic', 'publisher', 'protocol', 'created', 'payload'] as const

export type ContentFacts = { subtopic: string; receivedAtSeconds: number }

/**
 * Reads a body of one of the content types above, without parameters; undefined = none was given. Throws `malformed`
 * for a body that is not of its type, `too_large` for one of too many records or values, `unsupported_media_type` for other types.
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
        `unsupported content type: a message is ${SENML_JSON}, ${SENML_CBOR}, ${JSON_TYPE}, ${TEXT_PLAIN} or ${OCTET_STREAM}`,
      )
  }
}

/** What became of bytes whose type nobody named; `fault`: they look like SenML or JSON, and why they were not taken for it. */
export type Sniffed = { content: MessageContent; fault: string | undefined }

/** A valid pack is SenML, other JSON objects are JSON, anything else is raw: never refused. */
export function sniffContent(body: Buffer, facts: ContentFacts): MessageContent {
  return sniff(body, facts).content
}

/** The same, and what its sender may want to know. */
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

/** Blanks before a JSON text that are looked at. */
const MAX_BLANKS = 64

/** Its first letter is that of an object or a list. */
function looksLikeJson(body: Buffer): boolean {
  return /^\s*[[{]/.test(body.toString('latin1', 0, MAX_BLANKS))
}

/** Its first item has a name and a value of SenML. */
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

/** The last element of the subtopic names the format; the two names that readers use for other messages do not. */
function formatOf(subtopic: string): string {
  const last = subtopic.slice(subtopic.lastIndexOf('.') + 1)
  return last === '' || last === RAW_FORMAT || last === RECORDS_FORMAT ? JSON_FORMAT : last
}

function refusal(path: string, rule: string): ServiceError {
  const where = path === '' ? 'the message' : path
  return new ServiceError('malformed', `${where} ${rule}`, { details: [{ path, message: rule }] })
}
