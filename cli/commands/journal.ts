/** `skein journal`. */
import type { Group } from '../shared/command.ts'
import { arg } from '../shared/values.ts'

export const journal: Group = {
  name: 'journal',
  summary: 'record of changes: user, entity, time',
  columns: ['occurred_at', 'operation', 'domain', 'attributes'],
  commands: [
    {
      words: 'get',
      args: '<entity_type> <entity_id>',
      tail: 'domain',
      summary: 'list the journal of a user, domain, group, client, channel, task, workflow or worker',
      example: 'client <client_id>',
      flags: ['operation', 'from', 'to'],
      call: {
        method: 'GET',
        service: 'journal',
        path: (given) =>
          arg(given, 'entity_type') === 'user'
            ? '/journal/user/{entity_id}'
            : '/{domain!}/journal/{entity_type}/{entity_id}',
        query: ['limit', 'offset', 'operation', 'from', 'to', 'dir'],
        parameters: () => ({ with_attributes: 'true', with_metadata: 'true' }),
      },
    },
    {
      words: 'worker',
      args: '<worker_id>',
      tail: 'none',
      summary: 'list the journal of a worker of the platform, for platform administrators',
      example: '<worker_id>',
      flags: ['operation', 'from', 'to'],
      call: {
        method: 'GET',
        service: 'journal',
        path: '/journal/worker/{worker_id}',
        query: ['limit', 'offset', 'operation', 'from', 'to', 'dir'],
        parameters: () => ({ with_attributes: 'true', with_metadata: 'true' }),
      },
    },
  ],
}
