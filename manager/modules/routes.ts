/** Module routes (task-manager.md sections 1 and 6). Each handler is one call. */
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { BINARY, NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { formatTime } from '#core/time.ts'
import { registryLoginOf, sendBytes } from '#core/transfer/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import {
  Bytes,
  ModuleList,
  ModuleParams,
  ModulePage,
  ModulePolicyBody,
  InspectQuery,
  InspectedModule,
  ModuleQuery,
  PolicyQuery,
  PrePull,
  PrePulled,
  Ticket,
  TicketBody,
  Pushed,
  PushQuery,
  presentModule,
} from './schema.ts'
import type { ModulesService } from './service.ts'
import { MAX_MODULE_BYTES } from './received-body.ts'
import type { UploadReader } from './upload-reader.ts'

const tags = ['modules']
/** A download is aborted if the client reads nothing for this long. */
const STALLED_READER_MS = 60_000
/** Digits of the digest in the name of a downloaded file. */
const SHOWN_DIGITS = 12

export type ModuleRoutesDeps = { modules: ModulesService; callers: Callers; uploads: UploadReader; logger: Logger }

export function moduleRoutes(deps: ModuleRoutesDeps): RoutePlugin {
  return (app) => {
    catalogueRoutes(app, deps)
    policyRoutes(app, deps)
    ticketRoutes(app, deps)
    // These routes read their body as a stream, so its parser stays in a scope of its own.
    void app.register((scope, _options, done) => {
      takeModuleBodies(scope as unknown as HttpApp)
      inspectRoute(scope as unknown as HttpApp, deps)
      pushRoute(scope as unknown as HttpApp, deps)
      done()
    })
  }
}

const configOf = (action: string) => ({ action, ownCredentials: BEARER })

function catalogueRoutes(app: HttpApp, { modules, callers }: ModuleRoutesDeps): void {
  const { onRequest } = callers
  app.get(
    '/modules',
    {
      onRequest,
      config: configOf('task_read'),
      schema: {
        tags,
        summary: 'List modules',
        description:
          'The uploaded modules of tasks in your domains and the modules that they used from registries, with caches and time of last use. Most recently used first.',
        querystring: ModuleQuery,
        response: responses({ 200: ModulePage }),
      },
    },
    async (request) => {
      const { offset, limit, cursor, domain_id: domainId, source } = request.query
      const query = { offset, limit, cursor, domainId, ...(source === undefined ? {} : { source }) }
      const page = await modules.list(callers.of(request), query)
      return { offset, limit, ...page, modules: page.modules.map(presentModule) }
    },
  )
  app.get(
    '/modules/:digest',
    {
      onRequest,
      config: configOf('task_read'),
      schema: {
        tags,
        summary: 'View a module',
        description:
          'Kind, exports and imports of the module with their types, and one entry for each of your domains and each reference that used it.',
        params: ModuleParams,
        response: responses({ 200: ModuleList }, 'not_found'),
      },
    },
    async (request) => {
      const found = await modules.get(callers.of(request), request.params.digest)
      return { ...found, modules: found.modules.map(presentModule) }
    },
  )
  app.post(
    '/modules',
    {
      onRequest,
      config: { ...configOf('task_create'), location: '/modules/{digest}' },
      schema: {
        tags,
        summary: 'Pre-pull a module',
        description:
          'The reference is resolved at once, under the signature policy of the domain. The module is then fetched into the proxy and, on request, into workers; GET /modules/{digest} shows its progress.',
        body: PrePull,
        response: responses({ 202: PrePulled }, 'unprocessable', 'rate_limited', 'timeout'),
      },
    },
    async (request, reply) => {
      const { reference, domain_id: domainId, workers, labels } = request.body
      const order = { reference, domainId: domainId ?? undefined, workers, labels: labels ?? {} }
      const found = await modules.prePull(callers.of(request), order)
      void reply.code(202).header('Location', `/modules/${found.digest}`)
      return {
        digest: found.digest,
        size: found.sizeBytes,
        reference: found.reference,
        signed: found.signed,
        notes: found.notes,
        workers: found.workers,
      }
    },
  )
  app.delete(
    '/modules/:digest',
    {
      onRequest,
      config: configOf('task_delete'),
      schema: {
        tags,
        summary: 'Remove a module of a registry',
        description:
          'Removes the module from the list and, if no other domain used it, from the cache of the proxy. Workers evict it when they need the space. An upload is removed with its tasks.',
        params: ModuleParams,
        querystring: PolicyQuery,
        response: responses({ 204: NoBody }, 'not_found', 'invalid_state', 'timeout'),
      },
    },
    async (request, reply) => {
      await modules.remove(callers.of(request), request.params.digest, request.query.domain_id)
      void reply.code(204)
      return null
    },
  )
}

