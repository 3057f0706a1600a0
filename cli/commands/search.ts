/** `skein search <text>`. */
import type { Group } from '../shared/command.ts'
import { arg } from '../shared/values.ts'

export const search: Group = {
  name: 'search',
  summary: 'find clients, channels, groups, tasks and workflows of a domain',
  columns: ['type', 'id', 'name', 'tags', 'status'],
  commands: [
    {
      words: '',
      args: '<text>',
      tail: 'domain',
      summary: 'list what has this text in its name, or as its id or tag',
      example: 'pump',
      call: {
        method: 'GET',
        service: 'domains',
        path: '/{domain!}/search',
        query: ['limit'],
        parameters: (given) => ({ q: arg(given, 'text') }),
      },
    },
  ],
}
