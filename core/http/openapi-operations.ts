/**
 * Makes the operations of the document whole: what each route would otherwise have to say itself. Pure.
 */
import { ERROR_KINDS, PROTOCOL_STATUS } from '../errors/index.ts'
import type { ErrorKind } from '../errors/index.ts'

type Json = Record<string, unknown>
type Parameter = { name: string; in: string; required?: boolean; description?: string; schema?: Json }
type Response = { description: string; content?: Record<string, Json>; headers?: Json } | { $ref: string }
type RequestBody = { required?: boolean; content: Record<string, { schema?: Json }> }
type Operation = {
  operationId?: string
  description?: string
  parameters?: Parameter[]
  requestBody?: RequestBody
  responses?: Record<string, Response>
}
export type Paths = Record<string, Record<string, Operation>>

/** What a refusal of each kind means, for whoever reads the document. */
const REFUSALS: Record<ErrorKind, string> = {
  malformed: 'A path, query or body that is not valid; `details` name the fields',
  unauthenticated: 'No credentials, or wrong or expired ones',
  forbidden: 'Not permitted',
  not_found: 'There is none, or none that the caller may read',
  method_not_allowed: 'The path knows other methods',
  conflict: 'It exists already',
  invalid_state: 'Not possible in its present state',
  unprocessable: 'Well formed, but what it names cannot be used',
  too_large: 'More than the limit',
  unsupported_media_type: 'Another content type than those of the request body',
  rate_limited: 'Too many requests; `Retry-After` says when to try again',
  unavailable: 'Not at present; `Retry-After` says when to try again',
  timeout: 'Something did not answer in time',
  internal: 'A fault of ours; the request id finds it in the log',
}

const SUCCESSES: Record<string, string> = {
  200: 'Done',
  201: 'Created',
  202: 'Accepted',
  204: 'Done; no body',
}

const RETRY = { 'Retry-After': { description: 'Seconds', schema: { type: 'integer', minimum: 0 } } }
/** Headers of the refusals of one status. */
const OWN_HEADERS: Readonly<Record<number, Json>> = {
  [PROTOCOL_STATUS.rate_limited.http]: RETRY,
  [PROTOCOL_STATUS.unavailable.http]: RETRY,
  [PROTOCOL_STATUS.unauthenticated.http]: {
    'WWW-Authenticate': { description: 'The scheme to use', schema: { type: 'string' } },
  },
  [PROTOCOL_STATUS.method_not_allowed.http]: {
    Allow: { description: 'The methods of the path', schema: { type: 'string' } },
  },
}

/** What query parameters of these names mean wherever they stand without a description. */
const PARAMETER_TEXTS: Record<string, string> = {
  name: 'Part of the name, whatever its case',
  tag: 'Has this tag',
  tags: 'Comma-separated; has all of these tags',
  id: 'Only the one with this id',
  status: 'Only those in this status',
  order: 'Sorted by this field',
  dir: 'Sort direction',
  only_total: '`true`: `total` alone, and an empty list',
  metadata: 'URL-encoded JSON object that the metadata must contain',
  email: 'Part of the email, whatever its case',
  username: 'Part of the username, whatever its case',
  level: 'How many levels to go',
  tree: '`true`: nested in `children`',
}

/** Descriptions that say nothing about the parameter that they stand on. */
const EMPTY_TEXTS = new Set(['', 'UUID', undefined])

const REQUEST_ID = { $ref: '#/components/headers/RequestId' }

/** Headers of more than one answer. */
export const HEADERS = {
  RequestId: {
    description: 'The id of the request: the one that it came with, or a new one. Every answer has it',
    schema: { type: 'string', maxLength: 128 },
  },
} as const

/**
 * Completes every operation: a unique and readable `operationId`, words for parameters and answers that have none, defaults
 * that make a parameter optional, whether a body may be absent, and the headers of answers.
 */
export function completeOperations(paths: Paths, locationOf: (operationId: string) => string | undefined): Paths {
  const taken = new Set<string>()
  for (const [path, operations] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      operation.operationId = uniqueId(operation.operationId ?? operationIdOf(method, path), taken)
      const location = locationOf(operation.operationId)
      for (const parameter of operation.parameters ?? []) completeParameter(parameter)
      if (operation.requestBody !== undefined) completeBody(operation.requestBody)
      operation.responses = Object.fromEntries(
        Object.entries(operation.responses ?? {}).map(([status, response]) => [
          status,
          completeResponse(status, response, location),
        ]),
      )
    }
  }
  return paths
}

function uniqueId(wanted: string, taken: Set<string>): string {
  let id = wanted
  for (let count = 2; taken.has(id); count++) id = `${wanted}${count}`
  taken.add(id)
  return id
}

function pascal(text: string): string {
  return text
    .split(/[^A-Za-z0-9]+/)
    .filter((word) => word !== '')
    .map((word) => `${word.slice(0, 1).toUpperCase()}${word.slice(1)}`)
    .join('')
}

