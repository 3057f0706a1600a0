/** `skein domains`. */
import { LISTING } from '../shared/command.ts'
import type { Command, Group } from '../shared/command.ts'
import { arg, jsonObject, list } from '../shared/values.ts'
import { roleCommands } from './roles.ts'

function act(words: string, summary: string): Command {
  return {
    words,
    args: '<domain_id>',
    tail: 'user',
    summary,
    example: '<domain_id>',
    call: { method: 'POST', service: 'domains', path: `/domains/{domain_id}/${words}` },
  }
}

const assign: Command = {
  words: 'assign users',
  args: '<relation> <user_ids> <domain_id>',
  tail: 'user',
  summary: 'give users a relation: administrator, editor, viewer, member, …',
  example: `editor '["<user_id>"]' <domain_id>`,
  answer: 'ok',
  call: {
    method: 'POST',
    service: 'domains',
    path: '/domains/{domain_id}/users/assign',
    body: (given) => ({ relation: arg(given, 'relation'), user_ids: list(given, 'user_ids') }),
  },
}

const unassign: Command = {
  words: 'unassign users',
  args: '<user_id> <domain_id>',
  tail: 'user',
  summary: 'remove a user from the domain',
  example: '<user_id> <domain_id>',
  answer: 'ok',
  flags: ['force'],
  call: {
    method: 'POST',
    service: 'domains',
    path: '/domains/{domain_id}/users/unassign',
    query: ['force'],
    body: (given) => ({ user_ids: list(given, 'user_id') }),
  },
}

/** One relation alone is removed. */
const unassignRelation: Command = {
  ...unassign,
  args: '<relation> <JSON_user_ids> <domain_id>',
  summary: 'remove a relation of users to the domain',
  example: `viewer '["<user_id>"]' <domain_id>`,
  call: {
    method: 'POST',
    service: 'domains',
    path: '/domains/{domain_id}/users/unassign',
    query: ['force'],
    body: (given) => ({ relation: arg(given, 'relation'), user_ids: list(given, 'JSON_user_ids') }),
  },
}

export const domains: Group = {
  name: 'domains',
  summary: 'tenants and their members',
  columns: ['id', 'name', 'route', 'permission', 'status', 'created_at'],
  commands: [
    {
      words: 'create',
      args: '<name> <alias>',
      tail: 'user',
      summary: 'create a domain; you become its administrator',
      example: 'Plant plant',
      call: {
        method: 'POST',
        service: 'domains',
        path: '/domains',
        body: ({ args }) => ({ name: args['name'], alias: args['alias'], route: args['alias'] }),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list the domains in which you have a role',
      example: '',
      call: { method: 'GET', service: 'domains', path: '/domains', query: LISTING },
    },
    {
      words: 'get',
      args: '<domain_id>',
      tail: 'user',
      summary: 'show a domain',
      example: '<domain_id>',
      call: { method: 'GET', service: 'domains', path: '/domains/{domain_id}' },
    },
    {
      words: 'update',
      args: '<domain_id> <JSON>',
      tail: 'user',
      summary: 'change name, alias, tags, metadata, retention_days or alarm_retention_days',
      example: `<domain_id> '{"name": "Plant 2"}'`,
      call: {
        method: 'PATCH',
        service: 'domains',
        path: '/domains/{domain_id}',
        body: (given) => jsonObject(given, 'JSON'),
      },
    },
    act('enable', 'enable a domain'),
    act('disable', 'disable a domain: only its administrators get in'),
    act('freeze', 'freeze a domain: only the platform admin gets in'),
    {
      words: 'delete',
      args: '<domain_id>',
      tail: 'user',
      summary: 'delete a domain; within 30 days enable brings it back',
      example: '<domain_id>',
      answer: 'ok',
      flags: ['dry-run'],
      call: { method: 'DELETE', service: 'domains', path: '/domains/{domain_id}', query: ['dry-run'] },
    },
    {
      words: 'users',
      args: '<domain_id>',
      tail: 'user',
      summary: 'list the members of a domain',
      example: '<domain_id>',
      columns: ['id', 'credentials.username', 'email', 'first_name', 'last_name', 'status'],
      call: { method: 'GET', service: 'domains', path: '/domains/{domain_id}/users', query: LISTING },
    },
    {
      words: 'usage',
      args: '<domain_id>',
      tail: 'user',
      summary: 'what a domain holds and sends',
      example: '<domain_id>',
      call: { method: 'GET', service: 'domains', path: '/domains/{domain_id}/usage' },
    },
    {
      words: 'quotas',
      args: '<domain_id>',
      tail: 'user',
      summary: 'show the quotas of a domain (platform admin)',
      example: '<domain_id>',
      call: { method: 'GET', service: 'domains', path: '/domains/{domain_id}/quotas' },
    },
    {
      words: 'update quotas',
      args: '<domain_id> <JSON>',
      tail: 'user',
      summary: 'replace the own quotas of a domain; absent ones get the default (platform admin)',
      example: `<domain_id> '{"clients": 1000, "groups": 50}'`,
      call: {
        method: 'PUT',
        service: 'domains',
        path: '/domains/{domain_id}/quotas',
        body: (given) => ({ own: jsonObject(given, 'JSON') }),
      },
    },
    assign,
    { ...assign, words: 'assign user', isOlder: true },
    unassignRelation,
    unassign,
    { ...unassign, words: 'unassign user', isOlder: true },
    ...roleCommands({
      service: 'domains',
      path: '/domains/{domain_id}',
      id: 'domain_id',
      tail: 'user',
      availablePath: '/domains/roles/available-actions',
    }),
  ],
}
