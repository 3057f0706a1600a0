/** `skein clients`, with `things` as an older name. */
import { LISTING } from '../shared/command.ts'
import type { Call, Command, Group } from '../shared/command.ts'
import { arg, json, jsonObject, list } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { clientCommands } from './client-commands.ts'
import { stateCommands } from './client-states.ts'
import { notConnected } from './not-connected.ts'
import { roleCommands } from './roles.ts'

const SERVICE = 'clients'
const ONE = '/{domain}/clients/{client_id}'

function act(words: string, summary: string): Command {
  return {
    words,
    args: '<client_id>',
    tail: 'domain',
    summary,
    example: '<client_id>',
    call: { method: 'POST', service: SERVICE, path: `${ONE}/${words}` },
  }
}

function share(words: 'share' | 'unshare', summary: string): Command {
  return {
    words,
    args: '<client_id> <user_id> <relation>',
    tail: 'domain',
    summary,
    example: '<client_id> <user_id> viewer',
    answer: 'ok',
    call: {
      method: 'POST',
      service: SERVICE,
      path: `${ONE}/${words}`,
      body: (given) => ({ relation: arg(given, 'relation'), user_ids: list(given, 'user_id') }),
    },
  }
}

function connect(words: 'connect' | 'disconnect', summary: string): Command {
  return {
    words,
    args: '<client_id> <channel_id> [<types>]',
    tail: 'domain',
    summary,
    example: '<client_id> <channel_id>',
    flags: ['types'],
    answer: 'ok',
    call: {
      method: 'POST',
      service: 'channels',
      path: (given) => (given.domain === undefined ? `/${words}` : `/{domain}/channels/${words}`),
      body: (given) => ({
        client_ids: list(given, 'client_id'),
        channel_ids: list(given, 'channel_id'),
        types: typesOf(given),
      }),
    },
  }
}

function typesOf(given: Given): string[] {
  if (given.args['types'] !== undefined) return list(given, 'types')
  return given.flags.get('types')?.split(',') ?? ['publish', 'subscribe']
}

const LIST: Omit<Call, 'path'> = { method: 'GET', service: SERVICE, query: LISTING }

export const clients: Group = {
  name: 'clients',
  summary: 'devices and applications',
  columns: ['id', 'name', 'credentials.secret', 'tags', 'status', 'created_at'],
  commands: [
    {
      words: 'create',
      args: '<JSON_client>',
      tail: 'domain',
      summary: 'create a client; the answer contains its secret',
      example: `'{"name": "pump"}'`,
      call: {
        method: 'POST',
        service: SERVICE,
        path: (given) => `/{domain}/clients${Array.isArray(json(given, 'JSON_client')) ? '/bulk' : ''}`,
        body: (given) => json(given, 'JSON_client'),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list clients',
      example: '--name pump',
      flags: ['online', 'reported', 'out-of-sync'],
      call: {
        ...LIST,
        query: [...LISTING, 'online', 'reported'],
        parameters: ({ flags }) => ({ out_of_sync: flags.get('out-of-sync') }),
        path: '/{domain}/clients',
      },
    },
    {
      words: 'get',
      args: '<client_id>',
      tail: 'domain',
      summary: 'show a client',
      example: '<client_id>',
      call: { method: 'GET', service: SERVICE, path: ONE },
    },
    {
      words: 'identify',
      args: '<client_secret>',
      tail: 'none',
      summary: 'show the client that a secret belongs to',
      example: '<client_secret>',
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/clients/identify',
        auth: (given) => `Client ${arg(given, 'client_secret')}`,
      },
    },
    {
      words: 'delete',
      args: '<client_id>',
      tail: 'domain',
      summary: 'delete a client and its connections',
      example: '<client_id>',
      answer: 'ok',
      flags: ['dry-run'],
      call: { method: 'DELETE', service: SERVICE, path: ONE, query: ['dry-run'] },
    },
    {
      words: 'update tags',
      args: '<client_id> <tags>',
      tail: 'domain',
      summary: 'replace the tags of a client',
      example: `<client_id> '["roof", "south"]'`,
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/tags`,
        body: (given) => ({ tags: list(given, 'tags') }),
      },
    },
    {
      words: 'update secret',
      args: '<client_id> <secret>',
      tail: 'domain',
      summary: 'change the secret; the old one stops working at once',
      example: '<client_id> a-new-secret',
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/secret`,
        body: ({ args }) => ({ secret: args['secret'] }),
      },
    },
    {
      words: 'update',
      args: '<client_id> <JSON>',
      tail: 'domain',
      summary: 'change name and metadata',
      example: `<client_id> '{"name": "pump 2"}'`,
      call: { method: 'PATCH', service: SERVICE, path: ONE, body: (given) => jsonObject(given, 'JSON') },
    },
    act('enable', 'enable a client'),
    act('disable', 'disable a client: it can neither publish nor subscribe'),
    share('share', 'give a user a relation to a client: editor, viewer, …'),
    share('unshare', 'remove a relation of a user to a client'),
    connect('connect', 'connect a client to a channel, to publish and subscribe'),
    connect('disconnect', 'remove a connection'),
    {
      words: 'connections',
      args: '<client_id>',
      tail: 'domain',
      summary: 'list the channels of a client',
      example: '<client_id>',
      columns: ['id', 'name', 'status'],
      call: { ...LIST, path: `${ONE}/channels` },
    },
    notConnected('client'),
    {
      words: 'users',
      args: '<client_id>',
      tail: 'domain',
      summary: 'list the users with a role on a client',
      example: '<client_id>',
      columns: ['id', 'credentials.username', 'email', 'status'],
      call: { ...LIST, path: `${ONE}/users` },
    },
    {
      words: 'parent set',
      args: '<client_id> <group_id>',
      tail: 'domain',
      summary: 'put a client into a group',
      example: '<client_id> <group_id>',
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
      args: '<client_id>',
      tail: 'domain',
      summary: 'remove a client from its group',
      example: '<client_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: `${ONE}/parent` },
    },
    {
      words: 'telemetry',
      args: '<client_id>',
      tail: 'domain',
      summary: 'show the usage of a client and when it was last seen',
      example: '<client_id>',
      call: { method: 'GET', service: 'journal', path: '/{domain!}/journal/client/{client_id}/telemetry' },
    },
    {
      words: 'sessions',
      args: '<client_id>',
      tail: 'domain',
      summary: 'list the MQTT sessions of a client',
      example: '<client_id>',
      call: { method: 'GET', service: SERVICE, path: `${ONE}/sessions`, query: ['limit', 'offset'] },
    },
    {
      words: 'sessions end',
      args: '<client_id>',
      tail: 'domain',
      summary: 'end the MQTT sessions of a client; --query client_identifier=… selects one',
      example: '<client_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: `${ONE}/sessions`, query: [] },
    },
    ...clientCommands,
    ...stateCommands,
    ...roleCommands({
      service: SERVICE,
      path: ONE,
      id: 'client_id',
      tail: 'domain',
      availablePath: '/{domain}/clients/roles/available-actions',
    }),
  ],
}
