import { isExactInteger } from '#core/exact-integers.ts'

/** Values of a template: those of JSON, and missing values. */

/** A missing value with its path in the template. */
export class Missing {
  readonly path: string
  constructor(path: string) {
    this.path = path
  }
}

export type Value = string | number | boolean | null | Missing | readonly Value[] | { readonly [key: string]: Value }

export const isList = (value: Value): value is readonly Value[] => Array.isArray(value)

export const isRecord = (value: Value): value is { readonly [key: string]: Value } =>
  typeof value === 'object' && value !== null && !isList(value) && !(value instanceof Missing) && !isExactInteger(value)

const sortedKeys = new WeakMap<object, readonly string[]>()

/** Returns the sorted keys, cached by object: a loop can use them in every iteration. */
export function keysOf(record: { readonly [key: string]: Value }): readonly string[] {
  const known = sortedKeys.get(record)
  if (known !== undefined) return known
  const keys = Object.keys(record).toSorted()
  sortedKeys.set(record, keys)
  return keys
}

/** False, as in Go, for false, 0, missing and empty values. */
export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Missing) return false
  if (isList(value)) return value.length > 0
  if (isRecord(value)) return keysOf(value).length > 0
  return value !== false && value !== 0 && value !== ''
}

/** Returns a field. Only own properties are visible, so that templates cannot access JavaScript internals. */
export function fieldOf(value: Value, name: string, path: string): Value {
  if (isRecord(value) && Object.hasOwn(value, name)) return value[name] ?? null
  return new Missing(path)
}
