// task-manager.md section 2
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import { TASK_EVENTS, isUnderWay, nextState, renderLifecycle, requireNextState, stateName } from './lifecycle.ts'

const states = Object.values(TASK_STATE)
const anyState = fc.constantFrom(...states)
const anyEvent = fc.constantFrom(...TASK_EVENTS)

test('each state changes only to the states that the specification lists', () => {
  const leaves = states.map((state) => {
    const targets = new Set<TaskState>()
    for (const event of TASK_EVENTS) {
      const next = nextState(state, event)
      if (next !== undefined && event !== 'edit') targets.add(next)
    }
    return [...targets].toSorted((left, right) => left - right)
  })
  expect(leaves).toEqual([[1], [1, 2, 4, 5, 6], [1, 3, 4, 6, 7], [1], [1], [1], [1], [1, 2, 4, 6]])
})

test('an edit makes an inactive task pending, and is refused for an active one', () => {
  for (const state of states) expect(nextState(state, 'edit')).toBe(isUnderWay(state) ? undefined : TASK_STATE.pending)
})

test('an active task cannot be started again', () => {
  for (const state of states) expect(nextState(state, 'start') === undefined).toBe(isUnderWay(state))
})

test('in every state a task can be stopped or started', () => {
  fc.assert(
    fc.property(fc.array(anyEvent, { maxLength: 50 }), (events) => {
      let state: TaskState = TASK_STATE.pending
      for (const event of events) state = nextState(state, event) ?? state
      expect(nextState(state, isUnderWay(state) ? 'stop' : 'start')).toBeDefined()
    }),
  )
})

test('a refused event is invalid_state and names the state', () => {
  fc.assert(
    fc.property(anyState, anyEvent, (state, event) => {
      if (nextState(state, event) !== undefined) return
      expect(() => requireNextState(state, event)).toThrow(
        expect.objectContaining({
          kind: 'invalid_state',
          message: expect.stringContaining(stateName(state)) as string,
        }),
      )
    }),
  )
})

test('the diagram holds every transition', () => {
  const diagram = renderLifecycle()
  for (const state of states) {
    for (const event of TASK_EVENTS) {
      const next = nextState(state, event)
      const line = `${stateName(state)} --> ${stateName(next ?? state)}: ${event}`
      expect(diagram.includes(line)).toBe(next !== undefined)
    }
  }
})
