/** The OpenAPI document as the fuzzer reads it: operations with their parameters, bodies and a check for each declared answer. */
import type { TSchema } from 'typebox'
import { Compile } from 'typebox/compile'
import { wholeDocument } from '../harness/openapi.ts'

export type Schema = {
  type?: string
  enum?: unknown[]
  const?: unknown
  anyOf?: Schema[]
  allOf?: Schema[]
  properties?: Record<string, Schema>
  patternProperties?: Record<string, Schema>
  additionalProperties?: boolean | Schema
  required?: string[]
  items?: Schema
  pattern?: string
  minLength?: number
  maxLength?: number
  minimum?: number
  maximum?: number
  minItems?: number
  maxItems?: number
}
export type Parameter = { name: string; in: 'path' | 'query' | 'header'; required?: boolean; schema: Schema }

export type Operation = {
  /** `POST /{domain_id}/clients` */
  name: string
  method: string
  path: string
  tags: readonly string[]
  parameters: readonly Parameter[]
  /** By content type; empty where the operation takes no body. */
  bodies: ReadonlyMap<string, Schema>
  answers: ReadonlyMap<number, Answer>
  /** Its response is a stream that ends when the caller closes it. */
  isStream: boolean
}

export type Answer = {
  /** Undefined: an empty body. */
  contentTypes: readonly string[] | undefined
  /** What is wrong with this body; nothing when it fits the schema. */
  faultsOf(body: unknown): string[]
}

type Ref = { $ref: string }
type Content = Record<string, { schema: Schema }>
type RawAnswer = { content?: Content }
type RawOperation = {
  tags?: string[]
  parameters?: Parameter[]
  requestBody?: { content: Content }
  responses: Record<string, RawAnswer | Ref>
}
type RawDocument = {
  paths: Record<string, Record<string, RawOperation>>
  components: Record<string, Record<string, unknown>>
}

const raw = wholeDocument() as RawDocument

/** Schemas may name themselves (a group has children): below this many levels of one name anything goes. */
const RECURSION_LEVELS = 4

/** The value with every `$ref` of the document replaced by what it names. */
function resolved(value: unknown, within: readonly string[] = []): unknown {
  if (Array.isArray(value)) return value.map((item) => resolved(item, within))
  if (typeof value !== 'object' || value === null) return value
  const { $ref } = value as { $ref?: unknown }
  if (typeof $ref === 'string') {
    if (within.filter((name) => name === $ref).length >= RECURSION_LEVELS) return {}
    const target = $ref
      .slice(2)
      .split('/')
      .reduce<unknown>((place, key) => (place as Record<string, unknown>)[key], raw)
    return resolved(target, [...within, $ref])
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, within)]))
}

/** Compiled once for each schema: most answers share theirs. */
const validators = new Map<string, (body: unknown) => string[]>()

function validatorOf(schema: Schema): (body: unknown) => string[] {
  const text = JSON.stringify(schema)
  let validate = validators.get(text)
  if (validate === undefined) {
    const compiled = Compile(resolved(schema) as TSchema)
    validate = (body) =>
      compiled.Check(body) ? [] : [...compiled.Errors(body)].map((error) => `${error.instancePath}: ${error.message}`)
    validators.set(text, validate)
  }
  return validate
}

function answerOf(given: RawAnswer | Ref): Answer {
  const { content } = ('$ref' in given ? resolved(given) : given) as RawAnswer
  if (content === undefined) return { contentTypes: undefined, faultsOf: () => [] }
  const schema = content['application/json']?.schema
  let validate: ((body: unknown) => string[]) | undefined
  return {
    contentTypes: Object.keys(content),
    faultsOf(body) {
      if (schema === undefined) return []
      validate ??= validatorOf(schema)
      return validate(body)
    },
  }
}

export const OPERATIONS: readonly Operation[] = Object.entries(raw.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => {
    const answers = Object.entries(operation.responses).map(
      ([status, answer]) => [Number(status), answerOf(answer)] as const,
    )
    const bodies = Object.entries(operation.requestBody?.content ?? {}).map(
      ([contentType, { schema }]) => [contentType, resolved(schema) as Schema] as const,
    )
    return {
      name: `${method.toUpperCase()} ${path}`,
      method: method.toUpperCase(),
      path,
      tags: operation.tags ?? [],
      parameters: (operation.parameters ?? []).map((parameter) => resolved(parameter) as Parameter),
      bodies: new Map(bodies),
      answers: new Map(answers),
      isStream: answers.some(([, answer]) => answer.contentTypes?.includes('text/event-stream') === true),
    }
  }),
)
