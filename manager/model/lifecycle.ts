/**
 * The lifecycle of tasks and runs (task-manager.md section 2): the state transitions. Pure; code that writes a state
 * checks here first, and the SQL takes its allowed source states from the same table.
 */
import { TASK_STATE, type TaskState, type TaskStateName } from '#proto/index.ts'
import { ServiceError } from '#core/errors/index.ts'

/**
 * start: a start was accepted; running: a worker reported it; complete, fail, stop: the end; requeue: another attempt;
 * lose: the lease expired and on_lost is wait; skip: the condition in a workflow was false; edit: a PUT.
 */
export const TASK_EVENTS = ['start', 'running', 'complete', 'fail', 'stop', 'requeue', 'lose', 'skip', 'edit'] as const
export type TaskEvent = (typeof TASK_EVENTS)[number]

const { pending, scheduled, running, completed, failed, skipped, stopped, unknown } = TASK_STATE

/** A state that has no row for an event refuses it. */
const TRANSITIONS: Readonly<Record<TaskState, Readonly<Partial<Record<TaskEvent, TaskState>>>>> = {
  [pending]: { start: scheduled, edit: pending },
  [scheduled]: { running, fail: failed, skip: skipped, stop: stopped, requeue: scheduled },
  [running]: { complete: completed, fail: failed, stop: stopped, lose: unknown, requeue: scheduled },
  [completed]: { start: scheduled, edit: pending },
  [failed]: { start: scheduled, edit: pending },
  [skipped]: { start: scheduled, edit: pending },
  [stopped]: { start: scheduled, edit: pending },
  [unknown]: { running, fail: failed, stop: stopped, requeue: scheduled },
}

/** The state after the event, or undefined when the state refuses it. */
export function nextState(state: TaskState, event: TaskEvent): TaskState | undefined {
  return TRANSITIONS[state][event]
}

/** The state after the event. Throws `invalid_state` naming both. */
export function requireNextState(state: TaskState, event: TaskEvent): TaskState {
  const next = nextState(state, event)
  if (next === undefined) {
    throw new ServiceError(
      'invalid_state',
      `the task is ${stateName(state)}: ${REFUSALS[event] ?? `it does not accept ${event}`}`,
    )
  }
  return next
}

const REFUSALS: Partial<Record<TaskEvent, string>> = {
  start: 'it can be started again when it has ended',
  edit: 'stop it before you change it',
}

const NAMES = new Map<TaskState, TaskStateName>(
  (Object.entries(TASK_STATE) as [TaskStateName, TaskState][]).map(([name, state]) => [state, name]),
)

/** The public name of a state. */
export function stateName(state: TaskState): TaskStateName {
  return NAMES.get(state) as TaskStateName
}

/** Scheduled, running and unknown: a run is active, and the database holds a deadline for it. */
export function isUnderWay(state: TaskState): boolean {
  return state === scheduled || state === running || state === unknown
}

/** The table as the text of a Mermaid state diagram, for docs/architecture.md. */
export function renderLifecycle(): string {
  const lines = ['stateDiagram-v2', '  [*] --> pending']
  for (const [name, state] of Object.entries(TASK_STATE)) {
    for (const [event, next] of Object.entries(TRANSITIONS[state])) {
      lines.push(`  ${name} --> ${stateName(next)}: ${event}`)
    }
  }
  return `${lines.join('\n')}\n`
}
