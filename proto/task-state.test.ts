import { expect, test } from 'vitest'
import { TaskStateSchema, TaskState as WireTaskState } from './gen/cluster/v1/run_pb.ts'
import { TASK_STATE, taskStateFromWire, taskStateToWire } from './task-state.ts'

test('every state has one number on the wire and comes back unchanged', () => {
  const seen = new Set<number>()
  for (const state of Object.values(TASK_STATE)) {
    const wire = taskStateToWire(state)
    expect(seen.has(wire)).toBe(false)
    seen.add(wire)
    expect(taskStateFromWire(wire)).toBe(state)
  }
  expect(seen.size).toBe(TaskStateSchema.values.length - 1)
})

test('the names of both numberings agree', () => {
  for (const [name, state] of Object.entries(TASK_STATE)) {
    const described = TaskStateSchema.values.find((value) => value.number === taskStateToWire(state))
    expect(described?.name).toBe(`TASK_STATE_${name.toUpperCase()}`)
  }
})

test('unspecified and unknown numbers are not states', () => {
  expect(taskStateFromWire(WireTaskState.UNSPECIFIED)).toBeUndefined()
  expect(taskStateFromWire(99)).toBeUndefined()
})
