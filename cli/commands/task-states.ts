/** The states of tasks and runs, by their number (task-manager, section 2). */

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

/** Whether nothing more will happen unless it is started again. */
export function isOver(state: number): boolean {
  return state >= COMPLETED && STATE_NAMES[state] !== 'unknown'
}
