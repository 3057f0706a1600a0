/** Selects the function of a call and its arguments, or the reason why it cannot be called. */
import { findFunction, formatType, isCallableFromJson, isCommand, parseInputs } from '../wasm/index.ts'
import type { DescribedExport, Json } from '../wasm/index.ts'
import { failed } from './outcome.ts'
import type { CallOutcome } from './outcome.ts'

/** Limit of names in an error message. */
const MAX_NAMED = 20

export type Choice = { chosen: DescribedExport; values: unknown[] } | { outcome: CallOutcome }

/** An export can have the empty name, which no request can give: it is called when it is the only function. */
const shownName = (name: string): string => (name === '' ? '"" (its name is empty: rename it)' : name)

export function chooseFunction(
  exports: DescribedExport[],
  call: { functionName: string; programName: string; inputs: Json[] },
): Choice {
  const chosen = findFunction(exports, { explicit: call.functionName, fallback: call.programName })
  if (chosen === undefined) {
    const names = exports.filter((exported) => exported.kind === 'function').map((exported) => exported.name)
    const shown = names.slice(0, MAX_NAMED).map(shownName).join(', ')
    const wanted = call.functionName === '' ? 'no default function' : `no function ${JSON.stringify(call.functionName)}`
    const offered = names.length === 0 ? 'no functions' : shown
    return { outcome: failed('no_such_function', `the module exports ${wanted}; it exports ${offered}`) }
  }
  if (!isCallableFromJson(chosen) && !isCommand(chosen)) {
    const error = `${shownName(chosen.name)} has the type ${formatType(chosen)}, which cannot be called with JSON values`
    return { outcome: failed('no_such_function', error) }
  }
  const values = parseInputs(call.inputs, chosen.params, shownName(chosen.name))
  return 'refused' in values ? { outcome: failed('guest_error', values.refused) } : { chosen, values }
}
