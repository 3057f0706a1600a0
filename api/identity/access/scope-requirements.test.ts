// contract section 6: scopes; section 2.3: actions
import { expect, test } from 'vitest'
import { ACTIONS, ENTITY_TYPES } from './actions.ts'
import { OUTSIDE_ACTIONS, requirementOf } from './scope-requirements.ts'
import { SCOPE_ENTITY_TYPES, SCOPE_OPERATIONS } from './scopes.ts'

const spoken = (entity: (typeof ENTITY_TYPES)[number], action: string) => {
  const needed = requirementOf(entity, action)
  return needed === undefined ? undefined : `${needed.type}:${needed.operation}`
}

test('every action of every entity type requires one existing scope', () => {
  for (const entity of ENTITY_TYPES) {
    for (const action of ACTIONS[entity]) {
      const needed = requirementOf(entity, action)
      expect(needed, `${entity} ${action}`).toBeDefined()
      expect(SCOPE_ENTITY_TYPES, `${entity} ${action}`).toContain(needed?.type)
      expect(SCOPE_OPERATIONS, `${entity} ${action}`).toContain(needed?.operation)
    }
  }
})

test('the mapping of the actions of a client and a channel', () => {
  expect(Object.fromEntries(ACTIONS.client.map((action) => [action, spoken('client', action)]))).toEqual({
    update: 'clients:update',
    state_read: 'clients:read',
    state_update: 'clients:update',
    read: 'clients:read',
    delete: 'clients:delete',
    set_parent_group: 'clients:update',
    connect_to_channel: 'clients:update',
    manage_role: 'clients:share',
    add_role_users: 'clients:share',
    remove_role_users: 'clients:unshare',
    view_role_users: 'clients:read',
  })
  expect(spoken('channel', 'publish')).toBe('messages:publish')
  expect(spoken('channel', 'subscribe')).toBe('messages:subscribe')
  expect(spoken('channel', 'connect_to_client')).toBe('channels:update')
})

test('an action on the members of a domain or group requires a scope of their type', () => {
  expect(spoken('domain', 'read')).toBe('domains:read')
  expect(spoken('domain', 'enable')).toBe('domains:update')
  expect(spoken('domain', 'client_create')).toBe('clients:create')
  expect(spoken('domain', 'client_connect_to_channel')).toBe('clients:update')
  expect(spoken('domain', 'channel_publish')).toBe('messages:publish')
  expect(spoken('domain', 'group_membership')).toBe('groups:read')
  expect(spoken('domain', 'task_start')).toBe('tasks:update')
  expect(spoken('domain', 'profile_create')).toBe('clients:create')
  expect(spoken('domain', 'profile_read')).toBe('clients:read')
  expect(spoken('domain', 'profile_update')).toBe('clients:update')
  expect(spoken('domain', 'profile_delete')).toBe('clients:delete')
  expect(spoken('domain', 'consumer_create')).toBe('consumers:create')
  expect(spoken('domain', 'consumer_update')).toBe('consumers:update')
  expect(spoken('group', 'subgroup_create')).toBe('groups:create')
  expect(spoken('group', 'subgroup_client_delete')).toBe('clients:delete')
  expect(spoken('group', 'subgroup_channel_subscribe')).toBe('messages:subscribe')
  expect(spoken('group', 'subgroup_set_parent')).toBe('groups:update')
})

test('an unknown action maps to no scope', () => {
  for (const action of ['', 'fly', 'client_', 'client_fly', 'subgroup_client_fly', 'toString', 'constructor'])
    for (const entity of ENTITY_TYPES) expect(requirementOf(entity, action), `${entity} ${action}`).toBeUndefined()
})

test('keys and tokens cannot manage credentials, and bound tokens cannot act outside their domain', () => {
  for (const action of ['session.manage', 'key.manage', 'pat.manage', 'signing_key.rotate'])
    expect(OUTSIDE_ACTIONS[action], action).toMatchObject({ pat: 'never', loginOnly: true })
  for (const action of ['domain.create', 'domain.freeze', 'invitation.answer', 'pat.manage'])
    expect(OUTSIDE_ACTIONS[action], action).toMatchObject({ bound: 'refused' })
})
