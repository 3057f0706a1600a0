/**
 * The results of a command repeat what it wrote, up to 32 MiB. A runner sends it once; the worker puts it into the results again, where it is the
 * same value, not a copy.
 */
import type { CallOutcome, CommandResults } from '#guests/calls/index.ts'

type Once = { outcome: CallOutcome; isOutputInResults?: true }

export type WrittenOutcome = Pick<CallOutcome, 'stdout' | 'stderr'> & { results?: unknown }

/** True if the results are those of a command, with all that the outcome says it wrote. */
export function hasOutputInResults({ stdout, stderr, results }: WrittenOutcome): boolean {
  if (typeof results !== 'object' || results === null || !('exit_code' in results)) return false
  const written = results as Partial<CommandResults>
  return stdout !== undefined && stderr !== undefined && written.stdout === stdout && written.stderr === stderr
}

/** The outcome as it is sent. */
export function withOutputOnce(outcome: CallOutcome): Once {
  if (!hasOutputInResults(outcome)) return { outcome }
  const { exit_code } = outcome.results as CommandResults
  return { outcome: { ...outcome, results: { exit_code } }, isOutputInResults: true }
}

/** The outcome as it was. Throws for results that a runner cannot send so. */
export function withOutputInResults(outcome: CallOutcome): CallOutcome {
  const { stdout, stderr, results } = outcome
  if (typeof results !== 'object' || results === null || Array.isArray(results) || !('exit_code' in results))
    throw new Error('the results are not those of a command')
  if (stdout === undefined || stderr === undefined) throw new Error('an outcome of a command has no output')
  return { ...outcome, results: { ...results, stdout, stderr } as CommandResults }
}
