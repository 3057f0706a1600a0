/** Inputs and results of a function as JSON: numbers, or decimal text for 64-bit integers beyond 2^53. */
import type { ValueType } from './value-types.ts'

export type JsonNumber = number | string
export type WasmNumber = number | bigint

/** An input that the function does not take; the sentence names what it would take. */
export type InputRefusal = { refused: string }

/**
 * Converts inputs to the parameter types, strictly: the right number of them, integers within the range of their type
 * (signed or unsigned), finite numbers for floats. Answers a sentence instead of values when they do not fit.
 */
export function parseInputs(inputs: JsonNumber[], params: ValueType[], name: string): WasmNumber[] | InputRefusal {
  const takes = `${name} takes ${params.length} input${params.length === 1 ? '' : 's'} (${params.join(', ')})`
  if (inputs.length !== params.length) return { refused: `${takes}, not ${inputs.length}` }
  const values: WasmNumber[] = []
  for (const [index, param] of params.entries()) {
    const value = parseInput(inputs[index] as JsonNumber, param)
    if (value === undefined) return { refused: `${takes}; input ${index} must be ${describeRange(param)}` }
    values.push(value)
  }
  return values
}

function parseInput(input: JsonNumber, type: ValueType): WasmNumber | undefined {
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
    default:
      return undefined
  }
}

/** Longer decimal text cannot be in any range and is not worth parsing. */
const MAX_INTEGER_DIGITS = 20

function parseInteger(input: JsonNumber, bits: bigint): bigint | undefined {
  if (typeof input === 'number' ? !Number.isSafeInteger(input) : !/^-?\d+$/.test(input)) return undefined
  if (typeof input === 'string' && input.length > MAX_INTEGER_DIGITS) return undefined
  const value = BigInt(input)
  return value >= -(2n ** (bits - 1n)) && value < 2n ** bits ? value : undefined
}

function describeRange(type: ValueType): string {
  switch (type) {
    case 'i32':
      return 'an integer from -2147483648 to 4294967295'
    case 'i64':
      return 'an integer from -9223372036854775808 to 18446744073709551615, as decimal text beyond 2^53'
    case 'f32':
    case 'f64':
      return `a number within the range of ${type}`
    default:
      return `a ${type}, which cannot be given as JSON`
  }
}

/** True when JSON can carry every parameter and result of the function. */
export function isCallableFromJson(type: { params: ValueType[]; results: ValueType[] }): boolean {
  const isNumber = (value: ValueType) => value === 'i32' || value === 'i64' || value === 'f32' || value === 'f64'
  return type.params.every(isNumber) && type.results.every(isNumber)
}

/** A returned number as JSON: integers beyond 2^53 as decimal text, NaN and infinities by their names. */
export function presentResult(value: unknown): JsonNumber {
  if (typeof value === 'bigint') {
    return value >= -(2n ** 53n) && value <= 2n ** 53n ? Number(value) : value.toString()
  }
  return typeof value === 'number' && Number.isFinite(value) ? value : String(value)
}