function policyRoutes(app: HttpApp, { modules, callers }: ModuleRoutesDeps): void {
  const { onRequest } = callers
  app.get(
    '/modules/policy',
    {
      onRequest,
      config: configOf('task_read'),
      schema: {
        tags,
        summary: 'View the signature policy for modules',
        querystring: PolicyQuery,
        response: responses({ 200: ModulePolicyBody }),
      },
    },
    async (request) => {
      const { signatures, keys } = await modules.policy(callers.of(request), request.query.domain_id)
      return { signatures, keys: [...keys] }
    },
  )
  app.put(
    '/modules/policy',
    {
      onRequest,
      config: configOf('worker_manage'),
      schema: {
        tags,
        summary: 'Set the signature policy for modules',
        description:
          'off: signatures are not checked; warn: a run with an unsigned module gets a note; require: a module must be signed with a key of the list. Signatures are those of `cosign sign --key`.',
        querystring: PolicyQuery,
        body: ModulePolicyBody,
        response: responses({ 200: ModulePolicyBody }),
      },
    },
    async (request) => {
      const { signatures, keys = [] } = request.body
      await modules.setPolicy(callers.of(request), request.query.domain_id, { signatures, keys })
      return { signatures, keys }
    },
  )
}

function ticketRoutes(app: HttpApp, { modules, callers, uploads, logger }: ModuleRoutesDeps): void {
  app.post(
    '/modules/tickets',
    {
      onRequest: callers.onRequest,
      config: { action: 'task_read', ownCredentials: BEARER },
      schema: {
        tags,
        summary: 'Create a ticket to pull a module',
        description:
          'Valid for one hour, for the module with this digest, at the module proxy: `skopeo copy --src-registry-token <ticket> docker://<registry>/<artifact> …`. If several references used the digest, `reference` selects one.',
        body: TicketBody,
        response: responses({ 201: Ticket }, 'not_found'),
      },
    },
    async (request, reply) => {
      const { digest, domain_id: domainId, reference } = request.body
      const made = await modules.ticket(callers.of(request), { digest, domainId: domainId ?? undefined, reference })
      const { ticket, expiresAt, registry, artifact, sizeBytes } = made
      void reply.code(201)
      return { ticket, expires_at: formatTime(expiresAt), registry, artifact, digest, size: sizeBytes }
    },
  )
  app.get(
    '/modules/:digest/content',
    {
      onRequest: async (request) => {
        // The module proxy has a ticket, and no user.
        if (!uploads.isTicket(request.headers.authorization)) await callers.onRequest(request)
      },
      config: { ...configOf('task_read'), mediaType: 'application/wasm' },
      schema: {
        tags,
        summary: 'Download a module',
        description:
          'For callers who can read a task or a use of the module in a domain. A module of a registry is pulled if it is not cached. Supports Range. The module proxy reads uploads here with a ticket.',
        params: ModuleParams,
        response: responses({ 200: Bytes }, 'not_found', 'unprocessable', 'rate_limited', 'timeout'),
      },
    },
    async (request, reply) => {
      const { digest } = request.params
      const { authorization } = request.headers
      const module = await (uploads.isTicket(authorization)
        ? uploads.open(digest, authorization)
        : modules.read(callers.of(request), digest))
      reply.hijack()
      await sendBytes(request.raw, reply.raw, module, contentHeaders(digest), { stallMs: STALLED_READER_MS })
        .catch((error: unknown) => logger.warn({ err: error, digest }, 'failed to send a module'))
        .finally(module.close)
    },
  )
}

