/**
 * The two numberings of task states. HTTP and the database count from 0 (`state: 0` of a new task); the protocol uses 0
 * for "unspecified". Only this file converts between them.
 */
import { TaskState as WireTaskState } from './gen/cluster/v1/run_pb.ts'

/** States as numbered by HTTP and the database (task-manager.md section 2). */
export const TASK_STATE = {
  pending: 0,
  scheduled: 1,
  running: 2,
  completed: 3,
  failed: 4,
  skipped: 5,
  stopped: 6,
  unknown: 7,
} as const

export type TaskStateName = keyof typeof TASK_STATE
export type TaskState = (typeof TASK_STATE)[TaskStateName]

const TO_WIRE = {
  0: WireTaskState.PENDING,
  1: WireTaskState.SCHEDULED,
  2: WireTaskState.RUNNING,
  3: WireTaskState.COMPLETED,
  4: WireTaskState.FAILED,
  5: WireTaskState.SKIPPED,
  6: WireTaskState.STOPPED,
  7: WireTaskState.UNKNOWN,
} as const satisfies Record<TaskState, WireTaskState>

const FROM_WIRE = new Map<number, TaskState>(Object.values(TASK_STATE).map((state) => [TO_WIRE[state], state] as const))

/** The protocol's number of a state. */
export function taskStateToWire(state: TaskState): WireTaskState {
  return TO_WIRE[state]
}

/** The state of a protocol number; undefined for "unspecified" and for states of a newer peer. */
export function taskStateFromWire(state: number): TaskState | undefined {
  return FROM_WIRE.get(state)
}
