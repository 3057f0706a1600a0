/** The routes of the proxy: `/v2/` for callers with a ticket, `/modules` for managers. */
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { registryLoginOf, refuseTransfer } from '#core/transfer/index.ts'
import type { ModuleSource, PushOrder, Pushes } from '../source/index.ts'
import type { Registry } from './registry.ts'
import {
  ModuleParams,
  ModuleStatus,
  PullBody,
  PushQuery,
  PushedModule,
  ResolveBody,
  ResolvedModule,
  StatusBody,
} from './schema.ts'

export type RoutesDeps = {
  source: ModuleSource
  pushes: Pushes
  registry: Registry
  maxModuleBytes: number
  logger: Logger
}

const tags = ['modules']
/** Errors of registries and of invalid modules. */
const REFUSALS = ['not_found', 'unprocessable', 'rate_limited', 'timeout'] as const
const WHERE_TICKETS_ARE =
  'the task manager issues tickets (POST /modules/tickets, skein modules ticket); send one as bearer token, with skopeo copy --src-registry-token'

export function proxyRoutes(deps: RoutesDeps): RoutePlugin {
  return (app) => {
    pullRoutes(app, deps)
    managerRoutes(app, deps)
    // This route reads its body as a stream, so its parser stays in a scope of its own.
    void app.register((scope, _options, done) => {
      pushRoute(scope as unknown as HttpApp, deps)
      done()
    })
  }
}

function pullRoutes(app: HttpApp, { registry }: RoutesDeps): void {
  for (const url of ['/v2', '/v2/*']) {
    app.get(
      url,
      {
        config: { ownCredentials: ['bearer'], mediaType: 'application/octet-stream' },
        schema: { tags, summary: 'Pull manifests and blobs (OCI distribution)' },
      },
      (request, reply) => {
        reply.hijack()
        void registry.answer(request.raw, reply.raw)
      },
    )
  }
  const config = { isPublic: true }
  app.get('/token', { config, schema: { tags, summary: 'How to get a ticket' } }, (_request, reply) => {
    reply.hijack()
    const refusal = new ServiceError('unauthenticated', WHERE_TICKETS_ARE)
    refuseTransfer(reply.raw, refusal, { missing: 'NAME_UNKNOWN', challenge: 'Bearer service="skein"' })
  })
}

function managerRoutes(app: HttpApp, { source }: RoutesDeps): void {
  app.post(
    '/modules/resolve',
    {
      schema: {
        tags,
        summary: 'Resolve a reference',
        body: ResolveBody,
        response: responses({ 200: ResolvedModule }, ...REFUSALS),
      },
    },
    async ({ body }) => {
      const requester = { domainId: body.domain_id ?? '', policy: body.signatures, keys: body.keys }
      const found = await source.resolve(body.reference, requester)
      const { digest, sizeBytes, reference, stale, signed, signatureProblem } = found
      return { digest, size: sizeBytes, reference, stale, signed, signature_problem: signatureProblem }
    },
  )
  app.post(
    '/modules/pull',
    {
      schema: {
        tags,
        summary: 'Pull a module into the cache',
        description: 'Answers when the module is cached. The pull continues if the caller disconnects.',
        body: PullBody,
        response: responses({ 204: NoBody }, ...REFUSALS),
      },
    },
    async ({ body: { digest, reference } }, reply) => {
      const { handle } = await source.open(digest, reference)
      await handle.close()
      void reply.code(204)
      return null
    },
  )
  app.post(
    '/modules/status',
    {
      schema: {
        tags,
        summary: 'Describe the cached modules among these',
        body: StatusBody,
        response: responses({ 200: ModuleStatus }),
      },
    },
    async ({ body }) => ({
      modules: (await source.describe(body.digests, body.exports)).map(({ digest, sizeBytes, usedMs, facts }) => ({
        digest,
        size: sizeBytes,
        last_used_ms: Math.round(usedMs),
        ...(facts === undefined ? {} : facts),
      })),
    }),
  )
  app.delete(
    '/modules/:digest',
    {
      schema: {
        tags,
        summary: 'Remove a module from the cache',
        params: ModuleParams,
        response: responses({ 204: NoBody }),
      },
    },
    async ({ params }, reply) => {
      await source.discard(params.digest)
      void reply.code(204)
      return null
    },
  )
}

function pushRoute(app: HttpApp, { pushes, maxModuleBytes, logger }: RoutesDeps): void {
  ;(app as unknown as FastifyInstance).addContentTypeParser('application/wasm', (_request, payload, done) =>
    done(null, payload),
  )
  app.put(
    '/modules',
    {
      bodyLimit: maxModuleBytes,
      schema: {
        tags,
        summary: 'Push a module to a registry',
        consumes: ['application/wasm'],
        querystring: PushQuery,
        response: responses({ 201: PushedModule }, ...REFUSALS),
      },
    },
    async (request, reply) => {
      const { reference, digest, domain_id: domainId } = request.query
      const body = request.body as AsyncIterable<Buffer> | null | undefined
      if (body === undefined || body === null || typeof body !== 'object' || !(Symbol.asyncIterator in body)) {
        throw new ServiceError(
          'unsupported_media_type',
          'the body must be the module, with content type application/wasm',
        )
      }
      const length = Number(request.headers['content-length'])
      const order: PushOrder = {
        reference,
        digest,
        sizeBytes: Number.isSafeInteger(length) ? length : undefined,
        domainId: domainId ?? '',
        credentials: registryLoginOf(request.headers['registry-authorization']),
      }
      const pushed = await pushes.push(order, body)
      logger.info(pushed, 'module pushed')
      void reply.code(201)
      return pushed
    },
  )
}
