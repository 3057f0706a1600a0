/**
 * `null` in a body: Go clients send it for every list and map that was not set. Where the schema of a field does not accept `null`,
 * the field counts as absent; where it does, `null` is a value and clears the field (contract, decision 80).
 */
import type { TSchema } from 'typebox'

/** The maximum nesting of schemas; no schema of Skein is deeper. */
const MAX_SCHEMA_DEPTH = 12

type Declared = {
  type?: string | string[]
  enum?: unknown[]
  const?: unknown
  properties?: Record<string, TSchema>
  items?: TSchema
  allOf?: TSchema[]
  anyOf?: TSchema[]
  oneOf?: TSchema[]
}

/** The fields of a schema, those of all branches of a union together. Names that no schema declares are not touched. */
type Fields = { byName: Map<string, Field>; items: Fields | undefined }
type Field = { acceptsNull: boolean; fields: Fields }

const known = new WeakMap<TSchema, Fields>()

/** Removes fields that are `null` where their schema does not accept it. */
export function dropNulls(schema: TSchema, body: unknown): void {
  let fields = known.get(schema)
  if (fields === undefined) {
    fields = noFields()
    addTo(fields, schema, 0)
    known.set(schema, fields)
  }
  drop(fields, body)
}

function drop({ byName, items }: Fields, value: unknown): void {
  if (typeof value !== 'object' || value === null) return
  if (Array.isArray(value)) {
    if (items !== undefined && (items.byName.size > 0 || items.items !== undefined))
      for (const item of value) drop(items, item)
    return
  }
  const record = value as Record<string, unknown>
  for (const name in record) {
    const field = byName.get(name)
    if (field === undefined) continue
    if (record[name] === null) {
      if (!field.acceptsNull) delete record[name]
    } else drop(field.fields, record[name])
  }
}

/** Read from the schema: a validator for each field would have to be compiled at the first request of every route. */
function acceptsNull(schema: TSchema): boolean {
  const { type, enum: values, const: value, anyOf, oneOf, allOf = [] } = schema as Declared
  if (type !== undefined && ![type].flat().includes('null')) return false
  if (values !== undefined && !values.includes(null)) return false
  if (value !== undefined && value !== null) return false
  const isAccepted = (options: TSchema[] | undefined) => options === undefined || options.some(acceptsNull)
  return isAccepted(anyOf) && isAccepted(oneOf) && allOf.every(acceptsNull)
}

const noFields = (): Fields => ({ byName: new Map(), items: undefined })

function addTo(fields: Fields, schema: TSchema, depth: number): void {
  if (depth > MAX_SCHEMA_DEPTH) return
  const { properties = {}, items, allOf = [], anyOf = [], oneOf = [] } = schema as Declared
  for (const [name, property] of Object.entries(properties)) {
    const field = fields.byName.get(name) ?? { acceptsNull: false, fields: noFields() }
    fields.byName.set(name, field)
    if (acceptsNull(property)) field.acceptsNull = true
    addTo(field.fields, property, depth + 1)
  }
  if (items !== undefined) addTo((fields.items ??= noFields()), items, depth + 1)
  for (const part of [...allOf, ...anyOf, ...oneOf]) addTo(fields, part, depth + 1)
}
