/** Inputs of a workflow's task that are results of its dependencies: `{"from": "<task>", "result": 0}`. Pure. */
import { ServiceError } from '#core/errors/index.ts'
import type { RunInput } from './task-fields.ts'

/** The results of its dependencies after which a task of a workflow runs. */
export type RunIf = 'success' | 'failure' | 'always'

export type ResultReference = { from: string; result: number }

/** The reference in an input; undefined if the input is a value. */
export function parseResultReference(input: RunInput): ResultReference | undefined {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return undefined
  const { from, result = 0, ...others } = input as Record<string, unknown>
  if (typeof from !== 'string' || typeof result !== 'number' || Object.keys(others).length > 0) return undefined
  return Number.isInteger(result) && result >= 0 ? { from, result } : undefined
}

/** Throws `malformed` with the first input that is a reference. */
export function refuseResultReferences(inputs: readonly RunInput[]): void {
  const index = inputs.findIndex((input) => parseResultReference(input) !== undefined)
  if (index < 0) return
  throw new ServiceError(
    'malformed',
    `/inputs/${index} refers to the result of another task, which only a workflow can do`,
    {
      details: [{ path: `/inputs/${index}`, message: 'must be a value' }],
    },
  )
}

/**
 * One result of a run: the element of an array, or the whole result if it is not an array. Undefined if it does not
 * exist.
 */
export function pickResult(results: unknown, { result }: ResultReference): RunInput | undefined {
  if (Array.isArray(results)) return results[result] as RunInput | undefined
  return result === 0 && results !== null ? (results as RunInput) : undefined
}
