/**
 * Validates requests with TypeBox's compiled validators. Texts in a path or query are converted to the type of their schema; a
 * body is not converted: `"1"` is not a number in JSON. Unknown fields are kept and ignored; a `null` counts as absent.
 */
import type { TSchema } from 'typebox'
import { ServiceError, fieldName, refusedField } from '#core/errors/index.ts'
import type { ErrorDetail } from '#core/errors/index.ts'
import { checkOf } from './check.ts'
import { roundedInteger } from './exact-integers.ts'
import { faultsOf, withArticle } from './faults.ts'
import type { Fault } from './faults.ts'
import { dropNulls } from './nulls.ts'

/** The maximum number of faults in one error. */
const MAX_DETAILS = 20

/** The maximum length of a number in a path or query, far above the digits of a double. */
const MAX_NUMBER_CHARS = 400
const NUMBER = /^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$/

type Part = 'body' | 'querystring' | 'params' | 'headers'

/** Fastify's validator compiler. The returned function returns `{ value }` or `{ error }`. */
export function compileValidator({ schema, httpPart }: { schema: unknown; httpPart?: string | undefined }) {
  const type = schema as TSchema
  const part = (httpPart ?? 'body') as Part
  const isText = part !== 'body'
  return (input: unknown): { value: unknown } | { error: Error } => {
    if (part === 'body') {
      dropNulls(type, input)
      const rounded = roundedInteger(type, input)
      if (rounded !== undefined) return { error: refusedField(rounded.path, rounded.message) }
    }
    const converted = isText ? convertText(type, input) : input
    const value = part === 'headers' ? converted : applyDefaults(type, converted)
    if (checkOf(type).Check(value)) return { value }
    if (value === undefined || value === null) {
      return {
        error: new ServiceError('malformed', `the request requires a JSON ${part}`, {
          details: [{ path: '', message: 'is required' }],
        }),
      }
    }
    const details = detailsOf(type, value, isText)
    const first = details[0]
    const message = first === undefined ? `invalid ${part}` : `${subjectOf(first.path, part)} ${first.message}`
    return { error: new ServiceError('malformed', message, { details }) }
  }
}

/** The faults of a value that does not match the schema: one for each path, with what is accepted. */
export function detailsOf(type: TSchema, value: unknown, isText = false): ErrorDetail[] {
  const details: ErrorDetail[] = []
  const seen = new Set<string>()
  for (const error of faultsOf(type, value, '')) {
    const path = pathOf(error, isText)
    if (seen.has(path) || details.length >= MAX_DETAILS) continue
    seen.add(path)
    details.push({ path, message: describeFault(error) })
  }
  return details
}

type Properties = Record<string, TSchema & { type?: string; default?: unknown; anyOf?: TSchema[] }>

function propertiesOf(schema: TSchema): Properties {
  return ('properties' in schema ? schema.properties : {}) as Properties
}

function convertText(schema: TSchema, input: unknown): unknown {
  if (typeof input !== 'object' || input === null) return input
  const properties = propertiesOf(schema)
  const output: Record<string, unknown> = { ...input }
  for (const [name, property] of Object.entries(properties)) {
    const text = output[name]
    if (typeof text !== 'string') continue
    if (property.type === 'integer' || property.type === 'number') {
      // An empty text and spaces are not numbers, although Number('') is 0.
      if (text.length <= MAX_NUMBER_CHARS && NUMBER.test(text)) output[name] = Number(text)
    } else if (property.type === 'boolean') {
      if (text === 'true' || text === '1') output[name] = true
      else if (text === 'false' || text === '0') output[name] = false
    }
  }
  return output
}

function applyDefaults(schema: TSchema, input: unknown): unknown {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return input
  const output = input as Record<string, unknown>
  for (const [name, property] of Object.entries(propertiesOf(schema))) {
    if (property.default !== undefined && output[name] === undefined) output[name] = property.default
  }
  return output
}

/** `/credentials/secret` in a body; the bare name in a query. */
function pathOf(error: Fault, isText: boolean): string {
  const missing =
    error.keyword === 'required' ? (error.params['requiredProperties'] as string[] | undefined)?.[0] : undefined
  const path = missing === undefined ? error.instancePath : `${error.instancePath}/${missing}`
  return isText ? path.replace(/^\//, '') : path
}

/** The subject of the message: `/credentials/secret` becomes `credentials.secret`. */
function subjectOf(path: string, part: Part): string {
  return path === '' ? `the ${part}` : fieldName(path)
}

/** The rule as text: what is accepted. */
function describeFault(error: Fault): string {
  const { keyword, params } = error
  switch (keyword) {
    case 'required':
      return 'is required'
    case 'minimum':
      return `must be at least ${String(params['limit'])}`
    case 'maximum':
      return `must be at most ${String(params['limit'])}`
    case 'minLength':
      return params['limit'] === 1 ? 'must not be empty' : `must have at least ${String(params['limit'])} characters`
    case 'maxLength':
      return `must have at most ${String(params['limit'])} characters`
    case 'minItems':
      return params['limit'] === 1 ? 'must not be empty' : `must have at least ${String(params['limit'])} items`
    case 'maxItems':
      return `must have at most ${String(params['limit'])} items`
    case 'type':
      return `must be ${withArticle(String(params['type']))}`
    case 'enum':
      return `must be one of ${(params['allowedValues'] as unknown[]).join(', ')}`
    case 'const':
      return `must be ${JSON.stringify(params['allowedValue'])}`
    case 'anyOf':
      return `must be ${String(params['accepted'])}`
    case 'pattern': {
      const description = params['description']
      return `must match ${String(params['pattern'])}${typeof description === 'string' ? `: ${description}` : ''}`
    }
    case 'propertyNames':
      return `has a name that ${describeFault(params['fault'] as Fault)}`
    case 'format':
      return `must be a valid ${String(params['format'])}`
    default:
      return error.message
  }
}
