/**
 * Inputs of a function as JSON. The texts of the types distinguish core functions (`i32`) and component functions (`list<u8>`);
 * `f32` and `f64` mean the same in both.
 */
import { describeNumber, isNumberType, parseNumber } from './numbers.ts'
import { ValueRefusal, isJsonType, toComponentValue } from './wit-values.ts'
import type { Json } from './wit-values.ts'
import { parseWitType } from './wit-types.ts'

/** Types whose values only the engine can create: inputs and results with them are not supported. */
const OPAQUE_TYPES = new Set(['v128', 'funcref', 'externref', 'exnref', 'ref'])

/** An invalid input; the message says what the function accepts. */
export type InputRefusal = { refused: string }

/**
 * Converts inputs to the arguments of a function. Checks their number and types strictly, and returns a message instead of
 * arguments when they do not match.
 */
export function parseInputs(
  inputs: readonly Json[],
  params: readonly string[],
  name: string,
): unknown[] | InputRefusal {
  const takes = `${name} takes ${params.length} input${params.length === 1 ? '' : 's'} (${params.join(', ')})`
  if (inputs.length !== params.length) return { refused: `${takes}, not ${inputs.length}` }
  const values: unknown[] = []
  for (const [index, param] of params.entries()) {
    try {
      values.push(parseInput(inputs[index] as Json, param, `input ${index}`))
    } catch (error) {
      if (!(error instanceof ValueRefusal)) throw error
      return { refused: `${takes}; ${error.message}` }
    }
  }
  return values
}

function parseInput(input: Json, param: string, at: string): unknown {
  if (OPAQUE_TYPES.has(param)) throw new ValueRefusal(`${at} must be a ${param}, which cannot be given as JSON`)
  if (!isNumberType(param)) return toComponentValue(input, parseWitType(param), at)
  const value = parseNumber(input, param)
  if (value === undefined) throw new ValueRefusal(`${at} must be ${describeNumber(param)}`)
  return value
}

/** True when JSON can represent every parameter and result of the function. */
export function isCallableFromJson(type: { params: readonly string[]; results: readonly string[] }): boolean {
  const isJson = (text: string) => isNumberType(text) || (!OPAQUE_TYPES.has(text) && isJsonType(parseWitType(text)))
  return type.params.every(isJson) && type.results.every(isJson)
}
