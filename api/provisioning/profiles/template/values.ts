/** Values of a template: those of JSON, and what is not there. */

/** What was asked for and is not there, under the name of the question. */
export class Missing {
  readonly path: string
  constructor(path: string) {
    this.path = path
  }
}

export type Value = string | number | boolean | null | Missing | readonly Value[] | { readonly [key: string]: Value }

export const isList = (value: Value): value is readonly Value[] => Array.isArray(value)

export const isRecord = (value: Value): value is { readonly [key: string]: Value } =>
  typeof value === 'object' && value !== null && !isList(value) && !(value instanceof Missing)

const sortedKeys = new WeakMap<object, readonly string[]>()

/** Its keys in order, found once for each object: a template may ask in every round of a loop. */
export function keysOf(record: { readonly [key: string]: Value }): readonly string[] {
  const known = sortedKeys.get(record)
  if (known !== undefined) return known
  const keys = Object.keys(record).toSorted()
  sortedKeys.set(record, keys)
  return keys
}

/** As in Go: false, 0, nothing, and what is empty. */
export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Missing) return false
  if (isList(value)) return value.length > 0
  if (isRecord(value)) return keysOf(value).length > 0
  return value !== false && value !== 0 && value !== ''
}

/** One field; the own ones alone, so that nothing of the language underneath is reached. */
export function fieldOf(value: Value, name: string, path: string): Value {
  if (isRecord(value) && Object.hasOwn(value, name)) return value[name] ?? null
  return new Missing(path)
}
