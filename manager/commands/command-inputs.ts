/** Converts a command to what a run gets, and the result of a run to that of the command. Pure. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import type { Json } from '#guests/wasm/index.ts'

/** A command as the guest gets it, in its words for fields. */
export type GivenCommand = {
  id: string
  name: string
  client_id: string
  created_at: string
  expires_at: string
  payload?: unknown
}

/**
 * The inputs of a function with these parameters: the task's own inputs come last. A first parameter of text gets the command as JSON. Any
 * other function gets the payload, whose items are its arguments if it is a list and the function has several. `params` undefined: the module
 * was not read yet.
 */
export function inputsOfCommand(
  command: GivenCommand,
  params: readonly string[] | undefined,
  own: readonly Json[],
): Json[] {
  const room = params === undefined ? 1 : params.length - own.length
  if (room <= 0) return [...own]
  if (params?.[0] === 'string') return [JSON.stringify(command), ...own]
  const { payload } = command
  if (payload === undefined) return [...own]
  return [...(Array.isArray(payload) && room > 1 ? (payload as Json[]) : [payload as Json]), ...own]
}

/**
 * What a run has returned, as the result of a command: one value for a function with one, a list for several, and for a program its standard
 * output, as JSON if it is JSON. Undefined: nothing.
 */
export function resultOfRun(results: unknown): unknown {
  if (Array.isArray(results)) return results.length > 1 ? results : (results as unknown[])[0]
  if (typeof results !== 'object' || results === null || !('exit_code' in results) || !('stdout' in results))
    return results ?? undefined
  const { stdout } = results
  if (typeof stdout !== 'string') return stdout
  const text = stdout.trim()
  if (text === '') return undefined
  try {
    return parseWithExactIntegers(text)
  } catch {
    return text
  }
}
