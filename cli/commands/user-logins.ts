/** `skein users`: commands of login: tokens, passwords and sessions. */
import type { Command } from '../shared/command.ts'
import { arg } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const tokenBody = (given: Given) => ({
  identity: arg(given, 'username'),
  secret: arg(given, 'password'),
  ...(given.args['domain_id'] === undefined ? {} : { domain_id: given.args['domain_id'] }),
})

export const TOKEN_COMMANDS: readonly Command[] = [
  {
    words: 'token',
    args: '<username> <password> [<domain_id>]',
    tail: 'none',
    summary: 'issue an access and a refresh token; with a domain they are valid in it only',
    example: 'ada 12345678',
    call: { method: 'POST', service: 'users', path: '/users/tokens/issue', auth: 'none', body: tokenBody },
  },
  {
    words: 'refreshtoken',
    args: '<refresh_token> [<domain_id>]',
    tail: 'none',
    summary: 'exchange a refresh token for new tokens; it works once',
    example: '$REFRESH_TOKEN',
    call: {
      method: 'POST',
      service: 'users',
      path: '/users/tokens/refresh',
      auth: (given) => `Bearer ${arg(given, 'refresh_token')}`,
      body: ({ args }) => (args['domain_id'] === undefined ? undefined : { domain_id: args['domain_id'] }),
    },
  },
]

export const PASSWORD_COMMANDS: readonly Command[] = [
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
    summary: 'send an email with a link to set a new password',
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
    summary: 'set a new password with the token of the email',
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
]

export const SESSION_COMMANDS: readonly Command[] = [
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
    summary: 'send an email with a link that verifies your address',
    example: '',
    answer: 'ok',
    call: { method: 'POST', service: 'users', path: '/users/send-verification' },
  },
  {
    words: 'verifyemail',
    args: '<verification_token>',
    tail: 'none',
    summary: 'verify an address with the token of the email',
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
]
