/**
 * Inputs of a function as JSON. Types of core functions (`i32`) and of component functions (`list<u8>`) are told apart by
 * their text; `f32` and `f64` mean the same in both.
 */
import { describeNumber, isNumberType, parseNumber } from './numbers.ts'
import { ValueRefusal, isJsonType, toComponentValue } from './wit-values.ts'
import type { Json } from './wit-values.ts'
import { parseWitType } from './wit-types.ts'

/** Types whose values only the engine can make: no input or result has them. */
const OPAQUE_TYPES = new Set(['v128', 'funcref', 'externref', 'exnref', 'ref'])

/** An input that the function does not take; the sentence names what it would take. */
export type InputRefusal = { refused: string }

/**
 * Converts inputs to the values that a function is called with, strictly: the right number of them, each within its type.
 * Answers a sentence instead of values when they do not fit.
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

/** True when JSON can carry every parameter and result of the function. */
export function isCallableFromJson(type: { params: readonly string[]; results: readonly string[] }): boolean {
  const isJson = (text: string) => isNumberType(text) || (!OPAQUE_TYPES.has(text) && isJsonType(parseWitType(text)))
  return type.params.every(isJson) && type.results.every(isJson)
}
