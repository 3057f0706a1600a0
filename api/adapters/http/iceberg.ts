/**
 * The read-only REST catalogue of Apache Iceberg for the archived records of a domain, and the state of the archive. Names, forms and
 * errors of the catalogue are those of its specification (Iceberg REST catalog API, version 1). It needs no prefix: each domain is a
 * catalogue of its own.
 */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { ARCHIVE_NAMESPACE, ARCHIVE_TABLE, History, HistoryCheck, VerifyQuery } from '#api/messages/index.ts'
import type { ArchiveService } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { presentErrorsWith, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'

const ROOT = '/:domain_id/iceberg/v1'
const NAMESPACE = `${ROOT}/namespaces/:namespace`
const tags = ['history']
/** Every route reads the records of all channels. */
const config = { action: 'channel_subscribe' }

const inDomain = Type.Object({ domain_id: Id })
const Name = Type.String({ maxLength: 256 })
const inNamespace = Type.Object({ domain_id: Id, namespace: Name })
const ofTable = Type.Object({ domain_id: Id, namespace: Name, table: Name })

const IcebergError = Type.Object(
  {
    error: Type.Object({
      message: Type.String(),
      type: Type.String({ description: 'Name of the error in the specification, such as NoSuchTableException' }),
      code: Type.Integer({ description: 'The status' }),
    }),
  },
  { $id: 'IcebergError', description: 'Error of the Iceberg catalogue' },
)
const Config = Type.Object(
  {
    defaults: Type.Record(Type.String(), Type.String()),
    overrides: Type.Record(Type.String(), Type.String()),
    endpoints: Type.Array(Type.String(), { description: 'Routes that the catalogue has' }),
  },
  { $id: 'IcebergConfig' },
)
const Levels = Type.Array(Type.String(), { description: 'Levels of the name' })
const Namespaces = Type.Object({ namespaces: Type.Array(Levels) }, { $id: 'IcebergNamespaces' })
const Namespace = Type.Object(
  { namespace: Levels, properties: Type.Record(Type.String(), Type.String()) },
  { $id: 'IcebergNamespace' },
)
const Tables = Type.Object(
  { identifiers: Type.Array(Type.Object({ namespace: Levels, name: Type.String() })) },
  { $id: 'IcebergTables' },
)
const Table = Type.Object(
  {
    'metadata-location': Type.String({ description: 'URL of the metadata file' }),
    metadata: Type.Unknown({ description: 'Its content: table metadata of Iceberg, format version 2' }),
    config: Type.Record(Type.String(), Type.String()),
  },
  { $id: 'IcebergTable' },
)
/** Clients send these; there is one page of each. */
const paging = {
  pageToken: Type.Optional(Type.String({ maxLength: 256, description: 'Ignored: there is one page' })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, description: 'Ignored: there is one page' })),
}

const ENDPOINTS = [
  'GET /v1/{prefix}/namespaces',
  'GET /v1/{prefix}/namespaces/{namespace}',
  'GET /v1/{prefix}/namespaces/{namespace}/tables',
  'GET /v1/{prefix}/namespaces/{namespace}/tables/{table}',
]

/** Names of the specification for errors that are not about a namespace or a table. */
const ERROR_TYPES: Partial<Record<ErrorKind, string>> = {
  malformed: 'BadRequestException',
  unauthenticated: 'NotAuthorizedException',
  forbidden: 'ForbiddenException',
  unavailable: 'ServiceUnavailableException',
  internal: 'InternalServerError',
}
const NO_NAMESPACE = 'the catalogue has no such namespace'
const NO_TABLE = 'the namespace has no such table'
const NOT_FOUND_TYPES: Readonly<Record<string, string>> = {
  [NO_NAMESPACE]: 'NoSuchNamespaceException',
  [NO_TABLE]: 'NoSuchTableException',
}

const ERROR_STATUSES = [400, 401, 403, 404, 405, 413, 429, 500, 503, 504] as const
/** Errors of these routes have the form of the specification, also those of the edge. */
const answers = <Success extends Parameters<typeof responses>[0]>(success: Success): Success =>
  responses({ ...Object.fromEntries(ERROR_STATUSES.map((status) => [status, IcebergError])), ...success })

export function icebergRoutes(archive: ArchiveService): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      presentErrorsWith(scope, ({ kind, message, status }) => ({
        error: { message, type: NOT_FOUND_TYPES[message] ?? ERROR_TYPES[kind] ?? 'RESTException', code: status },
      }))
      addNamespaceRoutes(scope, archive)
      addTableRoutes(scope, archive)
      done()
    })
    addHistoryRoutes(app, archive)
  }
}

