/** Client routes: the domain in the path, and the listing of every domain that the caller reaches (decision 31). */
import { Type } from 'typebox'
import { Id, MessageBody } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { MAX_BULK_BODY_BYTES } from '../bulk.ts'
import {
  Client,
  ClientPage,
  ClientQuery,
  ClientSecretUpdate,
  ClientUpdate,
  NewClient,
  NewClients,
  TagsUpdate,
  presentClient,
} from './schema.ts'
import type { ClientsService, ShownClient } from './service.ts'

const DomainParams = Type.Object({ domain_id: Id })
const Params = Type.Object({ domain_id: Id, client_id: Id })
const tags = ['clients']

const present = ({ client, secret }: ShownClient) => presentClient(client, secret)

export function clientRoutes(clients: ClientsService): RoutePlugin {
  return (app) => {
    app.post(
      '/:domain_id/clients',
      {
        config: { action: 'client_create' },
        schema: {
          tags,
          summary: 'Create a client',
          params: DomainParams,
          body: NewClient,
          response: responses(
            { 201: Client },
            'unauthenticated',
            'forbidden',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request, reply) => {
        const [created] = await clients.create(request.principal, request.params.domain_id, [request.body])
        const { client, secret } = created as ShownClient
        void reply.code(201).header('Location', `/clients/${client.id}`)
        return presentClient(client, secret)
      },
    )
    app.post(
      '/:domain_id/clients/bulk',
      {
        config: { action: 'client_create' },
        bodyLimit: MAX_BULK_BODY_BYTES,
        schema: {
          tags,
          summary: 'Create many clients, all or none',
          params: DomainParams,
          body: NewClients,
          response: responses(
            { 200: ClientPage },
            'unauthenticated',
            'forbidden',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) => {
        const created = await clients.create(request.principal, request.params.domain_id, request.body)
        return { total: created.length, clients: created.map(present) }
      },
    )
    for (const [path, params] of [
      ['/:domain_id/clients', DomainParams],
      ['/clients', Type.Object({})],
    ] as const) {
      app.get(
        path,
        {
          config: { action: 'client_read' },
          schema: {
            tags,
            summary: 'List clients',
            params,
            querystring: ClientQuery,
            response: responses({ 200: ClientPage }, 'unauthenticated', 'forbidden', 'unprocessable'),
          },
        },
        async (request) => {
          const { domain_id: domainId } = request.params as { domain_id?: string }
          const page = await clients.list(request.principal, domainId, request.query)
          if (request.query.only_total === true) return { total: page.total }
          return { total: page.total, offset: page.offset, limit: page.limit, clients: page.items.map(present) }
        },
      )
    }
    app.get(
      '/:domain_id/clients/:client_id',
      {
        config: { action: 'read' },
        schema: {
          tags,
          summary: 'View a client',
          params: Params,
          response: responses({ 200: Client }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) =>
        present(await clients.get(request.principal, request.params.domain_id, request.params.client_id)),
    )
    app.patch(
      '/:domain_id/clients/:client_id',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Change name, metadata and tags; absent fields stay',
          params: Params,
          body: ClientUpdate,
          response: responses(
            { 200: Client },
            'unauthenticated',
            'forbidden',
            'not_found',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) =>
        present(
          await clients.update(request.principal, request.params.domain_id, request.params.client_id, request.body),
        ),
    )
    app.patch(
      '/:domain_id/clients/:client_id/tags',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Replace the tags; none clears them',
          params: Params,
          body: TagsUpdate,
          response: responses(
            { 200: Client },
            'unauthenticated',
            'forbidden',
            'not_found',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) =>
        present(
          await clients.update(request.principal, request.params.domain_id, request.params.client_id, {
            tags: request.body.tags ?? [],
          }),
        ),
    )
    app.patch(
      '/:domain_id/clients/:client_id/secret',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Replace the secret; the old one is invalid at once',
          params: Params,
          body: ClientSecretUpdate,
          response: responses(
            { 200: Client },
            'unauthenticated',
            'forbidden',
            'not_found',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) => {
        const secret = request.body.secret ?? request.body.credentials?.secret
        if (secret === undefined) {
          throw new ServiceError('malformed', 'secret is required', {
            details: [{ path: '/secret', message: 'is required' }],
          })
        }
        const changed = await clients.changeSecret(
          request.principal,
          request.params.domain_id,
          request.params.client_id,
          secret,
        )
        return { ...present(changed), status: 'secret updated' }
      },
    )
    for (const [verb, status] of [
      ['enable', 'enabled'],
      ['disable', 'disabled'],
    ] as const) {
      app.post(
        `/:domain_id/clients/:client_id/${verb}`,
        {
          config: { action: 'update' },
          schema: {
            tags,
            summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a client`,
            params: Params,
            response: responses({ 200: Client }, 'unauthenticated', 'forbidden', 'not_found'),
          },
        },
        async (request) =>
          present(
            await clients.setStatus(request.principal, request.params.domain_id, request.params.client_id, status),
          ),
      )
    }
    app.delete(
      '/:domain_id/clients/:client_id',
      {
        config: { action: 'delete' },
        schema: {
          tags,
          summary: 'Delete a client, its connections and its roles',
          params: Params,
          response: responses({ 200: MessageBody }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) => {
        await clients.remove(request.principal, request.params.domain_id, request.params.client_id)
        return { message: 'client deleted' }
      },
    )
  }
}
