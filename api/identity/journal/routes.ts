/** Journal routes (contract section 10). */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import { JournalPage, JournalQuery, filterOf, presentRecord } from './schema.ts'
import type { JournalPage as Page, JournalService } from './service.ts'

const tags = ['journal']

function present({ items, showsAddress, total, offset, limit, next }: Page, query: JournalQuery) {
  const shown = {
    withAttributes: query.with_attributes === true,
    withMetadata: query.with_metadata === true,
    withAddress: showsAddress,
  }
  return { total, offset, limit, journals: items.map((record) => presentRecord(record, shown)), next }
}

export function journalRoutes(journal: JournalService): RoutePlugin {
  return (app) => {
    app.get(
      '/journal/user/:user_id',
      {
        config: { action: 'user.journal' },
        schema: {
          tags,
          summary: 'List the actions of a user and the changes of their account',
          description:
            'Newest first. Requires the user themselves or a platform administrator. Includes logins and failed logins. A token that is bound to a domain shows the records of that domain.',
          params: Type.Object({ user_id: Id }),
          querystring: JournalQuery,
          response: responses({ 200: JournalPage }, 'not_found'),
        },
      },
      async (request) =>
        present(
          await journal.ofUser(request.principal, request.params.user_id, filterOf(request.query)),
          request.query,
        ),
    )
    app.get(
      '/journal/worker/:worker_id',
      {
        config: { action: 'platform.journal' },
        schema: {
          tags,
          summary: 'List the changes of a worker of the platform',
          description:
            'Newest first, also of a removed worker. Requires a platform administrator. The journal of a worker of a domain is in its domain.',
          params: Type.Object({ worker_id: Id }),
          querystring: JournalQuery,
          response: responses({ 200: JournalPage }, 'not_found'),
        },
      },
      async (request) =>
        present(
          await journal.ofPlatformWorker(request.principal, request.params.worker_id, filterOf(request.query)),
          request.query,
        ),
    )
    app.get(
      '/:domain_id/journal/:entity_type/:entity_id',
      {
        config: { action: 'read', scope: 'filtered' },
        schema: {
          tags,
          summary: 'List the changes of an entity of the domain',
          description:
            'Newest first. Requires `read` on the entity, and `view_role_users` for changes of its roles; `task_read` for a task and a workflow, `worker_read` for a worker of the domain. Runs are listed at `/tasks/{task_id}/runs`, so the journal contains starts and stops by users alone, without invocations. Administrators of the domain can read the journal of a deleted entity by its id. The journal of the domain contains every change in it that concerns entities that the caller may read.',
          params: Type.Object({
            domain_id: Id,
            entity_type: Type.Enum(['group', 'client', 'channel', 'domain', 'task', 'workflow', 'worker']),
            entity_id: Id,
          }),
          querystring: JournalQuery,
          response: responses({ 200: JournalPage }, 'not_found'),
        },
      },
      async (request) => {
        const { domain_id: domainId, entity_type: type, entity_id: id } = request.params
        return present(
          await journal.ofEntity(request.principal, domainId, type, id, filterOf(request.query)),
          request.query,
        )
      },
    )
  }
}
