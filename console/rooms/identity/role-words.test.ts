import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { actionGroups, sentenceOf } from './role-words.ts'

type Document = { components: { schemas: { Action: { enum: string[] } } } }

/** Those that a role of a domain can have; groups inside a group have actions of their own. */
const ACTIONS = (JSON.parse(readFileSync('openapi.json', 'utf8')) as Document).components.schemas.Action.enum.filter(
  (action) => !action.startsWith('subgroup_'),
)

test('every action that a role can have is a sentence', () => {
  expect(ACTIONS).toContain('consumer_create')
  expect(ACTIONS.filter((action) => sentenceOf(action) === action)).toEqual([])
})

test('an action is in the group of its subject', () => {
  const groups = Object.fromEntries(actionGroups(ACTIONS).map(({ title, actions }) => [title, actions]))
  expect(groups['Consumers']).toEqual(ACTIONS.filter((action) => action.startsWith('consumer_')))
  expect((groups['The domain'] ?? []).filter((action) => action.includes('consumer'))).toEqual([])
})
