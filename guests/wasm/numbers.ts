/** Numbers of core functions as JSON: numbers, or decimal text for 64-bit integers beyond 2^53. */

export type JsonNumber = number | string
export type WasmNumber = number | bigint

const NUMBER_TYPES = ['i32', 'i64', 'f32', 'f64'] as const
export type NumberType = (typeof NUMBER_TYPES)[number]

export function isNumberType(type: string): type is NumberType {
  return (NUMBER_TYPES as readonly string[]).includes(type)
}

/** Strict: integers within the range of their type, signed or unsigned, and finite numbers. Undefined when out of range. */
export function parseNumber(input: unknown, type: NumberType): WasmNumber | undefined {
  if (typeof input !== 'number' && typeof input !== 'string') return undefined
  switch (type) {
    case 'i32': {
      const value = parseInteger(input, 32n)
      return value === undefined ? undefined : Number(value)
    }
    case 'i64':
      return parseInteger(input, 64n)
    case 'f32':
    case 'f64': {
      const isNumber = typeof input === 'number' || /^-?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(input)
      const value = Number(input)
      return isNumber && Number.isFinite(type === 'f32' ? Math.fround(value) : value) ? value : undefined
    }
  }
}

/** Longer decimal text is out of every range and is not parsed. */
const MAX_INTEGER_DIGITS = 20

function parseInteger(input: JsonNumber, bits: bigint): bigint | undefined {
  if (typeof input === 'number' ? !Number.isSafeInteger(input) : !/^-?\d+$/.test(input)) return undefined
  if (typeof input === 'string' && input.length > MAX_INTEGER_DIGITS) return undefined
  const value = BigInt(input)
  return value >= -(2n ** (bits - 1n)) && value < 2n ** bits ? value : undefined
}

export function describeNumber(type: NumberType): string {
  switch (type) {
    case 'i32':
      return 'an integer from -2147483648 to 4294967295'
    case 'i64':
      return 'an integer from -9223372036854775808 to 18446744073709551615, as decimal text beyond 2^53'
    case 'f32':
    case 'f64':
      return `a number within the range of ${type}`
  }
}

/** A returned number as JSON: integers beyond 2^53 as decimal text, NaN and infinities by name. */
export function presentResult(value: unknown): JsonNumber {
  if (typeof value === 'bigint') {
    return value >= -(2n ** 53n) && value <= 2n ** 53n ? Number(value) : value.toString()
  }
  return typeof value === 'number' && Number.isFinite(value) ? value : String(value)
}
