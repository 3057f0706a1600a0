/**
 * Gives each schema with a name one place in the document: where it is used stands a reference. Without this the error body
 * alone would stand there some hundreds of times.
 */
type Json = unknown

/** The name of a schema of ours (`$id`), which the document itself does not keep. */
export type SchemaNames = {
  /** Remembers the named schemas of a route. */
  learn(schema: unknown): void
  /** Replaces every whole occurrence of a learnt schema by a reference to `components/schemas`. */
  refer<D extends object>(document: D): D
}

export function createSchemaNames(): SchemaNames {
  const names = new Map<string, string>()

  function learn(value: Json): void {
    if (typeof value !== 'object' || value === null) return
    if ('$id' in value && typeof value.$id === 'string') names.set(textOf(value), value.$id)
    for (const item of Object.values(value)) learn(item)
  }

  return {
    learn,
    refer(document) {
      const schemas: Record<string, Json> = {}
      const replace = (value: Json): Json => {
        if (Array.isArray(value)) return value.map(replace)
        if (typeof value !== 'object' || value === null) return value
        const name = names.get(textOf(value))
        if (name === undefined)
          return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replace(item)]))
        // Inside a named schema other named ones may stand; itself it cannot hold.
        schemas[name] ??= Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replace(item)]))
        return { $ref: `#/components/schemas/${name}` }
      }
      const { paths = {}, components = {} } = document as { paths?: object; components?: object }
      const referring = replace(paths)
      const sorted = Object.fromEntries(
        Object.entries(schemas).toSorted(([left], [right]) => left.localeCompare(right)),
      )
      return { ...document, paths: referring, components: { ...components, schemas: sorted } }
    },
  }
}

/** Two schemas are the same when they say the same, in whatever order and with whatever name. */
function textOf(value: object): string {
  return JSON.stringify(value, (key, item: Json) => {
    if (key === '$id') return undefined
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return item
    return Object.fromEntries(Object.entries(item).toSorted(([left], [right]) => left.localeCompare(right)))
  })
}
