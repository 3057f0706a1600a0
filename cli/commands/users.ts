/** `skein users`. */
import { LISTING } from '../command.ts'
import type { Command, Group } from '../command.ts'
import { CommandError } from '../failures.ts'
import { arg, jsonObject, list } from '../values.ts'
import type { Given } from '../values.ts'

const LISTED = ['id', 'credentials.username', 'email', 'first_name', 'last_name', 'role', 'status']

function reached(words: string, what: string, columns: readonly string[]): Command {
  return {
    words,
    args: '<user_id>',
    tail: 'user',
    summary: `list the ${what} that a user reaches`,
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
    throw new CommandError('<query> must be parameters, as username=ada or username=ada&email=ada@example.com')
  return found
}

const tokenBody = (given: Given) => ({
  identity: arg(given, 'username'),
  secret: arg(given, 'password'),
  ...(given.args['domain_id'] === undefined ? {} : { domain_id: given.args['domain_id'] }),
})

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
      summary: 'register a user in the older shape',
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
    {
      words: 'token',
      args: '<username> <password> [<domain_id>]',
      tail: 'none',
      summary: 'issue a pair of tokens; a domain binds them to it',
      example: 'ada 12345678',
      call: { method: 'POST', service: 'users', path: '/users/tokens/issue', auth: 'none', body: tokenBody },
    },
    {
      words: 'refreshtoken',
      args: '<refresh_token> [<domain_id>]',
      tail: 'none',
      summary: 'trade a refresh token for a new pair; it works once',
      example: '$REFRESH_TOKEN',
      call: {
        method: 'POST',
        service: 'users',
        path: '/users/tokens/refresh',
        auth: (given) => `Bearer ${arg(given, 'refresh_token')}`,
        body: ({ args }) => (args['domain_id'] === undefined ? undefined : { domain_id: args['domain_id'] }),
      },
    },
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
      'make a user platform admin, or no longer',
      '<user_id> admin',
      (given) => ({
        role: arg(given, 'role'),
      }),
    ),
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
      summary: 'show whom the token belongs to',
      example: '',
      call: { method: 'GET', service: 'users', path: '/users/profile' },
    },
    {
      words: 'password',
      args: '<old_password> <new_password>',
      tail: 'user',
      summary: 'change your password',
      example: '12345678 a-longer-one',
      call: {
        method: 'PATCH',
        service: 'users',
        path: '/users/secret',
        body: ({ args }) => ({ old_secret: args['old_password'], new_secret: args['new_password'] }),
      },
    },
    {
      words: 'resetpasswordrequest',
      args: '<email>',
      tail: 'none',
      summary: 'mail a link to set a new password',
      example: 'ada@example.com',
      call: {
        method: 'POST',
        service: 'users',
        path: '/password/reset-request',
        auth: 'none',
        body: ({ args }) => ({ email: args['email'] }),
      },
    },
    {
      words: 'resetpassword',
      args: '<password> <confirm_password> <reset_token>',
      tail: 'none',
      summary: 'set a new password with the token of the mail',
      example: 'a-new-one a-new-one $RESET_TOKEN',
      answer: 'ok',
      call: {
        method: 'PUT',
        service: 'users',
        path: '/password/reset',
        auth: (given) => `Bearer ${arg(given, 'reset_token')}`,
        body: ({ args }) => ({
          token: args['reset_token'],
          password: args['password'],
          confirm_password: args['confirm_password'],
        }),
      },
    },
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
      flags: ['force'],
      call: { method: 'DELETE', service: 'users', path: '/users/{user_id}', query: ['force'] },
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
      summary: 'list the groups of a user that you may see',
      example: '<user_id>',
      columns: ['id', 'name', 'domain_id', 'status'],
      call: { method: 'GET', service: 'users', path: '/users/{user_id}/memberships', query: LISTING },
    },
    {
      words: 'sessions',
      args: '',
      tail: 'user',
      summary: 'list your sessions',
      example: '',
      columns: ['id', 'issued_at', 'expires_at', 'user_agent'],
      call: { method: 'GET', service: 'users', path: '/users/tokens/refresh-tokens', query: ['limit', 'offset'] },
    },
    {
      words: 'sessions end',
      args: '<session_id>',
      tail: 'user',
      summary: 'end one of your sessions',
      example: '<session_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'users', path: '/users/tokens/refresh-tokens/{session_id}' },
    },
    {
      words: 'revoketoken',
      args: '<refresh_token>',
      tail: 'none',
      summary: 'end the session of a refresh token',
      example: '$REFRESH_TOKEN',
      answer: 'ok',
      call: {
        method: 'POST',
        service: 'users',
        path: '/users/tokens/revoke',
        auth: (given) => `Bearer ${arg(given, 'refresh_token')}`,
      },
    },
    {
      words: 'sendverification',
      args: '',
      tail: 'user',
      summary: 'mail a link that verifies your address',
      example: '',
      answer: 'ok',
      call: { method: 'POST', service: 'users', path: '/users/send-verification' },
    },
    {
      words: 'verifyemail',
      args: '<verification_token>',
      tail: 'none',
      summary: 'verify an address with the token of the mail',
      example: '$VERIFICATION_TOKEN',
      answer: 'ok',
      call: {
        method: 'GET',
        service: 'users',
        path: '/verify-email',
        auth: 'none',
        parameters: (given) => ({ token: arg(given, 'verification_token') }),
      },
    },
  ],
}