/** The same digest always has the same bytes. */
function contentHeaders(digest: string): Record<string, string> {
  const name = `${digest.slice('sha256:'.length, 'sha256:'.length + SHOWN_DIGITS)}.wasm`
  return {
    'content-type': 'application/wasm',
    'content-disposition': `attachment; filename="${name}"`,
    etag: `"${digest}"`,
  }
}

function inspectRoute(app: HttpApp, { modules, callers }: ModuleRoutesDeps): void {
  app.post(
    '/modules/inspect',
    {
      onRequest: callers.onRequest,
      bodyLimit: MAX_MODULE_BYTES,
      config: {
        action: 'task_create',
        ownCredentials: BEARER,
        isReading: true,
        bodies: { 'application/wasm': BINARY, 'application/octet-stream': BINARY },
      },
      schema: {
        tags,
        summary: 'Inspect a module',
        description:
          'The body is the module. The response has its digest, exports and imports with their types, and the reason why a task would refuse it. Nothing is stored.',
        querystring: InspectQuery,
        response: responses({ 200: InspectedModule }, 'rate_limited', 'timeout'),
      },
    },
    async (request) => {
      const owner = await modules.requireInspect(callers.of(request), request.query.domain_id)
      const { sizeBytes, runtime, refusal, ...facts } = await modules.inspect(owner, moduleBodyOf(request.body))
      return {
        ...facts,
        size: sizeBytes,
        ...(runtime === undefined ? {} : { runtime }),
        ...(refusal === undefined ? {} : { refusal }),
      }
    },
  )
}

function moduleBodyOf(given: unknown): AsyncIterable<Buffer> {
  const body = given as AsyncIterable<Buffer> | null | undefined
  if (body === undefined || body === null || typeof body !== 'object' || !(Symbol.asyncIterator in body)) {
    throw new ServiceError('unsupported_media_type', 'the body must be the module, with content type application/wasm')
  }
  return body
}

function takeModuleBodies(app: HttpApp): void {
  ;(app as unknown as FastifyInstance).addContentTypeParser(
    ['application/wasm', 'application/octet-stream'],
    (_request, payload, done) => done(null, payload),
  )
}

function pushRoute(app: HttpApp, { modules, callers }: ModuleRoutesDeps): void {
  app.put(
    '/modules',
    {
      onRequest: callers.onRequest,
      bodyLimit: MAX_MODULE_BYTES,
      config: {
        action: 'task_create',
        ownCredentials: BEARER,
        location: '/modules/{digest}',
        bodies: { 'application/wasm': BINARY, 'application/octet-stream': BINARY },
      },
      schema: {
        tags,
        summary: 'Push a module to a registry',
        description:
          'The body is the module. It is pushed as an artifact in the CNCF layout under the tag of `reference`. The registry authorizes the write. `Registry-Authorization: Basic …` is sent only to the registry and not stored. The configured login is used for the operator, and for a domain below its own id in the configured registry; elsewhere a domain pushes without a login, and never below the id of another domain.',
        querystring: PushQuery,
        response: responses({ 201: Pushed }, 'unprocessable', 'rate_limited', 'timeout'),
      },
    },
    async (request, reply) => {
      const { reference, domain_id: domainId } = request.query
      const owner = await modules.requirePush(callers.of(request), domainId)
      const body = moduleBodyOf(request.body)
      const login = registryLoginOf(request.headers['registry-authorization'])
      const pushed = await modules.push(owner, { reference, domainId, login }, body)
      void reply.code(201).header('Location', `/modules/${pushed.digest}`)
      return { digest: pushed.digest, size: pushed.sizeBytes, reference: pushed.reference, login: pushed.login }
    },
  )
}
