/** `skein keys`: API keys. */
import type { Group } from '../shared/command.ts'
import { secondsOf } from '../shared/duration.ts'

const API_KEY_TYPE = 3

export const keys: Group = {
  name: 'keys',
  summary: 'API keys',
  columns: ['id', 'issued_at', 'expires_at'],
  commands: [
    {
      words: 'create',
      args: '',
      tail: 'user',
      summary: 'issue a key, with --ttl for a limited time; shown once',
      example: '--ttl 720h',
      flags: ['ttl'],
      call: {
        method: 'POST',
        service: 'auth',
        path: '/keys',
        body: ({ flags }) => {
          const ttl = flags.get('ttl')
          return { type: API_KEY_TYPE, ...(ttl === undefined ? {} : { duration: secondsOf(ttl, '--ttl') }) }
        },
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list your keys',
      example: '',
      call: { method: 'GET', service: 'auth', path: '/keys', query: ['limit', 'offset'] },
    },
    {
      words: 'get',
      args: '<key_id>',
      tail: 'user',
      summary: 'show a key, without its value',
      example: '<key_id>',
      call: { method: 'GET', service: 'auth', path: '/keys/{key_id}' },
    },
    {
      words: 'delete',
      args: '<key_id>',
      tail: 'user',
      summary: 'revoke a key at once',
      example: '<key_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'auth', path: '/keys/{key_id}' },
    },
  ],
}
