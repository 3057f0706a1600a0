/**
 * JSON whose integers above 2^53 keep their digits: a serial number in metadata must not become another one. Such an integer is raw JSON, an
 * object that JSON.stringify writes unchanged. It is no number: nothing computes with it.
 */

/** Missing in TypeScript's library (ECMAScript proposal JSON.parse source text access). */
type RawJson = {
  parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): object
  isRawJSON(value: unknown): boolean
}
const rawJson = JSON as unknown as RawJson

/** A number of 16 digits or more may be one; most texts contain none, and are parsed at full speed. */
const MAY_CONTAIN = /(?:^|[[:,\s])-?\d{16}/
const INTEGER = /^-?\d+$/

/** Like JSON.parse. `onExact` is called for each integer that a double would change. */
export function parseWithExactIntegers(text: string, onExact?: () => void): unknown {
  if (!MAY_CONTAIN.test(text)) return JSON.parse(text)
  return rawJson.parse(text, (_key, value, { source }) => {
    if (typeof value !== 'number' || source === undefined || String(value) === source || !INTEGER.test(source))
      return value
    if (source === '-0') return value
    onExact?.()
    return rawJson.rawJSON(source)
  })
}

export const isExactInteger = (value: unknown): boolean => rawJson.isRawJSON(value)

/** Converts a value of a parser that gives large integers as bigint (YAML, TOML). */
export function exactIntegersOf(value: unknown): unknown {
  if (typeof value === 'bigint') {
    const number = Number(value)
    return String(number) === String(value) ? number : rawJson.rawJSON(String(value))
  }
  if (Array.isArray(value)) return value.map(exactIntegersOf)
  if (typeof value !== 'object' || value === null || value instanceof Date || isExactInteger(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, exactIntegersOf(field)]))
}

/** Converts a value for a writer that takes large integers as bigint. */
export function bigIntegersOf(value: unknown): unknown {
  if (isExactInteger(value)) return BigInt(JSON.stringify(value))
  if (Array.isArray(value)) return value.map(bigIntegersOf)
  if (typeof value !== 'object' || value === null || value instanceof Date) return value
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, bigIntegersOf(field)]))
}
