/** `skein groups`. */
import { LISTING } from '../shared/command.ts'
import type { Call, Command, Group } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { arg, jsonObject, list } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { idAndRest, roleCommands } from './roles.ts'

const SERVICE = 'groups'
const ONE = '/{domain}/groups/{group_id}'
const LIST: Omit<Call, 'path'> = { method: 'GET', service: SERVICE, query: LISTING }

function related(words: string, path: string, summary: string, columns?: readonly string[]): Command {
  return {
    words,
    args: '<group_id>',
    tail: 'domain',
    summary,
    example: '<group_id>',
    ...(columns === undefined ? {} : { columns }),
    call: { ...LIST, path: `${ONE}/${path}` },
  }
}

function act(words: string, summary: string): Command {
  return {
    words,
    args: '<group_id>',
    tail: 'domain',
    summary,
    example: '<group_id>',
    call: { method: 'POST', service: SERVICE, path: `${ONE}/${words}` },
  }
}

function assignUsers(verb: 'assign' | 'unassign', summary: string): Command[] {
  const row: Command = {
    words: `${verb} users`,
    args: '<relation> <user_ids> <group_id>',
    tail: 'domain',
    summary,
    example: `viewer '["<user_id>"]' <group_id>`,
    answer: 'ok',
    call: {
      method: 'POST',
      service: SERVICE,
      path: `${ONE}/users/${verb}`,
      body: (given) => ({ relation: arg(given, 'relation'), user_ids: list(given, 'user_ids') }),
    },
  }
  return [row, { ...row, words: `${verb} user`, isOlder: true }]
}

function idOf(given: Given): string {
  const { id } = idAndRest(given, 'JSON_group')
  if (id === undefined)
    throw new CommandError('<JSON_group> must contain "id"', 'or: skein groups update <group_id> <JSON>')
  return encodeURIComponent(id)
}

const USERS = ['id', 'credentials.username', 'email', 'status']

export const groups: Group = {
  name: 'groups',
  summary: 'hierarchy of clients and channels',
  columns: ['id', 'name', 'parent_id', 'level', 'status', 'created_at'],
  commands: [
    {
      words: 'create',
      args: '<JSON_group>',
      tail: 'domain',
      summary: 'create a group, at the root or below parent_id',
      example: `'{"name": "building 1"}'`,
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/{domain}/groups',
        body: (given) => jsonObject(given, 'JSON_group'),
      },
    },
    {
      words: 'update tags',
      args: '<group_id> <tags>',
      tail: 'domain',
      summary: 'replace the tags of a group',
      example: `<group_id> '["north"]'`,
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/tags`,
        body: (given) => ({ tags: list(given, 'tags') }),
      },
    },
    {
      words: 'update',
      args: '<group_id> <JSON>',
      tail: 'domain',
      summary: 'change name, description or metadata',
      example: `<group_id> '{"name": "building 2"}'`,
      call: { method: 'PUT', service: SERVICE, path: ONE, body: (given) => jsonObject(given, 'JSON') },
    },
    {
      words: 'update',
      args: '<JSON_group>',
      tail: 'domain',
      summary: 'change a group, with the id in the JSON',
      example: `'{"id": "<group_id>", "name": "building 2"}'`,
      isOlder: true,
      call: {
        method: 'PUT',
        service: SERVICE,
        path: (given) => `/{domain}/groups/${idOf(given)}`,
        body: (given) => idAndRest(given, 'JSON_group').rest,
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list groups',
      example: '--query tree=true',
      call: { ...LIST, path: '/{domain}/groups' },
    },
    related('get children', 'children', 'list the groups below a group'),
    related('get parents', 'parents', 'list the groups above a group'),
    related('get members', 'members', 'list the users with a role on a group', USERS),
    {
      words: 'get',
      args: '<group_id>',
      tail: 'domain',
      summary: 'show a group',
      example: '<group_id>',
      call: { method: 'GET', service: SERVICE, path: ONE },
    },
    {
      words: 'delete',
      args: '<group_id>',
      tail: 'domain',
      summary: 'delete a group; its clients, channels and subgroups remain',
      example: '<group_id>',
      answer: 'ok',
      flags: ['dry-run'],
      call: { method: 'DELETE', service: SERVICE, path: ONE, query: ['dry-run'] },
    },
    related('users', 'users', 'list the users with a role on a group', USERS),
    related('channels', 'channels', 'list the channels of a group', ['id', 'name', 'status']),
    related('clients', 'clients', 'list the clients of a group', ['id', 'name', 'status']),
    act('enable', 'enable a group'),
    act('disable', 'disable a group'),
    ...assignUsers('assign', 'give users a relation to a group: editor, viewer, …'),
    ...assignUsers('unassign', 'remove a relation of users to a group'),
    {
      words: 'children add',
      args: '<group_ids> <group_id>',
      tail: 'domain',
      summary: 'move groups below a group',
      example: `'["<child_id>"]' <group_id>`,
      answer: 'ok',
      call: {
        method: 'POST',
        service: SERVICE,
        path: `${ONE}/children`,
        body: (given) => ({ children_ids: list(given, 'group_ids') }),
      },
    },
    {
      words: 'children remove',
      args: '<group_ids> <group_id>',
      tail: 'domain',
      summary: 'move subgroups to the root; all moves every one',
      example: `'["<child_id>"]' <group_id>`,
      answer: 'ok',
      call: {
        method: 'DELETE',
        service: SERVICE,
        path: (given) => `${ONE}/children${arg(given, 'group_ids') === 'all' ? '/all' : ''}`,
        body: (given) => (arg(given, 'group_ids') === 'all' ? undefined : { children_ids: list(given, 'group_ids') }),
      },
    },
    {
      words: 'parent set',
      args: '<group_id> <parent_id>',
      tail: 'domain',
      summary: 'move a group below another',
      example: '<group_id> <parent_id>',
      answer: 'ok',
      call: {
        method: 'POST',
        service: SERVICE,
        path: `${ONE}/parent`,
        body: ({ args }) => ({ parent_id: args['parent_id'] }),
      },
    },
    {
      words: 'parent remove',
      args: '<group_id>',
      tail: 'domain',
      summary: 'move a group to the root',
      example: '<group_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: `${ONE}/parent` },
    },
    {
      words: 'hierarchy',
      args: '<group_id>',
      tail: 'domain',
      summary: 'show the tree below a group; above with --query dir=1',
      example: '<group_id> --query level=3 --query tree=true',
      call: { method: 'GET', service: SERVICE, path: `${ONE}/hierarchy`, query: [] },
    },
    ...roleCommands({
      service: SERVICE,
      path: ONE,
      id: 'group_id',
      tail: 'domain',
      availablePath: '/{domain}/groups/roles/available-actions',
    }),
  ],
}
