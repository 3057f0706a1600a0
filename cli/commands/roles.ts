/** Role commands of an entity, the same for domains, groups, channels and clients. */
import { PAGE } from '../shared/command.ts'
import type { Command } from '../shared/command.ts'
import type { ServiceName } from '../shared/services.ts'
import { arg, isRecord, json, jsonObject, list } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

export type RoleEntity = {
  service: ServiceName
  /** Path of the entity, without `/roles`. */
  path: string
  /** Argument with its id. */
  id: string
  tail: 'domain' | 'user'
  /** Path of the listing of available actions. */
  availablePath: string
}

const COLUMNS = ['role_id', 'role_name', 'actions', 'members', 'updated_at']

/** `{"actions": [...]}` or an array, or `all`. */
const isAll = (given: Given, name: string) => arg(given, name) === 'all'

export function roleCommands({ service, path, id, tail, availablePath }: RoleEntity): Command[] {
  const base = `${path}/roles`
  const subject = `<${id}>`
  return [
    {
      words: 'roles create',
      args: `<JSON_role> ${subject}`,
      subjectArgs: `${subject} <JSON_role>`,
      tail,
      summary: 'create a role: a name, actions, members',
      example: `'{"role_name": "operator", "actions": ["read", "update"]}' <${id}>`,
      call: { method: 'POST', service, path: base, body: (given) => jsonObject(given, 'JSON_role') },
    },
    {
      words: 'roles get all',
      args: subject,
      tail,
      summary: 'list the roles of the entity',
      example: `<${id}>`,
      columns: COLUMNS,
      call: { method: 'GET', service, path: base, query: PAGE },
    },
    {
      words: 'roles get',
      args: `<role_id> ${subject}`,
      subjectArgs: `${subject} <role_id>`,
      tail,
      summary: 'show a role with its actions and members',
      example: `<role_id> <${id}>`,
      call: { method: 'GET', service, path: `${base}/{role_id}` },
    },
    {
      words: 'roles update',
      args: `<new_name> <role_id> ${subject}`,
      subjectArgs: `${subject} <role_id> <new_name>`,
      tail,
      summary: 'rename a role, or replace its actions with JSON',
      example: `technician <role_id> <${id}>`,
      call: {
        method: 'PUT',
        service,
        path: `${base}/{role_id}`,
        body: (given) =>
          arg(given, 'new_name').startsWith('{') ? json(given, 'new_name') : { name: arg(given, 'new_name') },
      },
    },
    {
      words: 'roles delete',
      args: `<role_id> ${subject}`,
      subjectArgs: `${subject} <role_id>`,
      tail,
      summary: 'delete a role',
      example: `<role_id> <${id}>`,
      answer: 'ok',
      call: { method: 'DELETE', service, path: `${base}/{role_id}` },
    },
    {
      words: 'roles actions add',
      args: `<JSON_actions> <role_id> ${subject}`,
      subjectArgs: `${subject} <role_id> <JSON_actions>`,
      tail,
      summary: 'add actions to a role',
      example: `'{"actions": ["delete"]}' <role_id> <${id}>`,
      call: {
        method: 'POST',
        service,
        path: `${base}/{role_id}/actions`,
        body: (given) => ({ actions: list(given, 'JSON_actions', 'actions') }),
      },
    },
    {
      words: 'roles actions list',
      args: `<role_id> ${subject}`,
      subjectArgs: `${subject} <role_id>`,
      tail,
      summary: 'list the actions of a role',
      example: `<role_id> <${id}>`,
      call: { method: 'GET', service, path: `${base}/{role_id}/actions` },
    },
    {
      words: 'roles actions delete',
      args: `<all|JSON_actions> <role_id> ${subject}`,
      subjectArgs: `${subject} <role_id> <all|JSON_actions>`,
      tail,
      summary: 'remove actions, or all of them, from a role',
      example: `'{"actions": ["delete"]}' <role_id> <${id}>`,
      answer: 'ok',
      call: {
        method: 'POST',
        service,
        path: (given) => `${base}/{role_id}/actions/${isAll(given, 'all|JSON_actions') ? 'delete-all' : 'delete'}`,
        body: (given) =>
          isAll(given, 'all|JSON_actions') ? undefined : { actions: list(given, 'all|JSON_actions', 'actions') },
      },
    },
    {
      words: 'roles actions available-actions',
      args: '',
      tail,
      summary: 'list the actions that a role of this entity type can have',
      example: '',
      call: { method: 'GET', service, path: availablePath },
    },
    {
      words: 'roles members add',
      args: `<JSON_members> <role_id> ${subject}`,
      subjectArgs: `${subject} <role_id> <JSON_members>`,
      tail,
      summary: 'add users to a role',
      example: `'{"members": ["<user_id>"]}' <role_id> <${id}>`,
      call: {
        method: 'POST',
        service,
        path: `${base}/{role_id}/members`,
        body: (given) => ({ members: list(given, 'JSON_members', 'members') }),
      },
    },
    {
      words: 'roles members list',
      args: `<role_id> ${subject}`,
      subjectArgs: `${subject} <role_id>`,
      tail,
      summary: 'list the users of a role',
      example: `<role_id> <${id}>`,
      call: { method: 'GET', service, path: `${base}/{role_id}/members`, query: ['limit', 'offset'] },
    },
    {
      words: 'roles members delete',
      args: `<all|JSON_members> <role_id> ${subject}`,
      subjectArgs: `${subject} <role_id> <all|JSON_members>`,
      tail,
      summary: 'remove users, or all of them, from a role',
      example: `'{"members": ["<user_id>"]}' <role_id> <${id}>`,
      answer: 'ok',
      flags: ['force'],
      call: {
        method: 'POST',
        service,
        path: (given) => `${base}/{role_id}/members/${isAll(given, 'all|JSON_members') ? 'delete-all' : 'delete'}`,
        query: ['force'],
        body: (given) =>
          isAll(given, 'all|JSON_members') ? undefined : { members: list(given, 'all|JSON_members', 'members') },
      },
    },
    {
      words: 'roles members all',
      args: subject,
      tail,
      summary: 'list all members of roles on the entity',
      example: `<${id}>`,
      columns: ['member_id', 'roles'],
      call: { method: 'GET', service, path: `${base}/members`, query: ['limit', 'offset'] },
    },
    {
      words: 'roles members remove',
      args: `<JSON_members> ${subject}`,
      subjectArgs: `${subject} <JSON_members>`,
      tail,
      summary: 'remove users from every role of the entity',
      example: `'["<user_id>"]' <${id}>`,
      answer: 'ok',
      flags: ['force'],
      call: {
        method: 'DELETE',
        service,
        path: `${base}/members`,
        query: ['force'],
        body: (given) => ({ member_ids: list(given, 'JSON_members', 'member_ids') }),
      },
    },
    {
      words: 'permissions',
      args: subject,
      tail,
      summary: 'list your actions on the entity',
      example: `<${id}>`,
      call: { method: 'GET', service, path: `${path}/permissions` },
    },
  ]
}

/** Splits the id from the other fields of a JSON object: `groups update '{"id": …, "name": …}'`, an older form. */
export function idAndRest(given: Given, name: string): { id: string | undefined; rest: Record<string, unknown> } {
  const value = json(given, name)
  if (!isRecord(value)) return { id: undefined, rest: {} }
  const { id, ...rest } = value
  return { id: typeof id === 'string' ? id : undefined, rest }
}
