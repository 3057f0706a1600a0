/**
 * The HTTP edge on which every room registers its routes: request ids, authentication, strict parsing, one error body, metrics
 * and the OpenAPI document. It contains no resource; rooms register routes as Fastify plugins.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import Fastify, { LogController } from 'fastify'
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { TSchema } from 'typebox'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { declareEdgeResponses } from './answers/responses.ts'
import type { HttpApp } from './app.ts'
import { registerBodyParsers, textFault } from './requests/body.ts'
import { registerBulkTurns } from './requests/bulk-turns.ts'
import { registerCompression } from './answers/compression.ts'
import type { CursorKeyring } from '#core/cursor.ts'
import { callerAddressBehind } from './callers/caller-address.ts'
import { registerCursors } from './answers/cursors.ts'
import { registerErrorHandler, sendError } from './answers/error-handler.ts'
import type { HealthOptions } from './health.ts'
import { registerPages } from './pages/guides.ts'
import { registerHealth } from './health.ts'
import { registerHints } from './requests/hints.ts'
import { lingerOnSend } from './sockets/linger.ts'
import { registerStreamedResponses } from './answers/streamed-responses.ts'
import { countAnswered } from './metrics.ts'
import { registerNotFound } from './answers/not-found.ts'
import { registerOpenApi } from './openapi/openapi.ts'
import type { Credential } from './openapi/openapi.ts'
import { createOriginRules } from './callers/origin.ts'
import { createRequestLog } from './request-log.ts'
import type { SchemaTypes } from './openapi/schema-types.ts'
import { compileSerializer } from './answers/serialize.ts'
import { factsOf } from './route-facts.ts'
import { beginTrace, endTrace, registerFailedTraces } from './traces.ts'
import { compileValidator } from './requests/validate.ts'
import { endBody } from './requests/whole-body.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The action that the caller must be allowed; the service enforces it, the authorization matrix reads it here. */
    action?: string
    /** Needs no credentials. Every such route is in the reviewed list of public routes. */
    isPublic?: boolean
    /** Another process answers the requests of this route. */
    isForwarded?: boolean
    /** The route reads its credentials itself, with the errors of the edge. The value names the schemes for the document. */
    ownCredentials?: readonly Credential[]
    /** Media types of the success when there are others than JSON, for the document. */
    mediaType?: string | readonly string[]
    /** Request bodies by media type, for the document: for a route that accepts several, or reads the body itself. */
    bodies?: Readonly<Record<string, TSchema>>
    /** Responses that a route sends with a serializer of its own, by status: a second form beside that of its schema. */
    otherResponses?: Readonly<Record<number, TSchema>>
    /** The form of the `Location` header of a success: `/clients/{id}`. */
    location?: string
  }
}

export type EdgeOptions = {
  logger: Logger
  health: HealthOptions
  maxBodyBytes: number
  corsOrigins: readonly string[]
  /** Addresses or subnets of reverse proxies whose X-Forwarded-For is trusted. If empty, the peer's address is used. */
  trustProxy: readonly string[]
  /** The keyring for routes with cursors; see `registerCursors`. */
  keyring?: CursorKeyring | undefined
  /** Called before the body is read, for every route that is not public and does not read its own credentials. Throws `unauthenticated`. */
  authenticate: (request: FastifyRequest) => Promise<void>
  /** The URL that is routed in the place of this one: older paths have newer names. Called for every request, before its token is verified. */
  newerUrl?: ((url: string, authorization: string | undefined) => string) | undefined
}

const MAX_PARAM_CHARS = 1100
/** A request id from the caller: visible ASCII, so that it is valid in a header and a log line. */
const REQUEST_ID = /^[\x21-\x7e]{1,128}$/

