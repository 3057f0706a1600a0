/**
 * Moves each schema with a name (`$id`, or that of `documented`) into the components of the document and replaces its uses by
 * references. Otherwise the error body alone would be repeated hundreds of times.
 */
import { DOCUMENTED, NAME } from './documented.ts'

type Json = unknown
type JsonObject = Record<string, Json>

/** Marks a named schema until the document is complete: the generator would try to resolve a real reference. */
const MARK = 'x-named-schema'

export type SchemaNames = {
  /** A schema in which each named schema is replaced by a mark. */
  mark(schema: unknown): unknown
  /** A schema with its named schemas inlined, for parameters. */
  spread(schema: unknown): unknown
  /** The document with references in place of the marks. `examples` are indexed by the names of schemas. */
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

  /** The name of the schema in the components; a different schema with the same name gets a number. */
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
    const { $id: id, [DOCUMENTED]: more = {}, ...checked } = value
    const { [NAME]: shown, ...others } = more as JsonObject
    const schema = mapObject({ ...checked, ...others }, mark)
    const wanted = id ?? shown
    if (typeof wanted !== 'string') return schema
    const { description } = schema
    return { [MARK]: nameOf(wanted, schema), ...(description === undefined ? {} : { description }) }
  }

  function spread(value: Json): Json {
    if (Array.isArray(value)) return value.map(spread)
    if (!isObject(value)) return value
    const { $id: _id, [DOCUMENTED]: more, ...checked } = value
    const { [NAME]: _shown, ...schema } = { ...checked, ...(more as JsonObject | undefined) }
    return mapObject(schema, spread)
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

/** Every referenced name, also from inside other named schemas, sorted. */
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

/** A canonical text: two schemas with equal content have the same, independent of the order of keys. */
function textOf(value: JsonObject): string {
  return JSON.stringify(value, (_key, item: Json) =>
    isObject(item) ? Object.fromEntries(Object.entries(item).toSorted(([a], [b]) => (a < b ? -1 : 1))) : item,
  )
}
