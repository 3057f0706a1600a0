import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { actionGroups, sentenceOf, sentenceOn } from './role-words.ts'

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

test('an action on an entity is a sentence about it', () => {
  expect(sentenceOn('client', 'update')).toBe('Change the client')
  expect(sentenceOn('domain', 'update')).toBe('Change the domain')
  expect(sentenceOn('domain', 'client_delete')).toBe('Delete clients')
  expect(sentenceOn('group', 'subgroup_delete')).toBe('Delete groups below it')
  expect(sentenceOn('group', 'subgroup_client_update')).toBe('Change clients in groups below it')
  expect(sentenceOn('group', 'set_child')).toBe('Put entities into the group')
})
