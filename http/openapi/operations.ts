/**
 * Completes the operations of the document with texts and headers that routes need not repeat. Pure.
 */
import { ERROR_KINDS, PROTOCOL_STATUS } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'

type Json = Record<string, unknown>
export type Parameter = { name: string; in: string; required?: boolean; description?: string; schema?: Json }
export type Response = { description: string; content?: Record<string, Json>; headers?: Json } | { $ref: string }
type RequestBody = { required?: boolean; content: Record<string, { schema?: Json }> }
/** The ways to prove who calls: one of the list. */
export type Security = Record<string, string[]>[]
export type Operation = {
  operationId?: string
  summary?: string
  description?: string
  tags?: string[]
  parameters?: Parameter[]
  requestBody?: RequestBody
  security?: Security
  responses?: Record<string, Response>
}
export type Paths = Record<string, Record<string, Operation>>

/** The description of each kind of error in the document. */
const REFUSALS: Record<ErrorKind, string> = {
  malformed: 'Invalid path, query or body; `details` name the fields',
  unauthenticated: 'Missing, invalid or expired credentials',
  forbidden: 'Not permitted',
  not_found: 'Does not exist, or the caller may not read it',
  gone: 'No longer kept; the message says what is still available',
  method_not_allowed: 'The path accepts other methods; see `Allow`',
  conflict: 'Already exists; `details` name the field whose value is in use',
  invalid_state: 'Not possible in the present state',
  precondition_failed: 'The caller changes another version than the present one; `current` is the present one',
  unprocessable: 'Well formed, but an entity that it names cannot be used',
  too_large: 'More than the limit',
  unsupported_media_type: 'Content type that the request body does not support',
  quota_exceeded: 'More than a quota of the domain or user allows',
  rate_limited: 'Too many requests; `Retry-After` is the time until the next attempt',
  unavailable: 'Temporarily unavailable; `Retry-After` is the time until the next attempt',
  timeout: 'A component did not answer in time',
  internal: 'Internal error; search the log for the request id',
}

const SUCCESSES: Record<string, string> = {
  200: 'Done',
  201: 'Created',
  202: 'Accepted',
  204: 'Success without a body',
}

const RETRY = { 'Retry-After': { description: 'Seconds', schema: { type: 'integer', minimum: 0 } } }
/** Headers of error responses, by status. */
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

/** Default descriptions of query parameters, by name. */
const PARAMETER_TEXTS: Record<string, string> = {
  name: 'Part of the name, case-insensitive',
  tag: 'Only entities with this tag',
  tags: 'Comma-separated; only entities with all of these tags',
  id: 'Only the entity with this id',
  status: 'Only entities with this status',
  order: 'The field to sort by',
  dir: 'Sort direction',
  only_total: '`true`: returns `total` and an empty list',
  metadata: 'URL-encoded JSON object that the metadata must contain',
  email: 'Part of the email, case-insensitive',
  username: 'Part of the username, case-insensitive',
  level: 'Number of levels',
  tree: '`true`: children are nested in `children`',
}

/** Descriptions that are replaced, because they do not describe the parameter. */
const EMPTY_TEXTS = new Set(['', 'UUID', undefined])

const REQUEST_ID = { $ref: '#/components/headers/RequestId' }

/** Headers that several responses have. */
export const HEADERS = {
  RequestId: {
    description: 'The id of the request: that of the request header, or a new one. Every response has it',
    schema: { type: 'string', maxLength: 128 },
  },
} as const

/**
 * Completes every operation: a unique and readable `operationId`, descriptions of parameters and responses, optional parameters
 * with defaults, optional bodies, and the headers of responses.
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

/** `GET /{a_id}/bs/{b_id}` is `getBsByBIdInA`: unique because it contains the whole path. */
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

/** A body that may be null may be omitted: it is documented as optional, because generators do not support a union with null. */
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

/** Kinds whose error contains the present version of what the caller would have changed: each route declares its own response. */
const WITH_CURRENT: ReadonlySet<ErrorKind> = new Set(['precondition_failed'])

/** Error responses by status: routes declare statuses, and their description is shared. */
export function refusalResponses(): Record<string, Response> {
  const shared = ERROR_KINDS.filter((kind) => !WITH_CURRENT.has(kind))
  const statuses = [...new Set(shared.map((kind) => PROTOCOL_STATUS[kind].http))].toSorted((a, b) => a - b)
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

/** Statuses of responses about a created entity. */
const CREATED = new Set(['201', '202'])

function completeResponse(status: string, given: Response, location: string | undefined): Response {
  if ('$ref' in given) return given
  const headers = {
    'X-Request-Id': REQUEST_ID,
    ...given.headers,
    ...(location === undefined || !CREATED.has(status)
      ? {}
      : { Location: { description: `Path of the created entity: \`${location}\``, schema: { type: 'string' } } }),
  }
  const response = { ...given, headers }
  const schema = response.content?.['application/json']?.['schema'] as { $ref?: string } | undefined
  if (schema?.$ref === ERROR_SCHEMA) return { $ref: `#/components/responses/${refusalName(status)}` }
  if (response.description !== 'Default Response' && response.description !== 'No body') return response
  return { ...response, description: SUCCESSES[status] ?? 'Done' }
}

const TEXT_OR_BYTES = { type: 'string', format: 'binary' }

/** The success responses of an operation with their own media types; errors stay JSON. Only JSON gets the declared schema. */
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
                  isMixed ? (type === 'application/json' ? jsonOf(content) : { schema: TEXT_OR_BYTES }) : content,
                ]),
              ),
            },
          ]
        : [status, response]
    }),
  )
}

/** The content without the branches of its schema that are bytes: those have media types of their own. */
function jsonOf(content: Record<string, unknown>): Record<string, unknown> {
  const schema = content['schema'] as { anyOf?: readonly { format?: string }[] }
  const [only, ...more] = schema.anyOf?.filter(({ format }) => format !== TEXT_OR_BYTES.format) ?? []
  if (only === undefined) return content
  return { ...content, schema: more.length === 0 ? only : { ...schema, anyOf: [only, ...more] } }
}
