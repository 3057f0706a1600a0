/**
 * Integers above 2^53 in bodies. Objects of any keys, such as metadata, are stored and returned exactly; everywhere else such an integer is
 * refused, because a number would be rounded silently.
 */
import type { TSchema } from 'typebox'
import { isExactInteger } from '#core/exact-integers.ts'
import type { ErrorDetail } from '#core/errors/index.ts'

type Shape = {
  type?: unknown
  enum?: unknown
  const?: unknown
  properties?: Record<string, TSchema>
  additionalProperties?: unknown
  items?: TSchema
  allOf?: TSchema[]
  anyOf?: TSchema[]
  oneOf?: TSchema[]
}

export const TOO_LARGE_INTEGER = 'is an integer above 2^53, which is not exact as a number: send it as a text'

/** Objects of bodies that contain one: the others are not searched. */
const containing = new WeakSet<object>()

/** The items of a list as well, which a route may validate one by one. */
export function markExactIntegers(value: unknown): void {
  if (Array.isArray(value))
    for (const item of value) if (typeof item === 'object' && item !== null) containing.add(item as object)
  if (typeof value === 'object' && value !== null) containing.add(value)
}

const isMarked = (value: unknown) => typeof value === 'object' && value !== null && containing.has(value)

/** The first integer above 2^53 of a body that the schema does not keep exactly; undefined: none. */
export function roundedInteger(schema: TSchema, body: unknown): ErrorDetail | undefined {
  if (!isMarked(body) && !(Array.isArray(body) && body.some(isMarked))) return undefined
  // A route whose schema says nothing validates the body itself.
  return isAny(schema) ? undefined : findRounded([schema], body, '')
}

/** `schemas`: all that describe the value. Undeclared fields are ignored, so their values do not matter. */
function findRounded(schemas: readonly TSchema[], value: unknown, path: string): ErrorDetail | undefined {
  if (typeof value !== 'object' || value === null || schemas.length === 0) return undefined
  if (isExactInteger(value)) return { path, message: TOO_LARGE_INTEGER }
  // Below a value that may be anything, nothing is known to be kept.
  const anything = schemas.filter(isAny)
  const shapes = schemas.flatMap(branchesOf)
  for (const [key, field] of Object.entries(value)) {
    const declared = Array.isArray(value)
      ? shapes.flatMap(({ items }) => (items === undefined ? [] : [items]))
      : shapes.flatMap(({ properties = {} }) => (Object.hasOwn(properties, key) ? [properties[key] as TSchema] : []))
    const of = [...declared, ...anything]
    const found = findRounded(of, field, `${path}/${key}`) ?? findInOpen(shapes, field, `${path}/${key}`, of.length > 0)
    if (found !== undefined) return found
  }
  return undefined
}

/** A field of an object of any keys: kept exactly where its schema accepts anything. */
function findInOpen(
  shapes: readonly Shape[],
  field: unknown,
  path: string,
  isDeclared: boolean,
): ErrorDetail | undefined {
  if (isDeclared) return undefined
  const values = shapes.flatMap(({ additionalProperties: values }) =>
    typeof values === 'object' && values !== null ? [values as TSchema] : [],
  )
  return values.some(isAny) ? undefined : findRounded(values, field, path)
}

const isAny = (schema: TSchema) => {
  const { type, enum: values, const: value, allOf, anyOf, oneOf, properties, items } = schema as Shape
  return [type, values, value, allOf, anyOf, oneOf, properties, items].every((rule) => rule === undefined)
}

function branchesOf(schema: TSchema): Shape[] {
  const shape = schema as Shape
  const { allOf = [], anyOf = [], oneOf = [] } = shape
  return [shape, ...[...allOf, ...anyOf, ...oneOf].flatMap(branchesOf)]
}
