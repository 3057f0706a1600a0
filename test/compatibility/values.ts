/** Names and values of a case: placeholders in texts, paths into bodies, and the comparison of a value with what is expected. */
import assert from 'node:assert'

export type Names = Map<string, unknown>

/** `{name}` stands for what was saved. A text that is nothing else keeps the type of the value; an unknown name is left. */
export function fill<T>(value: T, names: Names): T {
  return fillAny(value, names) as T
}

function fillAny(value: unknown, names: Names): unknown {
  if (typeof value === 'string') {
    const whole = /^\{(\w+)\}$/.exec(value)?.[1]
    if (whole !== undefined && names.has(whole)) return names.get(whole)
    return value.replaceAll(/\{(\w+)\}/g, (text, name: string) => (names.has(name) ? String(names.get(name)) : text))
  }
  if (Array.isArray(value)) return value.map((item) => fillAny(item, names))
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [String(fillAny(key, names)), fillAny(item, names)]),
    )
  return value
}

/** The value at `$.tasks[0].id`; undefined where there is none. */
export function at(body: unknown, path: string): unknown {
  let value = body
  for (const [, name, index] of path.slice(1).matchAll(/\.(\w+)|\[(\d+)\]/g)) {
    if (typeof value !== 'object' || value === null) return undefined
    const key = name ?? Number(index)
    value = Object.hasOwn(value, key) ? (value as Record<string | number, unknown>)[key] : undefined
  }
  return value
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/

const isOfType: Record<string, (value: unknown) => boolean> = {
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  array: Array.isArray,
  null: (value) => value === null,
  time: (value) => typeof value === 'string' && TIME.test(value),
}

const isEqual = (actual: unknown, expected: unknown): boolean => {
  try {
    assert.deepStrictEqual(actual, expected)
    return true
  } catch {
    return false
  }
}

/** Whether `actual` has at least the fields of `expected`, at every depth; elements of lists are compared one by one. */
export function hasAtLeast(actual: unknown, expected: unknown): boolean {
  if (typeof expected !== 'object' || expected === null) return isEqual(actual, expected)
  if (typeof actual !== 'object' || actual === null) return false
  if (Array.isArray(expected))
    return (
      Array.isArray(actual) &&
      actual.length === expected.length &&
      expected.every((item, i) => hasAtLeast(actual[i], item))
    )
  return Object.entries(expected).every(([key, item]) => hasAtLeast((actual as Record<string, unknown>)[key], item))
}

const hasElement = (actual: unknown, fields: unknown) =>
  Array.isArray(actual) && actual.some((element) => hasAtLeast(element, fields))

const TESTS: Record<string, (actual: unknown, rule: unknown) => boolean> = {
  type: (actual, rule) => {
    return [rule].flat().some((type) => {
      const check = isOfType[String(type)]
      if (check === undefined) throw new Error(`no such type: ${String(type)}`)
      return check(actual)
    })
  },
  match: (actual, rule) => typeof actual === 'string' && new RegExp(String(rule), 'u').test(actual),
  not: (actual, rule) => !fits(actual, rule),
  contains: (actual, rule) => (typeof actual === 'string' ? actual.includes(String(rule)) : hasElement(actual, rule)),
  without: (actual, rule) => Array.isArray(actual) && !hasElement(actual, rule),
  least: (actual, rule) => typeof actual === 'number' && actual >= Number(rule),
  ahead: (actual, rule) => {
    const [from = 0, to = 0] = rule as number[]
    const seconds = (Date.parse(String(actual)) - Date.now()) / 1000
    return seconds >= from && seconds <= to
  },
}

/** Whether a value is equal as JSON, or passes the one test that `expected` names. */
export function fits(actual: unknown, expected: unknown): boolean {
  if (isOfType['object']?.(expected) === true) {
    const entries: [string, unknown][] = Object.entries(expected as object)
    const [only] = entries
    const test = entries.length === 1 && only !== undefined ? TESTS[only[0]] : undefined
    if (test !== undefined && only !== undefined) return test(actual, only[1])
  }
  return isEqual(actual, expected)
}
