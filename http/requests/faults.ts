/**
 * Validation errors of a value, in about the time of the validation. TypeBox explains every item of an array, even after it has
 * enough errors: a body with millions of invalid items would block the process for seconds.
 */
import type { TSchema } from 'typebox'
import { Errors } from 'typebox/value'
import { checkOf } from './check.ts'

export type Fault = { keyword: string; instancePath: string; message: string; params: Record<string, unknown> }

/** The number of invalid items of one array, or fields of a record, that are explained. */
const MAX_FAULTY_ITEMS = 8

type Shape = TSchema & {
  type?: string
  enum?: unknown[]
  const?: unknown
  items?: TSchema
  allOf?: TSchema[]
  anyOf?: TSchema[]
  properties?: Record<string, TSchema>
  additionalProperties?: unknown
  propertyNames?: TSchema
}

const isValid = (schema: TSchema, value: unknown) => checkOf(schema).Check(value)

/** The faults of a value that does not match the schema; `path` is its location, `/clients/3`. */
export function faultsOf(schema: TSchema, value: unknown, path: string): Fault[] {
  const shape = schema as Shape
  if (shape.anyOf !== undefined) {
    const likely = shape.anyOf.filter((branch) => isOfType(branch, value))
    if (likely.length === 1 && likely[0] !== undefined) return faultsOf(likely[0], value, path)
    const accepted = shape.anyOf.map(describeBranch).join(' or ')
    return [{ keyword: 'anyOf', instancePath: path, message: 'must be one of these', params: { accepted } }]
  }
  if (shape.allOf !== undefined) {
    const { allOf, ...whole } = shape
    return [...plainFaults(whole, value, path), ...allOf.flatMap((part) => faultsOf(part, value, path))]
  }
  if (Array.isArray(value) && shape.items !== undefined && !Array.isArray(shape.items)) {
    const { items, ...whole } = shape
    const faults = plainFaults(whole, value, path)
    return faults.length > 0 ? faults : faultsOfItems(items, value, path)
  }
  if (isObject(value) && shape.properties !== undefined && shape.additionalProperties === undefined) {
    const { properties, ...whole } = shape
    return [
      ...plainFaults(whole, value, path),
      ...Object.entries(properties).flatMap(([name, property]) =>
        Object.hasOwn(value, name) && value[name] !== undefined && !isValid(property, value[name])
          ? faultsOf(property, value[name], `${path}/${name}`)
          : [],
      ),
    ]
  }
  if (isObject(value) && shape.properties === undefined && isObject(shape.additionalProperties)) {
    const { additionalProperties, propertyNames, ...whole } = shape
    const faults = plainFaults(whole, value, path)
    return faults.length > 0 ? faults : faultsOfFields({ propertyNames, values: additionalProperties }, value, path)
  }
  return plainFaults(schema, value, path)
}

function faultsOfFields(
  { propertyNames, values }: { propertyNames: TSchema | undefined; values: TSchema },
  value: Readonly<Record<string, unknown>>,
  path: string,
): Fault[] {
  return faultsOfFirst(Object.entries(value), (name, field) => {
    const at = `${path}/${name}`
    if (propertyNames !== undefined && !isValid(propertyNames, name))
      return plainFaults(propertyNames, name, at)
        .slice(0, 1)
        .map((fault) => ({ ...fault, keyword: 'propertyNames', params: { fault } }))
    return isValid(values, field) ? undefined : faultsOf(values, field, at)
  })
}

function faultsOfItems(items: TSchema, value: readonly unknown[], path: string): Fault[] {
  return faultsOfFirst(value.entries(), (index, item) =>
    isValid(items, item) ? undefined : faultsOf(items, item, `${path}/${index}`),
  )
}

/** The faults of the first invalid entries; `explain` returns undefined for a valid one. */
function faultsOfFirst<Key>(
  entries: Iterable<[Key, unknown]>,
  explain: (key: Key, value: unknown) => Fault[] | undefined,
): Fault[] {
  const faults: Fault[] = []
  let faulty = 0
  for (const [key, value] of entries) {
    const own = explain(key, value)
    if (own === undefined) continue
    faults.push(...own)
    faulty += 1
    if (faulty === MAX_FAULTY_ITEMS) break
  }
  return faults
}

function plainFaults(schema: TSchema, value: unknown, path: string): Fault[] {
  const { description } = schema as { description?: string }
  return (Errors(schema, value) as Fault[]).map((fault) => ({
    ...fault,
    instancePath: `${path}${fault.instancePath}`,
    ...(fault.instancePath === '' ? { params: { ...fault.params, description } } : {}),
  }))
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Whether a branch of a union accepts this type: the reported fault is that of the branch that the caller meant. */
function isOfType(branch: TSchema, value: unknown): boolean {
  const { type = typeof (branch as Shape).enum?.[0], anyOf } = branch as Shape
  if (anyOf !== undefined) return anyOf.some((inner) => isOfType(inner, value))
  if (type === 'array') return Array.isArray(value)
  if (type === 'object') return isObject(value)
  if (type === 'null') return value === null
  return typeof value === (type === 'integer' ? 'number' : type)
}

/** The type that a branch of a union accepts, in words. */
function describeBranch(branch: TSchema): string {
  const { type, enum: values, const: value, anyOf } = branch as Shape
  if (anyOf !== undefined) return anyOf.map(describeBranch).join(' or ')
  if (values !== undefined) return values.join(', ')
  if (value !== undefined) return JSON.stringify(value)
  return type === undefined ? 'any value' : withArticle(type)
}

export function withArticle(type: string): string {
  if (type === 'null') return type
  return /^[aeiou]/.test(type) ? `an ${type}` : `a ${type}`
}
