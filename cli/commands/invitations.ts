/** `skein invitations`. */
import type { Command, Group } from '../shared/command.ts'

/** Ids of domain roles have this prefix; names of relations do not. */
const isRoleId = (relation: string | undefined) => relation?.startsWith('domain_') === true

const ONE = '/invitations/{user_id}/{domain_id}'

function answer(words: 'accept' | 'reject', summary: string): Command {
  return {
    words,
    args: '<domain_id>',
    tail: 'user',
    summary,
    example: '<domain_id>',
    answer: 'ok',
    call: {
      method: 'POST',
      service: 'invitations',
      path: `/invitations/${words}`,
      body: ({ args }) => ({ domain_id: args['domain_id'] }),
    },
  }
}

export const invitations: Group = {
  name: 'invitations',
  summary: 'invite users to a domain',
  columns: ['domain_id', 'domain_name', 'user_id', 'relation', 'role_name', 'state', 'created_at'],
  commands: [
    {
      words: 'send',
      args: '<user_id> <domain_id> <relation>',
      tail: 'user',
      summary: 'invite a user as administrator, editor, viewer, member, … or to a role by its id',
      example: '<user_id> <domain_id> editor',
      answer: 'ok',
      call: {
        method: 'POST',
        service: 'invitations',
        path: ({ args }) => (isRoleId(args['relation']) ? '/domains/{domain_id}/invitations' : '/invitations'),
        body: ({ args }) =>
          isRoleId(args['relation'])
            ? { invitee_user_id: args['user_id'], role_id: args['relation'] }
            : { user_id: args['user_id'], domain_id: args['domain_id'], relation: args['relation'] },
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list the invitations that you received',
      example: '--state pending',
      call: { method: 'GET', service: 'invitations', path: '/invitations', query: ['limit', 'offset', 'state'] },
    },
    {
      words: 'get domain',
      args: '<domain_id>',
      tail: 'user',
      summary: 'list the invitations to a domain',
      example: '<domain_id> --state pending',
      call: {
        method: 'GET',
        service: 'invitations',
        path: '/domains/{domain_id}/invitations',
        query: ['limit', 'offset', 'state'],
      },
    },
    {
      words: 'get',
      args: '<user_id> <domain_id>',
      tail: 'user',
      summary: 'show an invitation',
      example: '<user_id> <domain_id>',
      call: { method: 'GET', service: 'invitations', path: ONE },
    },
    answer('accept', 'accept an invitation'),
    answer('reject', 'reject an invitation'),
    {
      words: 'delete',
      args: '<user_id> <domain_id>',
      tail: 'user',
      summary: 'revoke an invitation',
      example: '<user_id> <domain_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'invitations', path: ONE },
    },
  ],
}
