import { describe, expect, test } from 'vitest'
import { ACTIONS, ENTITY_TYPES } from '../access/index.ts'
import { RELATIONS, parseRelation, relationActions, relationNameOf, roleNameOf } from './relations.ts'
import type { Relation } from './relations.ts'

// decision 24
describe('a relation', () => {
  test('is parsed in any case, and other texts are rejected', () => {
    expect(['Administrator', 'EDITOR', 'viewer'].map((text) => parseRelation(text))).toEqual([
      'administrator',
      'editor',
      'viewer',
    ])
    for (const text of ['', 'admin', 'owner', 'editor ']) expect(() => parseRelation(text)).toThrow('must be one of')
  })

  test('administrator maps to the built-in role, the others to roles with their names', () => {
    expect(RELATIONS.map(roleNameOf)).toEqual(['admin', 'editor', 'contributor', 'member', 'viewer', 'guest'])
    expect(RELATIONS.map(roleNameOf).map(relationNameOf)).toEqual([...RELATIONS])
  })

  test.each(ENTITY_TYPES)('editor has every action on a %s except deletion and role management', (type) => {
    const left = ACTIONS[type].filter((action) => !relationActions(type, 'editor').includes(action))
    expect(left.length).toBeGreaterThan(3)
    for (const action of left) expect(action).toMatch(/(^|_)(delete|manage_role|add_role_users|remove_role_users)$/)
    expect(relationActions(type, 'editor')).toContain('view_role_users')
  })

  test('editor of a domain has all four actions on profiles, contributor and member none', () => {
    const profileActions = (relation: (typeof RELATIONS)[number]) =>
      relationActions('domain', relation).filter((action) => action.startsWith('profile_'))
    const all = ['profile_create', 'profile_read', 'profile_update', 'profile_delete']
    expect(profileActions('administrator')).toEqual(all)
    expect(profileActions('editor')).toEqual(all)
    expect(profileActions('contributor')).toEqual([])
    expect(profileActions('member')).toEqual([])
    expect(profileActions('viewer')).toEqual(['profile_read'])
    expect(profileActions('guest')).toEqual(['profile_read'])
  })

  // decision 100
  test('editor of a domain has all four actions on consumers, viewer reads them, contributor and member have none', () => {
    const consumerActions = (relation: (typeof RELATIONS)[number]) =>
      relationActions('domain', relation).filter((action) => action.startsWith('consumer_'))
    const all = ['consumer_create', 'consumer_read', 'consumer_update', 'consumer_delete']
    expect(consumerActions('administrator')).toEqual(all)
    expect(consumerActions('editor')).toEqual(all)
    for (const relation of ['viewer', 'guest'] as const) expect(consumerActions(relation)).toEqual(['consumer_read'])
    for (const relation of ['contributor', 'member'] as const) expect(consumerActions(relation)).toEqual([])
  })

  // decision 100
  test('commands to clients are given by administrators and editors alone', () => {
    const commanding = (relation: (typeof RELATIONS)[number]) =>
      ENTITY_TYPES.flatMap((type) => relationActions(type, relation)).filter((action) => /(^|_)command$/.test(action))
    const all = ['client_command', 'client_command', 'command', 'subgroup_client_command']
    for (const relation of ['administrator', 'editor'] as const) expect(commanding(relation).toSorted()).toEqual(all)
    for (const relation of ['contributor', 'member', 'viewer', 'guest'] as const)
      expect(commanding(relation)).toEqual([])
  })

  // decision 100
  test('editor of a domain has all actions on rules and alarms, viewer reads them, contributor and member have none', () => {
    const ofRules = (relation: (typeof RELATIONS)[number]) =>
      relationActions('domain', relation).filter((action) => /^(rule|alarm)_/.test(action))
    const [rule, alarm] = [
      ['create', 'read', 'update', 'delete'],
      ['read', 'update', 'delete'],
    ]
    const all = [...rule.map((action) => `rule_${action}`), ...alarm.map((action) => `alarm_${action}`)]
    expect(ofRules('administrator')).toEqual(all)
    expect(ofRules('editor')).toEqual(all)
    for (const relation of ['viewer', 'guest'] as const) expect(ofRules(relation)).toEqual(['rule_read', 'alarm_read'])
    for (const relation of ['contributor', 'member'] as const) expect(ofRules(relation)).toEqual([])
  })

  test('contributor of a domain has the actions of an editor on its clients, channels and groups, and none on the domain', () => {
    const actions = relationActions('domain', 'contributor')
    expect(actions).toContain('client_create')
    expect(actions).toContain('group_set_child')
    expect(actions).not.toContain('client_delete')
    for (const action of actions) expect(action).toMatch(/^(client|channel|group)_/)
  })

  test('contributor reads the state of clients, and does not change it; editor does, viewer reads it', () => {
    const stateActions = (type: 'domain' | 'group' | 'client', relation: Relation) =>
      relationActions(type, relation).filter((action) => /(^|_)state_/.test(action))
    for (const relation of ['contributor', 'viewer', 'guest'] as const) {
      expect(stateActions('domain', relation)).toEqual(['client_state_read'])
      expect(stateActions('group', relation)).toEqual(['client_state_read', 'subgroup_client_state_read'])
      expect(stateActions('client', relation)).toEqual(['state_read'])
    }
    expect(stateActions('domain', 'editor')).toEqual(['client_state_read', 'client_state_update'])
    expect(stateActions('client', 'editor')).toEqual(['state_read', 'state_update'])
  })

  test('contributor of one entity reads, updates, connects, publishes and subscribes', () => {
    expect(relationActions('client', 'contributor').toSorted()).toEqual([
      'connect_to_channel',
      'read',
      'state_read',
      'update',
    ])
    expect(relationActions('channel', 'contributor').toSorted()).toEqual([
      'connect_to_client',
      'publish',
      'read',
      'subscribe',
      'update',
    ])
    expect(relationActions('group', 'contributor')).toContain('subgroup_client_update')
  })

  test('viewer and guest read and subscribe, member reads, publishes and subscribes', () => {
    for (const relation of ['viewer', 'guest'] as const) {
      expect(relationActions('channel', relation).toSorted()).toEqual(['read', 'subscribe'])
      for (const action of relationActions('domain', relation)) expect(action).toMatch(/(read|subscribe)$/)
    }
    expect(relationActions('channel', 'member').toSorted()).toEqual(['publish', 'read', 'subscribe'])
    expect(relationActions('domain', 'member')).toEqual(['read'])
  })
})
