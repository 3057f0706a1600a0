import { expect, test } from 'vitest'
import { ACTIONS, CONSUMER_ACTIONS, PROFILE_ACTIONS, TASK_ACTIONS, parseConnectionType } from './actions.ts'

// contract section 2.3: a domain has 42 actions, plus the two on the state of its clients and the one on commands, the eight of the task manager, the four of profiles and the four of consumers
test('the action lists have the lengths of the contract', () => {
  expect(ACTIONS.client).toHaveLength(9 + 3)
  expect(ACTIONS.channel).toHaveLength(11)
  expect(ACTIONS.domain).toHaveLength(42 + 3 + TASK_ACTIONS.length + PROFILE_ACTIONS.length + CONSUMER_ACTIONS.length)
  expect(TASK_ACTIONS).toHaveLength(8)
  expect(PROFILE_ACTIONS).toHaveLength(4)
  expect(CONSUMER_ACTIONS).toHaveLength(4)
  expect(ACTIONS.group).toHaveLength(65 + 6)
})

test('no list contains an action twice', () => {
  for (const actions of Object.values(ACTIONS)) expect(new Set(actions).size).toBe(actions.length)
})

test('current and legacy names of connection types are parsed to publish and subscribe', () => {
  expect(['publish', 'Publish', 'm_write', 'M_WRITE'].map(parseConnectionType)).toEqual(Array(4).fill('publish'))
  expect(['subscribe', 'Subscribe', 'm_read'].map(parseConnectionType)).toEqual(Array(3).fill('subscribe'))
  expect(parseConnectionType('both')).toBeUndefined()
})
