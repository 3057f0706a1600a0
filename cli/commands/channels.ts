/** `skein channels`. */
import { LISTING } from '../shared/command.ts'
import type { Call, Command, Group } from '../shared/command.ts'
import { arg, json, jsonObject, list } from '../shared/values.ts'
import { notConnected } from './not-connected.ts'
import { roleCommands } from './roles.ts'

const SERVICE = 'channels'
const ONE = '/{domain}/channels/{channel_id}'
const LIST: Omit<Call, 'path'> = { method: 'GET', service: SERVICE, query: LISTING }

function act(words: string, summary: string): Command {
  return {
    words,
    args: '<channel_id>',
    tail: 'domain',
    summary,
    example: '<channel_id>',
    call: { method: 'POST', service: SERVICE, path: `${ONE}/${words}` },
  }
}

function assignUsers(verb: 'assign' | 'unassign', summary: string): Command[] {
  const row: Command = {
    words: `${verb} users`,
    args: '<relation> <user_ids> <channel_id>',
    tail: 'domain',
    summary,
    example: `viewer '["<user_id>"]' <channel_id>`,
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

function assignGroups(verb: 'assign' | 'unassign', summary: string): Command[] {
  const row: Command = {
    words: `${verb} groups`,
    args: '<group_ids> <channel_id>',
    tail: 'domain',
    summary,
    example: `'["<group_id>"]' <channel_id>`,
    answer: 'ok',
    call: {
      method: 'POST',
      service: SERVICE,
      path: `${ONE}/groups/${verb}`,
      body: (given) => ({ group_ids: list(given, 'group_ids') }),
    },
  }
  return [row, { ...row, words: `${verb} group`, isOlder: true }]
}

export const channels: Group = {
  name: 'channels',
  summary: 'named streams of messages',
  columns: ['id', 'name', 'route', 'tags', 'status', 'created_at'],
  commands: [
    {
      words: 'create',
      args: '<JSON_channel>',
      tail: 'domain',
      summary: 'create a channel',
      example: `'{"name": "temperatures"}'`,
      call: {
        method: 'POST',
        service: SERVICE,
        path: (given) => `/{domain}/channels${Array.isArray(json(given, 'JSON_channel')) ? '/bulk' : ''}`,
        body: (given) => json(given, 'JSON_channel'),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list channels',
      example: '--limit 20',
      call: { ...LIST, path: '/{domain}/channels' },
    },
    {
      words: 'get',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'show a channel',
      example: '<channel_id>',
      call: { method: 'GET', service: SERVICE, path: ONE },
    },
    {
      words: 'delete',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'delete a channel; its messages stay until retention removes them',
      example: '<channel_id>',
      answer: 'ok',
      flags: ['dry-run'],
      call: { method: 'DELETE', service: SERVICE, path: ONE, query: ['dry-run'] },
    },
    {
      words: 'update tags',
      args: '<channel_id> <tags>',
      tail: 'domain',
      summary: 'replace the tags of a channel',
      example: `<channel_id> '["roof"]'`,
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/tags`,
        body: (given) => ({ tags: list(given, 'tags') }),
      },
    },
    {
      words: 'update',
      args: '<channel_id> <JSON>',
      tail: 'domain',
      summary: 'change name, description, metadata or retention_days',
      example: `<channel_id> '{"name": "heat"}'`,
      call: { method: 'PUT', service: SERVICE, path: ONE, body: (given) => jsonObject(given, 'JSON') },
    },
    act('enable', 'enable a channel'),
    act('disable', 'disable a channel: it neither accepts nor delivers messages'),
    {
      words: 'connections',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'list the clients of a channel',
      example: '<channel_id>',
      columns: ['id', 'name', 'status'],
      call: { ...LIST, path: `${ONE}/clients` },
    },
    notConnected('channel'),
    {
      words: 'users',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'list the users with a role on a channel',
      example: '<channel_id>',
      columns: ['id', 'credentials.username', 'email', 'status'],
      call: { ...LIST, path: `${ONE}/users` },
    },
    {
      words: 'groups',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'list the group of a channel',
      example: '<channel_id>',
      columns: ['id', 'name', 'path', 'status'],
      call: { ...LIST, path: `${ONE}/groups` },
    },
    ...assignUsers('assign', 'give users a relation to a channel: editor, viewer, …'),
    ...assignUsers('unassign', 'remove a relation of users to a channel'),
    ...assignGroups('assign', 'put a channel into a group'),
    ...assignGroups('unassign', 'remove a channel from its group'),
    {
      words: 'parent set',
      args: '<channel_id> <group_id>',
      tail: 'domain',
      summary: 'put a channel into a group',
      example: '<channel_id> <group_id>',
      answer: 'ok',
      call: {
        method: 'POST',
        service: SERVICE,
        path: `${ONE}/parent`,
        body: ({ args }) => ({ parent_group_id: args['group_id'] }),
      },
    },
    {
      words: 'parent remove',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'remove a channel from its group',
      example: '<channel_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: `${ONE}/parent` },
    },
    ...roleCommands({
      service: SERVICE,
      path: ONE,
      id: 'channel_id',
      tail: 'domain',
      availablePath: '/{domain}/channels/roles/available-actions',
    }),
  ],
}
