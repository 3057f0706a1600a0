/** The states of tasks and runs, by their number (task-manager, section 2). */
import { UsageError } from '../shared/failures.ts'

export const STATE_NAMES: readonly string[] = [
  'pending',
  'scheduled',
  'running',
  'completed',
  'failed',
  'skipped',
  'stopped',
  'unknown',
]

export const COMPLETED = STATE_NAMES.indexOf('completed')

/** The number of a state, given by its name or number. Throws UsageError with the list of states. */
export function stateNumber(text: string): string {
  const number = STATE_NAMES.indexOf(text.toLowerCase())
  if (number >= 0) return String(number)
  if (/^\d+$/.test(text)) return text
  throw new UsageError(`--state must be one of ${STATE_NAMES.join(', ')}`)
}

/** Whether the state is final until the next start. */
export function isOver(state: number): boolean {
  return state >= COMPLETED && STATE_NAMES[state] !== 'unknown'
}