const PARAMETER = /^\{(.+)\}$/

/** `GET /{a_id}/bs/{b_id}` is `getBsByBIdInA`: the path in one word, so that no two are the same. */
export function operationIdOf(method: string, path: string): string {
  const segments = path.split('/').filter((segment) => segment !== '')
  const scope = PARAMETER.exec(segments[0] ?? '')?.[1]
  const words = (scope === undefined ? segments : segments.slice(1)).map((segment) => {
    const parameter = PARAMETER.exec(segment)?.[1]
    return parameter === undefined ? pascal(segment) : `By${pascal(parameter)}`
  })
  return `${method.toLowerCase()}${words.join('')}${scope === undefined ? '' : `In${pascal(scope.replace(/_id$/, ''))}`}`
}

function completeParameter(parameter: Parameter): void {
  const { name, schema } = parameter
  if (parameter.in !== 'path' && schema !== undefined && 'default' in schema) parameter.required = false
  if (!EMPTY_TEXTS.has(parameter.description)) return
  const text =
    parameter.in === 'path'
      ? name.endsWith('_id')
        ? `Id of the ${name.slice(0, -'_id'.length).replaceAll('_', ' ')}`
        : `The ${name.replaceAll('_', ' ')}`
      : (PARAMETER_TEXTS[name] ??
        (name.endsWith('_id') ? `Id of the ${name.slice(0, -'_id'.length).replaceAll('_', ' ')}` : undefined) ??
        `Only with this ${name.replaceAll('_', ' ')}`)
  parameter.description = text
}

const isNull = (schema: unknown) => (schema as { type?: unknown } | null)?.type === 'null'

/** A body that may be null may be absent too: that is how it is said, because generators make nothing of a union with null. */
function completeBody(body: RequestBody): void {
  for (const content of Object.values(body.content)) {
    const { anyOf, ...around } = (content.schema ?? {}) as { anyOf?: Json[] }
    if (anyOf?.some(isNull) !== true) continue
    const rest = anyOf.filter((branch) => !isNull(branch))
    content.schema = rest.length === 1 ? { ...around, ...rest[0] } : { ...around, anyOf: rest }
    body.required = false
  }
}

const ERROR_SCHEMA = '#/components/schemas/Error'

/** The answer to a refusal, by status: what a route may answer is declared by its statuses, what they mean stands once. */
export function refusalResponses(): Record<string, Response> {
  const statuses = [...new Set(ERROR_KINDS.map((kind) => PROTOCOL_STATUS[kind].http))].toSorted((a, b) => a - b)
  return Object.fromEntries(
    statuses.map((status) => {
      const kinds = ERROR_KINDS.filter((kind) => PROTOCOL_STATUS[kind].http === status)
      return [
        refusalName(status),
        {
          description: kinds.map((kind) => `\`${kind}\`: ${REFUSALS[kind]}`).join('. '),
          headers: { 'X-Request-Id': REQUEST_ID, ...OWN_HEADERS[status] },
          content: { 'application/json': { schema: { $ref: ERROR_SCHEMA } } },
        },
      ]
    }),
  )
}

const refusalName = (status: number | string) => `Refusal${status}`

/** Statuses of what was made. */
const CREATED = new Set(['201', '202'])

function completeResponse(status: string, given: Response, location: string | undefined): Response {
  if ('$ref' in given) return given
  const headers = {
    'X-Request-Id': REQUEST_ID,
    ...given.headers,
    ...(location === undefined || !CREATED.has(status)
      ? {}
      : { Location: { description: `Path of what was made: \`${location}\``, schema: { type: 'string' } } }),
  }
  const response = { ...given, headers }
  const schema = response.content?.['application/json']?.['schema'] as { $ref?: string } | undefined
  if (schema?.$ref === ERROR_SCHEMA) return { $ref: `#/components/responses/${refusalName(status)}` }
  if (response.description !== 'Default Response' && response.description !== 'No body') return response
  return { ...response, description: SUCCESSES[status] ?? 'Done' }
}

const TEXT_OR_BYTES = { type: 'string', format: 'binary' }

/** The successes of an operation in their own media types; its refusals stay JSON. The schema is that of JSON where it is one of them. */
export function withMediaTypes(
  responses: Record<string, Response>,
  types: readonly string[],
): Record<string, Response> {
  const isMixed = types.includes('application/json')
  return Object.fromEntries(
    Object.entries(responses).map(([status, response]) => {
      if ('$ref' in response) return [status, response]
      const [content] = Object.values(response.content ?? {})
      return status.startsWith('2') && content !== undefined
        ? [
            status,
            {
              ...response,
              content: Object.fromEntries(
                types.map((type) => [
                  type,
                  isMixed && type !== 'application/json' ? { schema: TEXT_OR_BYTES } : content,
                ]),
              ),
            },
          ]
        : [status, response]
    }),
  )
}