function addNamespaceRoutes(scope: HttpApp, archive: ArchiveService): void {
  scope.get(
    `${ROOT}/config`,
    {
      config,
      schema: {
        tags,
        summary: 'Configuration of the Iceberg catalogue',
        description: 'Requires `subscribe` on all channels of the domain, as every route of the catalogue.',
        params: inDomain,
        querystring: Type.Object({
          warehouse: Type.Optional(Type.String({ maxLength: 1024, description: 'Ignored: a domain is one warehouse' })),
        }),
        response: answers({ 200: Config }),
      },
    },
    async ({ principal, params }) => {
      const { properties } = await archive.enterCatalogue(principal, params.domain_id)
      // Properties of the client override them: it may reach the store under another address.
      return { defaults: { ...properties }, overrides: {}, endpoints: ENDPOINTS }
    },
  )
  scope.get(
    `${ROOT}/namespaces`,
    {
      config,
      schema: {
        tags,
        summary: 'List the namespaces of the Iceberg catalogue',
        params: inDomain,
        querystring: Type.Object({ parent: Type.Optional(Name), ...paging }),
        response: answers({ 200: Namespaces }),
      },
    },
    async ({ principal, params, query }) => {
      await archive.enterCatalogue(principal, params.domain_id)
      if (query.parent === undefined || query.parent === '') return { namespaces: [[ARCHIVE_NAMESPACE]] }
      requireNamespace(query.parent)
      return { namespaces: [] }
    },
  )
  scope.get(
    NAMESPACE,
    {
      config,
      schema: {
        tags,
        summary: 'View a namespace of the Iceberg catalogue',
        params: inNamespace,
        response: answers({ 200: Namespace }),
      },
    },
    async ({ principal, params }) => {
      await archive.enterCatalogue(principal, params.domain_id)
      requireNamespace(params.namespace)
      return { namespace: [ARCHIVE_NAMESPACE], properties: {} }
    },
  )
}

function addTableRoutes(scope: HttpApp, archive: ArchiveService): void {
  scope.get(
    `${NAMESPACE}/tables`,
    {
      config,
      schema: {
        tags,
        summary: 'List the tables of a namespace of the Iceberg catalogue',
        description: 'Empty until records of the domain were archived.',
        params: inNamespace,
        querystring: Type.Object(paging),
        response: answers({ 200: Tables }),
      },
    },
    async ({ principal, params }) => {
      const catalogue = await archive.enterCatalogue(principal, params.domain_id)
      requireNamespace(params.namespace)
      const table = await catalogue.find()
      return {
        identifiers: table === undefined ? [] : [{ namespace: [ARCHIVE_NAMESPACE], name: ARCHIVE_TABLE }],
      }
    },
  )
  scope.get(
    `${NAMESPACE}/tables/:table`,
    {
      config,
      schema: {
        tags,
        summary: 'Load a table of the Iceberg catalogue',
        description: 'The table has one snapshot, the current one.',
        params: ofTable,
        querystring: Type.Object({
          snapshots: Type.Optional(Type.String({ maxLength: 16, description: 'Ignored: there is one snapshot' })),
        }),
        response: answers({ 200: Table }),
      },
    },
    async ({ principal, params }) => {
      const catalogue = await archive.enterCatalogue(principal, params.domain_id)
      requireNamespace(params.namespace)
      const table = params.table === ARCHIVE_TABLE ? await catalogue.find() : undefined
      if (table === undefined) throw new ServiceError('not_found', NO_TABLE)
      return { 'metadata-location': table.metadataPath, metadata: table.metadata, config: {} }
    },
  )
}

function requireNamespace(name: string): void {
  if (name !== ARCHIVE_NAMESPACE) throw new ServiceError('not_found', NO_NAMESPACE)
}

function addHistoryRoutes(app: HttpApp, archive: ArchiveService): void {
  app.get(
    '/:domain_id/history',
    {
      config,
      schema: {
        tags,
        summary: 'View the archive of a domain',
        description: 'What is copied for other engines. Requires `subscribe` on all channels of the domain.',
        params: inDomain,
        response: responses({ 200: History }),
      },
    },
    async ({ principal, params }) => await archive.view(principal, params.domain_id),
  )
  app.post(
    '/:domain_id/history/verify',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Compare a range of the archive with the database',
        description:
          'One range of arrivals for each request, in order: repeat it with `after` until `next` is absent. Also requires `subscribe` on all channels of the domain. A range with faults is copied again.',
        params: inDomain,
        querystring: VerifyQuery,
        response: responses({ 200: HistoryCheck }, 'rate_limited', 'timeout'),
      },
    },
    async ({ principal, params, query }) => await archive.verify(principal, params.domain_id, query.after),
  )
}
