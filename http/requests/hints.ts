/**
 * Unknown fields and parameters are ignored and named in a `Skein-Hint` header, with the nearest known name (contract, decisions
 * 64 and 71). Known names are those in the schema of the route.
 */
import type { FastifyInstance, FastifyRequest, FastifySchema } from 'fastify'
import type { TSchema } from 'typebox'
import { nearestName } from '#core/nearest.ts'
import { changingQueryFault } from './changing-queries.ts'

const HINT_HEADER = 'Skein-Hint'
const MAX_HINTS = 5
const MAX_HINT_NAME_CHARS = 64
/** Go clients send these with every list. Where a route does not know them, they change nothing. */
const SENT_WITH_EVERY_LIST: ReadonlySet<string> = new Set([
  'with_attributes',
  'with_metadata',
  'permission',
  'list_perms',
])
/** The number of unknown names of one request that are compared with the known ones. */
const MAX_COMPARED = 50
/** The number of objects in a body that are checked: later items of a long list repeat the first. */
const MAX_OBJECTS = 100
/** The maximum nesting of schemas; no schema of Skein is deeper. */
const MAX_SCHEMA_DEPTH = 12
/** Characters that are valid in a header. */
const PRINTABLE = /^[\x20-\x7e]+$/

/**
 * Refuses parameters that a call which changes something may not have, and adds the header to every response to a request with unknown
 * names.
 */
export function registerHints(app: FastifyInstance): void {
  app.addHook('preValidation', (request, reply, done) => {
    const { url, config, names } = request.facts
    if (url === undefined) return done()
    if (request.url.includes('?')) {
      const fault = changingQueryFault(request, config, names.query.fields)
      if (fault !== undefined) return done(fault)
    }
    const hints = hintsOf(request)
    if (hints !== undefined && hints.length > 0) void reply.header(HINT_HEADER, hints.join('; '))
    done()
  })
}

/** The names that the schema of a route knows; undefined for a body of which none can be unknown. */
export type KnownNames = { readonly query: Shape; readonly body: Shape | undefined }

export function knownNamesOf(schema: FastifySchema | undefined): KnownNames {
  const body = shapeOf(schema?.body as TSchema | undefined)
  return {
    query: shapeOf(schema?.querystring as TSchema | undefined),
    body: body.fields.size === 0 && body.items === undefined ? undefined : body,
  }
}

function hintsOf(request: FastifyRequest): readonly string[] | undefined {
  const { names } = request.facts
  if (names.body === undefined && !request.url.includes('?')) return undefined
  const search = new HintSearch()
  search.parameters(request.query as object, names.query)
  if (names.body !== undefined) search.fields(request.body, names.body, '')
  return search.hints
}

/** The names that a value of a schema may have; `isOpen` allows any. */
type Shape = { fields: Map<string, Shape>; items: Shape | undefined; isOpen: boolean }

class HintSearch {
  readonly hints: string[] = []
  readonly #seen = new Set<string>()
  #compared = 0
  #objects = 0

  /** Names every unknown parameter: a filter that has no effect returns too many rows. */
  parameters(query: object, { fields, isOpen }: Shape): void {
    if (isOpen) return
    for (const name in query) {
      if (fields.has(name) || SENT_WITH_EVERY_LIST.has(name)) continue
      if (this.#isOver()) return
      this.#add(name, this.#nearest(name, fields) ?? 'unknown parameter, ignored')
    }
  }

  /** Names an unknown field that resembles a known one: clients of other versions send fields of their own. */
  fields(value: unknown, shape: Shape, path: string): void {
    if (typeof value !== 'object' || value === null || this.#isOver()) return
    if (Array.isArray(value)) {
      const { items } = shape
      if (items === undefined || (items.fields.size === 0 && items.items === undefined)) return
      for (const item of value) {
        if (this.#isOver()) return
        this.fields(item, items, path)
      }
      return
    }
    if (shape.isOpen || shape.fields.size === 0) return
    this.#objects += 1
    for (const name in value) {
      if (this.#isOver()) return
      const field = shape.fields.get(name)
      if (field !== undefined) this.fields((value as Record<string, unknown>)[name], field, `${path}${name}.`)
      else {
        const text = this.#nearest(name, shape.fields)
        if (text !== undefined) this.#add(`${path}${name}`, text)
      }
    }
  }

  #isOver(): boolean {
    return this.hints.length >= MAX_HINTS || this.#compared >= MAX_COMPARED || this.#objects >= MAX_OBJECTS
  }

  #nearest(name: string, fields: Shape['fields']): string | undefined {
    this.#compared += 1
    const nearest = nearestName(name, fields.keys())
    return nearest === undefined ? undefined : `did you mean ${nearest}?`
  }

  #add(name: string, text: string): void {
    if (name.length > MAX_HINT_NAME_CHARS || !PRINTABLE.test(name) || this.#seen.has(name)) return
    this.#seen.add(name)
    this.hints.push(`${name}: ${text}`)
  }
}

type Declared = {
  properties?: Record<string, TSchema>
  items?: TSchema
  additionalProperties?: unknown
  allOf?: TSchema[]
  anyOf?: TSchema[]
  oneOf?: TSchema[]
}

const shapes = new WeakMap<TSchema, Shape>()

function shapeOf(schema: TSchema | undefined): Shape {
  if (schema === undefined) return emptyShape()
  let shape = shapes.get(schema)
  if (shape === undefined) {
    shape = emptyShape()
    addTo(shape, schema, 0)
    shapes.set(schema, shape)
  }
  return shape
}

const emptyShape = (): Shape => ({ fields: new Map(), items: undefined, isOpen: false })

/** The branches of a union are merged: a hint names a field of any of them. */
function addTo(shape: Shape, schema: TSchema, depth: number): void {
  if (depth > MAX_SCHEMA_DEPTH) return
  const {
    properties = {},
    items,
    additionalProperties = false,
    allOf = [],
    anyOf = [],
    oneOf = [],
  } = schema as Declared
  if (additionalProperties !== false) shape.isOpen = true
  for (const [name, property] of Object.entries(properties)) {
    const field = shape.fields.get(name) ?? emptyShape()
    shape.fields.set(name, field)
    addTo(field, property, depth + 1)
  }
  if (items !== undefined) addTo((shape.items ??= emptyShape()), items, depth + 1)
  for (const part of [...allOf, ...anyOf, ...oneOf]) addTo(shape, part, depth + 1)
}
