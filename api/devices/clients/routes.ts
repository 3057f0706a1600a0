/** Client routes: with the domain in the path, and without it (decisions 31 and 31b). */
import { MessageBody } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import type { Page } from '#core/page.ts'
import { MAX_BULK_BODY_BYTES } from '../connectable/bulk.ts'
import { addressOf, connectableRoutes, domainOf, entitySchema } from '../connectable/index.ts'
import { collectionPaths, entityPaths } from '../connectable/schema.ts'
import type { EntityPath } from '../connectable/schema.ts'
import { Client, ClientPage, ClientQuery, ClientSecretUpdate, ClientUpdate, NewClient, NewClients } from './schema.ts'
import { presentClient } from './schema.ts'
import type { ClientsService, ShownClient } from './service.ts'

const tags = ['clients']
const CREATION_KINDS = ['unauthenticated', 'forbidden', 'conflict', 'unprocessable'] as const

const WITHIN = {
  channel: 'List the clients that are connected to a channel',
  group: 'List the clients of a group',
  user: 'List the clients that a user reaches; for himself and administrators',
} as const

const present = ({ client, secret, access }: ShownClient): Client => ({ ...presentClient(client, secret), ...access })

function presentPage(page: Page<ShownClient>, onlyTotal: boolean | undefined): ClientPage {
  if (onlyTotal === true) return { total: page.total, clients: [] }
  return { total: page.total, offset: page.offset, limit: page.limit, clients: page.items.map(present) }
}

export function clientRoutes(clients: ClientsService): RoutePlugin {
  return (app) => {
    for (const path of collectionPaths('client')) {
      addCollectionRoutes(app, clients, path)
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

/** Creating and listing clients. */
function addCollectionRoutes(app: HttpApp, clients: ClientsService, { base, params, isScoped }: EntityPath): void {
  const where = isScoped ? '' : ' In the domain of the token, else in the only one that the caller reaches.'
  app.post(
    base,
    {
      config: { action: 'client_create', location: '/clients/{id}' },
      schema: {
        tags,
        summary: 'Create a client',
        description: `Id and secret may come from outside; each is unique in the domain. Both are made when they are absent.${where}`,
        params,
        body: NewClient,
        response: responses({ 201: Client }, ...CREATION_KINDS),
      },
    },
    async (request, reply) => {
      const [created] = await clients.create(request.principal, domainOf(request.params), [request.body])
      const shown = created as ShownClient
      void reply.code(201).header('Location', `/clients/${shown.client.id}`)
      return present(shown)
    },
  )
  app.post(
    `${base}/bulk`,
    {
      config: { action: 'client_create' },
      bodyLimit: MAX_BULK_BODY_BYTES,
      schema: {
        tags,
        summary: 'Create many clients, all or none',
        description: `Answers them in the order given, with their secrets.${where}`,
        params,
        body: NewClients,
        response: responses({ 200: ClientPage }, ...CREATION_KINDS),
      },
    },
    async (request) => {
      const created = await clients.create(request.principal, domainOf(request.params), request.body)
      return { total: created.length, clients: created.map(present) }
    },
  )
  app.get(
    base,
    {
      config: { action: 'client_read' },
      schema: {
        tags,
        summary: 'List clients',
        description: isScoped
          ? 'Those of the domain that the caller may read.'
          : 'Those of every domain that the caller reaches.',
        params,
        querystring: ClientQuery,
        response: responses({ 200: ClientPage }, 'unauthenticated', 'forbidden', 'unprocessable'),
      },
    },
    async (request) => {
      const page = await clients.list(request.principal, domainOf(request.params), request.query)
      return presentPage(page, request.query.only_total)
    },
  )
}

/** Clients of one channel, group or user. */
function addListsWithin(app: HttpApp, clients: ClientsService): void {
  for (const within of ['channel', 'group', 'user'] as const) {
    for (const path of entityPaths(within)) {
      app.get(
        `${path.base}/clients`,
        {
          config: { action: within === 'user' ? 'client_read' : 'read' },
          schema: {
            // A user is one and the same in every domain.
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

/** What is changed of one client, and its end. */
function addChangeRoutes(app: HttpApp, clients: ClientsService, path: EntityPath): void {
  app.patch(
    path.base,
    {
      config: { action: 'update' },
      schema: {
        ...entitySchema(path, { tags, summary: 'Change a client; absent fields stay', successes: { 200: Client } }),
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
          summary: 'Change the secret; the old one is invalid at once',
          successes: { 200: Client },
          kinds: ['conflict'],
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
      config: { action: 'delete' },
      schema: entitySchema(path, {
        tags,
        summary: 'Delete a client, its connections and its roles',
        description: 'Stored messages stay until retention removes them.',
        successes: { 200: MessageBody },
      }),
    },
    async (request) => {
      await clients.remove(request.principal, addressOf('client', request.params))
      return { message: 'client deleted' }
    },
  )
}
