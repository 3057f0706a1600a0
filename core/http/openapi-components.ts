/**
 * Gives each schema with a name (`$id`) one place in the document: where it is used stands a reference. Without this the
 * error body alone would stand there some hundreds of times.
 */
import { SHOWN } from './shown.ts'

type Json = unknown
type JsonObject = Record<string, Json>

/** Marks the place of a named schema until the document is made: its maker would look a real reference up itself. */
const MARK = 'x-named-schema'

export type SchemaNames = {
  /** A schema with a mark in the place of each named one. */
  mark(schema: unknown): unknown
  /** A schema without names: parameters stand where they are used. */
  spread(schema: unknown): unknown
  /** The document with references in the places of the marks. `examples` by name of the schema. */
  refer<D extends object>(document: D, examples: ReadonlyMap<string, unknown>): D
}

function isObject(value: Json): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function mapObject(value: object, change: (item: Json) => Json): JsonObject {
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, change(item)]))
}

export function createSchemaNames(): SchemaNames {
  const named = new Map<string, { text: string; schema: JsonObject }>()

  /** The name under which the schema stands; another schema of the same name gets a number. */
  function nameOf(wanted: string, schema: JsonObject): string {
    const text = textOf(schema)
    for (let count = 1; ; count++) {
      const name = count === 1 ? wanted : `${wanted}${count}`
      const known = named.get(name)
      if (known === undefined) named.set(name, { text, schema })
      if (known === undefined || known.text === text) return name
    }
  }

  function mark(value: Json): Json {
    if (Array.isArray(value)) return value.map(mark)
    if (!isObject(value)) return value
    const { $id: id, [SHOWN]: more, ...checked } = mapObject(value, mark)
    const schema = { ...checked, ...(more as JsonObject | undefined) }
    if (typeof id !== 'string') return schema
    const { description } = schema
    return { [MARK]: nameOf(id, schema), ...(description === undefined ? {} : { description }) }
  }

  function spread(value: Json): Json {
    if (Array.isArray(value)) return value.map(spread)
    if (!isObject(value)) return value
    const { $id: _id, [SHOWN]: more, ...checked } = mapObject(value, spread)
    return { ...checked, ...(more as JsonObject | undefined) }
  }

  function refer(value: Json): Json {
    if (Array.isArray(value)) return value.map(refer)
    if (!isObject(value)) return value
    const name = value[MARK]
    return typeof name === 'string' ? { $ref: `#/components/schemas/${name}` } : mapObject(value, refer)
  }

  return {
    mark,
    spread,
    refer(document, examples) {
      const { paths = {}, components = {} } = document as { paths?: object; components?: object }
      const referring = refer(paths) as JsonObject
      const used = usedNames(referring, (name) => refer(named.get(name)?.schema))
      const schemas = used.map((name) => {
        const schema = refer(named.get(name)?.schema) as JsonObject
        return [name, examples.has(name) ? { ...schema, examples: [examples.get(name)] } : schema]
      })
      return { ...document, paths: referring, components: { ...components, schemas: Object.fromEntries(schemas) } }
    },
  }
}

const REFERENCE = /^#\/components\/schemas\/(.+)$/

/** Every name that is referred to, from inside other named schemas too, sorted. */
function usedNames(start: Json, schemaOf: (name: string) => Json): string[] {
  const names = new Set<string>()
  const walk = (value: Json): void => {
    if (Array.isArray(value)) for (const item of value) walk(item)
    if (!isObject(value)) return
    const name = typeof value['$ref'] === 'string' ? REFERENCE.exec(value['$ref'])?.[1] : undefined
    if (name !== undefined && !names.has(name)) {
      names.add(name)
      walk(schemaOf(name))
    }
    for (const item of Object.values(value)) walk(item)
  }
  walk(start)
  return [...names].toSorted()
}

/** Two schemas are the same when they say the same, in whatever order. */
function textOf(value: JsonObject): string {
  return JSON.stringify(value, (_key, item: Json) =>
    isObject(item) ? Object.fromEntries(Object.entries(item).toSorted(([a], [b]) => (a < b ? -1 : 1))) : item,
  )
}
