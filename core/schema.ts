/**
 * Builders of JSON Schema: the objects that TypeBox makes, with its types. The library is loaded with the first check
 * (`core/http/late.ts`); its builders alone would be 370 files of every start (docs/decisions/0050).
 */
import type { Type as Library } from 'typebox'

type Builders = Pick<
  typeof Library,
  | 'Array'
  | 'Boolean'
  | 'Enum'
  | 'Integer'
  | 'Intersect'
  | 'Literal'
  | 'Null'
  | 'Number'
  | 'Object'
  | 'Omit'
  | 'Optional'
  | 'Partial'
  | 'Pick'
  | 'Record'
  | 'Refine'
  | 'String'
  | 'Union'
  | 'Unknown'
  | 'Unsafe'
>

type Schema = Readonly<Record<string, unknown>>
type Properties = Readonly<Record<string, Schema>>
type Options = Schema | undefined

/** What the library tells schemas apart by is no part of JSON Schema, and not enumerable. */
function hidden(schema: Schema, key: string, value: unknown): Schema {
  return Object.defineProperty(schema, key, { value, configurable: true, writable: true, enumerable: false })
}

const made = (kind: string, schema: Schema, options: Options) => hidden({ ...schema, ...options }, '~kind', kind)
const copyOf = (schema: Schema): Schema => Object.defineProperties({}, Object.getOwnPropertyDescriptors(schema))

const simple = (kind: string, type: string) => (options: Options) => made(kind, { type }, options)
const isOptional = (schema: Schema) => Object.hasOwn(schema, '~optional')
const optional = (schema: Schema) => hidden(copyOf(schema), '~optional', true)

function object(properties: Properties, options?: Options): Schema {
  const names = Object.keys(properties).filter((name) => !isOptional(properties[name] as Schema))
  return made('Object', { type: 'object', ...(names.length > 0 ? { required: names } : {}), properties }, options)
}

/** An object with some of the properties of another, each as `as` makes it. */
function objectOf(
  schema: Schema,
  has: (name: string) => boolean,
  options: Options,
  as = (property: Schema) => property,
) {
  const properties = Object.entries(schema['properties'] as Properties).filter(([name]) => has(name))
  return object(Object.fromEntries(properties.map(([name, property]) => [name, as(property)])), options)
}

/** The library's types allow more than is built here. */
function only<T>(is: boolean, given: T, what: string): T {
  if (!is) throw new TypeError(`schemas are built of ${what} here: see core/schema.ts`)
  return given
}

const builders = {
  Array: (items: Schema, options: Options) => made('Array', { type: 'array', items }, options),
  Boolean: simple('Boolean', 'boolean'),
  Enum: (values: readonly unknown[], options: Options) =>
    made('Enum', { enum: only(Array.isArray(values), values, 'a list of values') }, options),
  Integer: simple('Integer', 'integer'),
  Intersect: (all: readonly Schema[], options: Options) => made('Intersect', { allOf: all }, options),
  Literal: (value: unknown, options: Options) => made('Literal', { type: typeof value, const: value }, options),
  Null: simple('Null', 'null'),
  Number: simple('Number', 'number'),
  Object: object,
  Omit: (schema: Schema, names: readonly string[], options: Options) =>
    objectOf(schema, (name) => !names.includes(name), options),
  Optional: optional,
  Partial: (schema: Schema, options: Options) => objectOf(schema, () => true, options, optional),
  Pick: (schema: Schema, names: readonly string[], options: Options) =>
    objectOf(schema, (name) => names.includes(name), options),
  // Not as the library: it asks nothing of values whose names do not meet its pattern, which a line break does not, and answers leave them out.
  Record: (key: Schema, value: Schema, options: Options) => {
    const { type: _text, ...rules } = only(key['type'] === 'string', key, 'texts as keys')
    const names = Object.keys(rules).length === 0 ? {} : { propertyNames: copyOf(key) }
    return hidden({ type: 'object', ...names, additionalProperties: value, ...options }, '~unsafe', null)
  },
  Refine: (schema: Schema, check: unknown, error: unknown) =>
    hidden(copyOf(schema), '~refine', [...((schema['~refine'] as unknown[] | undefined) ?? []), { check, error }]),
  String: simple('String', 'string'),
  Union: (any: readonly Schema[], options: Options) => made('Union', { anyOf: any }, options),
  Unknown: (options: Options) => made('Unknown', {}, options),
  Unsafe: (schema: Schema) => hidden(copyOf(schema), '~unsafe', null),
}

export const Type = builders as unknown as Builders
