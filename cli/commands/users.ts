/** `skein users`. */
import { LISTING } from '../shared/command.ts'
import type { Command, Group } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { arg, jsonObject, list } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { PASSWORD_COMMANDS, SESSION_COMMANDS, TOKEN_COMMANDS } from './user-logins.ts'

const LISTED = ['id', 'credentials.username', 'email', 'first_name', 'last_name', 'role', 'status']

function reached(words: string, what: string, columns: readonly string[]): Command {
  return {
    words,
    args: '<user_id>',
    tail: 'user',
    summary: `list the ${what} that a user can access`,
    example: '<user_id>',
    columns,
    call: { method: 'GET', service: 'users', path: `/users/{user_id}/${words}`, query: LISTING },
  }
}

function change(
  words: string,
  args: string,
  summary: string,
  example: string,
  body: (given: Given) => unknown,
): Command {
  const field = words.split(' ')[1] ?? ''
  return {
    words,
    args,
    tail: 'user',
    summary,
    example,
    call: { method: 'PATCH', service: 'users', path: `/users/{user_id}/${field}`, body },
  }
}

/** `a=1&b=2`, as a query. */
function parametersOf(given: Given): Record<string, string> {
  const query = new URLSearchParams(arg(given, 'query'))
  const found = Object.fromEntries([...query].filter(([, value]) => value !== ''))
  if (Object.keys(found).length === 0)
    throw new CommandError('<query> must be parameters such as username=ada&email=ada@example.com')
  return found
}

