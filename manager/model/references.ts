/** Inputs of a workflow's task that are results of the tasks it depends on: `{"from": "<task>", "result": 0}`. Pure. */
import { ServiceError } from '#core/errors/index.ts'
import type { RunInput } from './task-fields.ts'

/** After which ends of its parents a task of a workflow runs. */
export type RunIf = 'success' | 'failure' | 'always'

export type Reference = { from: string; result: number }

/** The reference that an input is; undefined: it is a value. */
export function referenceOf(input: RunInput): Reference | undefined {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return undefined
  const { from, result = 0, ...others } = input as Record<string, unknown>
  if (typeof from !== 'string' || typeof result !== 'number' || Object.keys(others).length > 0) return undefined
  return Number.isInteger(result) && result >= 0 ? { from, result } : undefined
}

/** Throws `malformed` naming the first input that only a workflow could fill in. */
export function refuseReferences(inputs: readonly RunInput[]): void {
  const index = inputs.findIndex((input) => referenceOf(input) !== undefined)
  if (index < 0) return
  throw new ServiceError('malformed', `/inputs/${index} names the result of another task, which only a workflow has`, {
    details: [{ path: `/inputs/${index}`, message: 'must be a value' }],
  })
}

/** One result of a run: the element of an array, or the whole where it is none. Undefined: there is no such result. */
export function pickResult(results: unknown, { result }: Reference): RunInput | undefined {
  if (Array.isArray(results)) return results[result] as RunInput | undefined
  return result === 0 && results !== null ? (results as RunInput) : undefined
}
