/** `skein pats`: personal access tokens. */
import type { Command, Group } from '../shared/command.ts'
import type { ServiceName } from '../shared/services.ts'
import { arg, json, list } from '../shared/values.ts'

const SERVICE: ServiceName = 'auth'
const ONE = '/pats/{pat_id}'
const DURATION = '720h'

function change(field: 'name' | 'description'): Command {
  return {
    words: `update ${field}`,
    args: `<pat_id> <${field}>`,
    tail: 'user',
    summary: `change the ${field}`,
    example: `<pat_id> 'build server'`,
    call: {
      method: 'PATCH',
      service: SERVICE,
      path: `${ONE}/${field}`,
      body: ({ args }) => ({ [field]: args[field] }),
    },
  }
}

export const pats: Group = {
  name: 'pats',
  summary: 'personal access tokens and their scopes',
  columns: ['id', 'name', 'status', 'issued_at', 'expires_at', 'last_used_at'],
  commands: [
    {
      words: 'create',
      args: '<name>',
      tail: 'user',
      summary: 'issue a token with scopes; shown once',
      example: 'build-server --ttl 720h',
      flags: ['ttl', 'description'],
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/pats',
        body: ({ args, flags }) => ({
          name: args['name'],
          duration: flags.get('ttl') ?? DURATION,
          ...(flags.get('description') === undefined ? {} : { description: flags.get('description') }),
        }),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list your tokens',
      example: '',
      call: { method: 'GET', service: SERVICE, path: '/pats', query: ['limit', 'offset', 'name', 'status'] },
    },
    {
      words: 'get',
      args: '<pat_id>',
      tail: 'user',
      summary: 'show a token, without its secret',
      example: '<pat_id>',
      call: { method: 'GET', service: SERVICE, path: ONE },
    },
    {
      words: 'delete',
      args: '<pat_id>',
      tail: 'user',
      summary: 'delete a token; all deletes all of your tokens',
      example: '<pat_id>',
      answer: 'ok',
      call: {
        method: 'DELETE',
        service: SERVICE,
        path: (given) => (arg(given, 'pat_id') === 'all' ? '/pats' : ONE),
      },
    },
    change('name'),
    change('description'),
    {
      words: 'reset',
      args: '<pat_id>',
      tail: 'user',
      summary: 'replace the secret; the old one stops working',
      example: '<pat_id> --ttl 720h',
      flags: ['ttl'],
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/secret/reset`,
        body: ({ flags }) => ({ duration: flags.get('ttl') ?? DURATION }),
      },
    },
    {
      words: 'revoke',
      args: '<pat_id>',
      tail: 'user',
      summary: 'revoke a token at once',
      example: '<pat_id>',
      answer: 'ok',
      call: { method: 'PATCH', service: SERVICE, path: `${ONE}/secret/revoke` },
    },
    {
      words: 'scopes add',
      args: '<pat_id> <JSON_scopes>',
      tail: 'user',
      summary: 'add scopes to a token',
      example: `<pat_id> '[{"domain_id": "<domain_id>", "entity_type": "clients", "entity_id": "*", "operation": "read"}]'`,
      answer: 'ok',
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/scope/add`,
        body: (given) => {
          const value = json(given, 'JSON_scopes')
          return { scopes: Array.isArray(value) ? value : [value] }
        },
      },
    },
    {
      words: 'scopes list',
      args: '<pat_id>',
      tail: 'user',
      summary: 'list the scopes of a token',
      example: '<pat_id>',
      columns: ['id', 'optional_domain_id', 'entity_type', 'entity_id', 'operation'],
      call: { method: 'GET', service: SERVICE, path: `${ONE}/scope`, query: ['limit', 'offset'] },
    },
    {
      words: 'scopes remove',
      args: '<pat_id> <scope_ids>',
      tail: 'user',
      summary: 'remove scopes of a token',
      example: `<pat_id> '["<scope_id>"]'`,
      answer: 'ok',
      call: {
        method: 'PATCH',
        service: SERVICE,
        path: `${ONE}/scope/remove`,
        body: (given) => ({ scopes_id: list(given, 'scope_ids') }),
      },
    },
    {
      words: 'scopes clear',
      args: '<pat_id>',
      tail: 'user',
      summary: 'remove all scopes of a token',
      example: '<pat_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: `${ONE}/scope` },
    },
  ],
}