export const users: Group = {
  name: 'users',
  summary: 'accounts, passwords and tokens',
  columns: LISTED,
  commands: [
    {
      words: 'create',
      args: '<first_name> <last_name> <email> <username> <password>',
      tail: 'user',
      summary: 'register a user',
      example: 'Ada Lovelace ada@example.com ada 12345678',
      call: {
        method: 'POST',
        service: 'users',
        path: '/users',
        auth: 'optional',
        body: ({ args }) => ({
          first_name: args['first_name'],
          last_name: args['last_name'],
          email: args['email'],
          credentials: { username: args['username'], secret: args['password'] },
          status: 'enabled',
        }),
      },
    },
    {
      words: 'create',
      args: '<name> <identity> <password>',
      tail: 'user',
      summary: 'register a user (older form)',
      example: 'Ada ada@example.com 12345678',
      isOlder: true,
      call: {
        method: 'POST',
        service: 'users',
        path: '/users',
        auth: 'optional',
        body: ({ args }) => ({
          name: args['name'],
          credentials: { identity: args['identity'], secret: args['password'] },
          status: 'enabled',
        }),
      },
    },
    {
      words: 'create',
      args: '<JSON_user>',
      tail: 'user',
      summary: 'register a user with tags, metadata and so on',
      example: `'{"first_name": "Ada", "last_name": "Lovelace", "email": "ada@example.com", "credentials": {"username": "ada", "secret": "12345678"}}'`,
      call: {
        method: 'POST',
        service: 'users',
        path: '/users',
        auth: 'optional',
        body: (given) => jsonObject(given, 'JSON_user'),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list users',
      example: '--limit 20',
      call: { method: 'GET', service: 'users', path: '/users', query: [...LISTING, 'identity'] },
    },
    {
      words: 'get',
      args: '<user_id>',
      tail: 'user',
      summary: 'show a user',
      example: '<user_id>',
      call: { method: 'GET', service: 'users', path: '/users/{user_id}' },
    },
    ...TOKEN_COMMANDS,
    change(
      'update tags',
      '<user_id> <tags>',
      'replace the tags of a user',
      `<user_id> '["ops", "night"]'`,
      (given) => ({
        tags: list(given, 'tags'),
      }),
    ),
    change('update username', '<user_id> <username>', 'change a username', '<user_id> countess', (given) => ({
      username: arg(given, 'username'),
    })),
    change('update email', '<user_id> <email>', 'change an email address', '<user_id> ada@example.org', (given) => ({
      email: arg(given, 'email'),
    })),
    {
      ...change(
        'update email',
        '<user_id> <identity>',
        'change the login identity',
        '<user_id> ada@example.org',
        (given) => ({
          email: arg(given, 'identity'),
        }),
      ),
      words: 'update identity',
      isOlder: true,
    },
    change(
      'update picture',
      '<user_id> <url>',
      'change the picture',
      '<user_id> https://example.com/ada.png',
      (given) => ({
        profile_picture: arg(given, 'url'),
      }),
    ),
    change(
      'update role',
      '<user_id> <role>',
      'set the platform role of a user: admin or user',
      '<user_id> admin',
      (given) => ({
        role: arg(given, 'role'),
      }),
    ),
    {
      words: 'usage',
      args: '<user_id>',
      tail: 'user',
      summary: 'show the quotas of a user, and what is used of them',
      example: '<user_id>',
      call: { method: 'GET', service: 'users', path: '/users/{user_id}/usage' },
    },
    {
      words: 'quotas',
      args: '<user_id>',
      tail: 'user',
      summary: 'show the quotas of a user (platform admin)',
      example: '<user_id>',
      call: { method: 'GET', service: 'users', path: '/users/{user_id}/quotas' },
    },
    {
      words: 'update quotas',
      args: '<user_id> <JSON>',
      tail: 'user',
      summary: 'replace the own quotas of a user; absent ones get the default (platform admin)',
      example: `<user_id> '{"domains": 10}'`,
      call: {
        method: 'PUT',
        service: 'users',
        path: '/users/{user_id}/quotas',
        body: (given) => ({ own: jsonObject(given, 'JSON') }),
      },
    },
    {
      words: 'update',
      args: '<user_id> <JSON>',
      tail: 'user',
      summary: 'change names and metadata',
      example: `<user_id> '{"first_name": "Augusta"}'`,
      call: { method: 'PATCH', service: 'users', path: '/users/{user_id}', body: (given) => jsonObject(given, 'JSON') },
    },
    {
      words: 'profile',
      args: '',
      tail: 'user',
      summary: 'show the user of the token',
      example: '',
      call: { method: 'GET', service: 'users', path: '/users/profile' },
    },
    ...PASSWORD_COMMANDS,
    {
      words: 'enable',
      args: '<user_id>',
      tail: 'user',
      summary: 'enable a user',
      example: '<user_id>',
      call: { method: 'POST', service: 'users', path: '/users/{user_id}/enable' },
    },
    {
      words: 'disable',
      args: '<user_id>',
      tail: 'user',
      summary: 'disable a user: all of its tokens stop working',
      example: '<user_id>',
      flags: ['force'],
      call: { method: 'POST', service: 'users', path: '/users/{user_id}/disable', query: ['force'] },
    },
    {
      words: 'delete',
      args: '<user_id>',
      tail: 'user',
      summary: 'delete a user; purged after 30 days',
      example: '<user_id>',
      answer: 'ok',
      flags: ['force', 'dry-run'],
      call: { method: 'DELETE', service: 'users', path: '/users/{user_id}', query: ['force', 'dry-run'] },
    },
    {
      words: 'search',
      args: '<query>',
      tail: 'user',
      summary: 'find users by username, name or id; at least three characters',
      example: 'username=ada',
      columns: ['id', 'username', 'email'],
      call: {
        method: 'GET',
        service: 'users',
        path: '/users/search',
        query: ['limit', 'offset', 'order', 'dir'],
        parameters: parametersOf,
      },
    },
    reached('channels', 'channels', ['id', 'name', 'domain_id', 'status']),
    reached('clients', 'clients', ['id', 'name', 'domain_id', 'status']),
    reached('domains', 'domains', ['id', 'name', 'route', 'status']),
    reached('groups', 'groups', ['id', 'name', 'domain_id', 'path', 'status']),
    {
      words: 'memberships',
      args: '<user_id>',
      tail: 'user',
      summary: 'list the groups of a user that you can read',
      example: '<user_id>',
      columns: ['id', 'name', 'domain_id', 'status'],
      call: { method: 'GET', service: 'users', path: '/users/{user_id}/memberships', query: LISTING },
    },
    ...SESSION_COMMANDS,
  ],
}