export function createHttpApp(options: EdgeOptions): HttpApp {
  const { newerUrl } = options
  const app = Fastify({
    rewriteUrl: ({ url = '/', headers }: IncomingMessage) => newerUrl?.(url, headers.authorization) ?? url,
    loggerInstance: options.logger as FastifyBaseLogger,
    childLoggerFactory: createRequestLog,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: options.maxBodyBytes,
    routerOptions: { maxParamLength: MAX_PARAM_CHARS, querystringParser: parseQuery },
    genReqId: (request) => {
      const given = request.headers['x-request-id']
      return typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID()
    },
    frameworkErrors: (error, request, reply) => {
      sendError(request as FastifyRequest, reply as unknown as FastifyReply, error)
    },
  }).withTypeProvider<SchemaTypes>() as unknown as HttpApp

  app.decorate('callerAddress', callerAddressBehind(options.trustProxy))
  app.setValidatorCompiler(compileValidator)
  app.setSerializerCompiler(compileSerializer)
  app.addHook('onRoute', declareEdgeResponses)
  app.setSchemaErrorFormatter(
    (errors) => (errors as unknown as Error[])[0] ?? new ServiceError('malformed', 'invalid request'),
  )
  const answerUnknown = registerNotFound(app as unknown as FastifyInstance)
  registerErrorHandler(app as unknown as FastifyInstance)
  registerBodyParsers(app as unknown as FastifyInstance)
  registerCompression(app as unknown as FastifyInstance)
  registerBulkTurns(app as unknown as FastifyInstance)
  registerStreamedResponses(app as unknown as FastifyInstance, options.maxBodyBytes)
  registerFailedTraces(app as unknown as FastifyInstance)
  const applyOriginRules = createOriginRules(options.corsOrigins)
  // The decorator has no initial value: it must not share an object between requests.
  app.decorateRequest('facts')
  // One hook, because Fastify's chain of hooks costs every request more than these steps.
  app.addHook('onRequest', (given, answer, done) => {
    const [request, reply] = [given as FastifyRequest, answer as unknown as FastifyReply]
    request.facts = factsOf(request)
    if (request.facts.isSecret) void reply.header('Cache-Control', 'no-store')
    void reply.header('X-Request-Id', request.id)
    const fault = addressFault(request)
    if (fault !== undefined) return done(fault)
    beginTrace(request)
    const refusal = applyOriginRules(request, reply)
    if (refusal === true) return
    if (refusal !== false) return done(refusal)
    const { url, config } = request.facts
    // No path accepts QUERY; without a content type, Fastify would answer it with 400 before any handler (RFC 10008 section 2).
    if (url === undefined && request.method === 'QUERY') return void answerUnknown(request, reply)
    // A route that reads its own credentials does not wait for a promise.
    if (url === undefined || config.isPublic === true || config.ownCredentials !== undefined) return done()
    // oxlint-disable-next-line promise/no-callback-in-promise -- a callback is how this kind of hook goes on
    options.authenticate(request).then(() => done(), done)
  })
  app.addHook('onResponse', (request, reply, done) => {
    endBody(request.raw)
    endTrace(request as FastifyRequest, reply as unknown as FastifyReply)
    countAnswered(request as FastifyRequest, reply as unknown as FastifyReply, options.health.metrics)
    done()
  })
  registerHints(app as unknown as FastifyInstance)
  registerCursors(app as unknown as FastifyInstance, options.keyring)
  app.addHook('onSend', lingerOnSend)
  registerOpenApi(app, options.health.build)
  registerHealth(app, options.health)
  registerPages(app, options.health.build)
  return app
}

/** Set by the query parser, which must not throw: the key and the error. */
const FAULT = Symbol('query fault')

type Query = Record<string, string> & { [FAULT]?: { key: string; message: string } }

function parseQuery(text: string): Query {
  const query = Object.create(null) as Query
  if (text === '') return query
  for (const [key, value] of new URLSearchParams(text)) {
    if (key in query) query[FAULT] ??= { key, message: 'must be given once' }
    else query[key] = value
    const fault = textFault(value) ?? textFault(key)
    if (fault !== undefined) query[FAULT] ??= { key, message: fault }
  }
  return query
}

/** Rejects a URL that PostgreSQL would reject, and repeated query parameters (contract section 0). */
function addressFault(request: FastifyRequest): ServiceError | undefined {
  const queryFault = (request.query as Query)[FAULT]
  if (queryFault !== undefined) {
    const { key, message } = queryFault
    const path = key.replaceAll('\0', '')
    return new ServiceError('malformed', `the query parameter ${path} ${message}`, { details: [{ path, message }] })
  }
  if (!request.url.includes('%')) return undefined
  const fault = textFault(decodePath(request.url.split('?', 1)[0] ?? ''))
  return fault === undefined ? undefined : new ServiceError('malformed', `the path ${fault}`)
}

function decodePath(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    // The router rejects it or does not find the path.
    return path
  }
}
