/** Client routes, with the domain in the path and without it (decisions 31 and 31b). */
import { MessageBody } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { responses } from '#http/index.ts'
import type { BulkTurns, HttpApp, RoutePlugin } from '#http/index.ts'
import type { Page } from '#core/page.ts'
import { MAX_BULK_BODY_BYTES, inList, itemsOf } from '../connectable/bulk.ts'
import { addressOf, connectableRoutes, domainOf, entitySchema, newerCreation } from '../connectable/index.ts'
import { collectionPaths, entityPaths } from '../connectable/schema.ts'
import type { EntityPath } from '../connectable/schema.ts'
import { Client, ClientPage, ClientQuery, ClientSecretUpdate, ClientUpdate, NewClient, NewClients } from './schema.ts'
import { presentClient } from './schema.ts'
import type { ClientsService, ShownClient } from './service.ts'

const tags = ['clients']
const CREATION_KINDS = ['conflict', 'unprocessable', 'rate_limited'] as const

const WITHIN = {
  channel: 'List the clients that are connected to a channel',
  group: 'List the clients of a group',
  user: 'List the clients that a user has access to',
} as const

const present = ({ client, secret, mayUpdate, activity, access }: ShownClient): Client => ({
  ...presentClient(client, secret, mayUpdate, activity),
  ...access,
})

function presentPage(page: Page<ShownClient>, onlyTotal: boolean | undefined): ClientPage {
  if (onlyTotal === true) return { total: page.total, clients: [] }
  const { total, offset, limit, items, next } = page
  return { total, offset, limit, clients: items.map(present), next }
}

export function clientRoutes(clients: ClientsService, bulk: BulkTurns): RoutePlugin {
  return (app) => {
    for (const path of collectionPaths('client')) {
      addCollectionRoutes(app, clients, bulk, path)
    }
    addListsWithin(app, clients)
    connectableRoutes(app, {
      type: 'client',
      record: Client,
      calls: {
        view: async (caller, at, withRoles) => present(await clients.get(caller, at, withRoles)),
        setTags: async (caller, at, names) => present(await clients.setTags(caller, at, names)),
        setStatus: async (caller, at, status) => present(await clients.setStatus(caller, at, status)),
        setParent: (caller, at, groupId) => clients.setParent(caller, at, groupId),
        removeParent: (caller, at) => clients.removeParent(caller, at),
      },
    })
    for (const path of entityPaths('client')) {
      addChangeRoutes(app, clients, path)
    }
  }
}

/** Adds the routes that create and list clients. */
function addCollectionRoutes(
  app: HttpApp,
  clients: ClientsService,
  bulk: BulkTurns,
  { base, params, isScoped }: EntityPath,
): void {
  const where = isScoped ? '' : ' Uses the domain of the token, or the only domain that the caller has access to.'
  app.post(
    base,
    {
      config: { action: 'client_create', location: '/clients/{id}' },
      schema: {
        tags,
        summary: 'Create a client',
        description: `The caller can choose the id and the secret. Both are unique in the domain and generated when absent.${where}`,
        params,
        body: NewClient,
        response: responses({ 201: Client }, ...CREATION_KINDS),
      },
    },
    async (request, reply) => {
      const [created] = await clients.create(request.principal, domainOf(request.params), [newerCreation(request.body)])
      const shown = created as ShownClient
      void reply.code(201).header('Location', `/clients/${shown.client.id}`)
      return present(shown)
    },
  )
  app.post(
    `${base}/bulk`,
    {
      config: { action: 'client_create', dryRun: true, bulk: { turns: bulk, rowsOf: itemsOf } },
      bodyLimit: MAX_BULK_BODY_BYTES,
      schema: {
        tags,
        summary: 'Create many clients, all or none',
        description: `Returns the clients in the order of the request, with their secrets.${where}`,
        params,
        body: NewClients,
        response: responses({ 200: ClientPage }, ...CREATION_KINDS),
      },
    },
    async (request) => {
      const given = request.body.map(newerCreation)
      const created = await inList(clients.create(request.principal, domainOf(request.params), given))
      return { total: created.length, clients: created.map(present) }
    },
  )
  app.get(
    base,
    {
      config: { action: 'client_read', secretsParameter: 'secrets' },
      schema: {
        tags,
        summary: 'List clients',
        description: isScoped
          ? 'Returns the clients of the domain on which the caller has `read`.'
          : 'Returns the clients of every domain that the caller has access to.',
        params,
        querystring: ClientQuery,
        response: responses({ 200: ClientPage }, 'unprocessable'),
      },
    },
    async (request) => {
      const page = await clients.list(request.principal, domainOf(request.params), request.query)
      return presentPage(page, request.query.only_total)
    },
  )
}

/** Adds the routes that list the clients of one channel, group or user. */
function addListsWithin(app: HttpApp, clients: ClientsService): void {
  for (const within of ['channel', 'group', 'user'] as const) {
    for (const path of entityPaths(within)) {
      app.get(
        `${path.base}/clients`,
        {
          config: { action: within === 'user' ? 'client_read' : 'read' },
          schema: {
            // Users do not belong to a domain, so the id cannot be ambiguous.
            ...entitySchema(within === 'user' ? { ...path, isScoped: true } : path, {
              tags,
              summary: WITHIN[within],
              successes: { 200: ClientPage },
              kinds: ['unprocessable'],
            }),
            querystring: ClientQuery,
          },
        },
        async (request) => {
          const at = { type: within, ...addressOf(within, request.params) }
          const page = await clients.listOf(request.principal, at, request.query)
          return presentPage(page, request.query.only_total)
        },
      )
    }
  }
}

/** Adds the routes that change and delete one client. */
function addChangeRoutes(app: HttpApp, clients: ClientsService, path: EntityPath): void {
  app.patch(
    path.base,
    {
      config: { action: 'update' },
      schema: {
        ...entitySchema(path, {
          tags,
          summary: 'Change a client; absent fields are unchanged',
          successes: { 200: Client },
        }),
        body: ClientUpdate,
      },
    },
    async (request) =>
      present(await clients.update(request.principal, addressOf('client', request.params), request.body)),
  )
  app.patch(
    `${path.base}/secret`,
    {
      config: { action: 'update' },
      schema: {
        ...entitySchema(path, {
          tags,
          summary: 'Change the secret; the old secret is invalid immediately',
          successes: { 200: Client },
          kinds: ['conflict', 'rate_limited'],
        }),
        body: ClientSecretUpdate,
      },
    },
    async (request) => {
      const secret = request.body.secret ?? request.body.credentials?.secret
      if (secret === undefined) {
        throw new ServiceError('malformed', 'secret is required', {
          details: [{ path: '/secret', message: 'is required' }],
        })
      }
      const changed = await clients.changeSecret(request.principal, addressOf('client', request.params), secret)
      return { ...present(changed), status: 'secret updated' }
    },
  )
  app.delete(
    path.base,
    {
      config: { action: 'delete', dryRun: true },
      schema: entitySchema(path, {
        tags,
        summary: 'Delete a client, its connections and its roles',
        description: 'Stored messages are kept until retention removes them.',
        successes: { 200: MessageBody },
      }),
    },
    async (request) => {
      await clients.remove(request.principal, addressOf('client', request.params))
      return { message: 'client deleted' }
    },
  )
}
