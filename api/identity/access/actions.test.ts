import { expect, test } from 'vitest'
import { ACTIONS, PROFILE_ACTIONS, TASK_ACTIONS, parseConnectionType } from './actions.ts'

// contract section 2.3: the counts; on a domain 42, the seven of the task manager and the four of profiles
test('the action lists have the lengths that the contract counts', () => {
  expect(ACTIONS.client).toHaveLength(9)
  expect(ACTIONS.channel).toHaveLength(11)
  expect(ACTIONS.domain).toHaveLength(42 + TASK_ACTIONS.length + PROFILE_ACTIONS.length)
  expect(TASK_ACTIONS).toHaveLength(7)
  expect(PROFILE_ACTIONS).toHaveLength(4)
  expect(ACTIONS.group).toHaveLength(65)
})

test('no action stands twice in a list', () => {
  for (const actions of Object.values(ACTIONS)) expect(new Set(actions).size).toBe(actions.length)
})

test('the connection types of every client generation are one of two', () => {
  expect(['publish', 'Publish', 'm_write', 'M_WRITE'].map(parseConnectionType)).toEqual(Array(4).fill('publish'))
  expect(['subscribe', 'Subscribe', 'm_read'].map(parseConnectionType)).toEqual(Array(3).fill('subscribe'))
  expect(parseConnectionType('both')).toBeUndefined()
})
