/** `skein modules`. */
import type { Group } from '../command.ts'

export const modules: Group = {
  name: 'modules',
  summary: 'modules in registries and caches',
  columns: ['digest', 'reference', 'size', 'kind', 'created_at'],
  commands: [
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list the modules that your tasks use',
      example: '',
      call: { method: 'GET', service: 'manager', path: '/modules', auth: 'optional', query: ['limit', 'offset'] },
    },
    {
      words: 'delete',
      args: '<digest>',
      tail: 'user',
      summary: 'delete a module that no task uses',
      example: 'sha256:<digest>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'manager', path: '/modules/{digest}', auth: 'optional' },
    },
  ],
}
