import { expect, test } from 'vitest'
import { ACTIONS } from './actions.ts'
import { INHERITED } from './inheritance.ts'

// contract 2.4: the prefixes
test('every action that grants an inherited action exists on the provider', () => {
  for (const [provider, byType] of Object.entries(INHERITED)) {
    const known = new Set<string>(ACTIONS[provider === 'domain' ? 'domain' : 'group'])
    for (const [type, inheritance] of Object.entries(byType))
      for (const needed of inheritance.values()) expect(known.has(needed), `${provider} ${type} ${needed}`).toBe(true)
  }
})

test('every action of an entity can be inherited', () => {
  for (const byType of Object.values(INHERITED))
    for (const type of ['client', 'channel', 'group'] as const)
      expect([...byType[type].keys()]).toEqual([...ACTIONS[type]])
})

test('a domain grants with the prefixes client_, channel_ and group_, a parent with client_ and channel_, an ancestor with subgroup_', () => {
  expect(INHERITED.domain.client.get('read')).toBe('client_read')
  expect(INHERITED.domain.group.get('set_child')).toBe('group_set_child')
  expect(INHERITED.domain.group.get('subgroup_client_read')).toBe('client_read')
  expect(INHERITED.domain.group.get('subgroup_create')).toBe('group_create')
  expect(INHERITED.parent.channel.get('publish')).toBe('channel_publish')
  expect(INHERITED.ancestor.channel.get('publish')).toBe('subgroup_channel_publish')
  expect(INHERITED.ancestor.group.get('read')).toBe('subgroup_read')
  expect(INHERITED.ancestor.group.get('subgroup_read')).toBe('subgroup_read')
  expect(INHERITED.ancestor.group.get('client_create')).toBe('subgroup_client_create')
})
