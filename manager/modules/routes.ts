/** Module routes (task-manager.md sections 1 and 6). Each handler is one call. */
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { BINARY, NoBody, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
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
/** A reader that takes no byte for this long is given up. */
const STALLED_READER_MS = 60_000

export type ModuleRoutesDeps = { modules: ModulesService; callers: Callers; uploads: UploadReader; logger: Logger }

export function moduleRoutes(deps: ModuleRoutesDeps): RoutePlugin {
  return (app) => {
    catalogueRoutes(app, deps)
    policyRoutes(app, deps)
    ticketRoutes(app, deps)
    // The body is read by this route alone, as it comes, so its parser stays in a scope of its own.
    void app.register((scope, _options, done) => {
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
          'What tasks of your domains have uploaded, and what they have used from registries: where it is cached, when it was used last. The most recently used comes first.',
        querystring: ModuleQuery,
        response: responses({ 200: ModulePage }, 'unauthenticated', 'forbidden'),
      },
    },
    async (request) => {
      const { offset, limit, domain_id: domainId, source } = request.query
      const query = { offset, limit, domainId, ...(source === undefined ? {} : { source }) }
      const page = await modules.list(callers.of(request), query)
      return { offset, limit, total: page.total, modules: page.modules.map(presentModule) }
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
          'What it exports, and one entry for each of your domains and each reference under which it was used.',
        params: ModuleParams,
        response: responses({ 200: ModuleList }, 'unauthenticated', 'not_found'),
      },
    },
    async (request) => {
      const found = await modules.get(callers.of(request), request.params.digest)
      return { exports: found.exports, modules: found.modules.map(presentModule) }
    },
  )
  app.post(
    '/modules',
    {
      onRequest,
      config: { ...configOf('task_create'), location: '/modules/{digest}' },
      schema: {
        tags,
        summary: 'Pull a module ahead of its use',
        description:
          'The reference is resolved at once, under the signature policy of the domain. The module is then brought to the proxy and, where asked for, to workers; GET /modules/{digest} shows where it is.',
        body: PrePull,
        response: responses(
          { 202: PrePulled },
          'unauthenticated',
          'forbidden',
          'unprocessable',
          'unsupported_media_type',
          'too_large',
          'rate_limited',
          'unavailable',
          'timeout',
        ),
      },
    },
    async (request, reply) => {
      const { reference, domain_id: domainId, workers, labels } = request.body
      const order = { reference, domainId: domainId ?? undefined, workers, labels: labels ?? {} }
      const found = await modules.pullAhead(callers.of(request), order)
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
        summary: 'Forget a module of a registry',
        description:
          'It leaves the list and, when no other domain used it, the cache of the proxy. Workers drop it when they need the room. An upload goes with its tasks.',
        params: ModuleParams,
        querystring: PolicyQuery,
        response: responses(
          { 204: NoBody },
          'unauthenticated',
          'forbidden',
          'not_found',
          'invalid_state',
          'unavailable',
          'timeout',
        ),
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
        summary: 'View what is asked of the signatures of modules',
        querystring: PolicyQuery,
        response: responses({ 200: ModulePolicyBody }, 'unauthenticated', 'forbidden'),
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
        summary: 'Say what is asked of the signatures of modules',
        description:
          'off: nobody looks; warn: a run says so when its module is not signed; require: a module that no key of the list signed does not start. Signatures are those of `cosign sign --key`.',
        querystring: PolicyQuery,
        body: ModulePolicyBody,
        response: responses(
          { 200: ModulePolicyBody },
          'unauthenticated',
          'forbidden',
          'unsupported_media_type',
          'too_large',
        ),
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
        summary: 'Get a ticket that lets a tool pull a module',
        description:
          'For one hour, for the module of this digest, from the module proxy: `skopeo copy --src-registry-token <ticket> docker://<registry>/<artifact> …`. With several references under which the digest was used, `reference` says which one.',
        body: TicketBody,
        response: responses(
          { 201: Ticket },
          'unauthenticated',
          'forbidden',
          'not_found',
          'unsupported_media_type',
          'too_large',
        ),
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
      config: { ownCredentials: BEARER, mediaType: 'application/wasm' },
      schema: {
        tags,
        summary: 'Read an upload, for the module proxy',
        description: 'Needs a ticket of the module as bearer token. Takes a Range.',
        params: ModuleParams,
        response: responses({ 200: Bytes }, 'unauthenticated', 'not_found', 'unavailable'),
      },
    },
    async (request, reply) => {
      const { digest } = request.params
      const upload = await uploads.open(digest, request.headers.authorization)
      reply.hijack()
      const headers = { 'content-type': 'application/wasm' }
      await sendBytes(request.raw, reply.raw, upload, headers, { stallMs: STALLED_READER_MS })
        .catch((error: unknown) => logger.warn({ err: error, digest }, 'failed to send an upload'))
        .finally(upload.close)
    },
  )
}

function pushRoute(app: HttpApp, { modules, callers }: ModuleRoutesDeps): void {
  ;(app as unknown as FastifyInstance).addContentTypeParser(
    ['application/wasm', 'application/octet-stream'],
    (_request, payload, done) => done(null, payload),
  )
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
        summary: 'Push a module into a registry',
        description:
          'The body is the module. It becomes an artifact in the layout of the CNCF under the tag of `reference`. The registry decides who may write. `Registry-Authorization: Basic …` is shown to it alone and forgotten. The configured login is used for the operator, and for a domain below its own id in the configured registry; anywhere else a domain pushes without a login, and never below the id of another domain.',
        querystring: PushQuery,
        response: responses(
          { 201: Pushed },
          'unauthenticated',
          'forbidden',
          'unprocessable',
          'unsupported_media_type',
          'too_large',
          'rate_limited',
          'unavailable',
          'timeout',
        ),
      },
    },
    async (request, reply) => {
      const { reference, domain_id: domainId } = request.query
      const owner = await modules.requirePush(callers.of(request), domainId)
      const body = request.body as AsyncIterable<Buffer> | null | undefined
      if (body === undefined || body === null || typeof body !== 'object' || !(Symbol.asyncIterator in body)) {
        throw new ServiceError('unsupported_media_type', 'the module must be the body, as application/wasm')
      }
      const login = registryLoginOf(request.headers['registry-authorization'])
      const pushed = await modules.push(owner, { reference, domainId, login }, body)
      void reply.code(201).header('Location', `/modules/${pushed.digest}`)
      return { digest: pushed.digest, size: pushed.sizeBytes, reference: pushed.reference, login: pushed.login }
    },
  )
}
