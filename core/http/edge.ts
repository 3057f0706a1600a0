/**
 * The HTTP edge that every room's routes are registered on: request ids, who is calling, strict parsing, one error
 * body, metrics and the OpenAPI document. It knows no resource; rooms bring their routes as Fastify plugins.
 */
import { randomUUID } from 'node:crypto'
import Fastify, { LogController } from 'fastify'
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify'
import type { TSchema } from 'typebox'
import { Type } from 'typebox'
import { ERROR_KINDS, PROTOCOL_STATUS, ServiceError } from '../errors/index.ts'
import type { ErrorKind } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { registerBodyParsers, textFault } from './body.ts'
import { registerErrorHandler, sendError } from './error-handler.ts'
import type { HealthOptions } from './health.ts'
import { registerHealth } from './health.ts'
import { registerRequestMetrics } from './metrics.ts'
import { registerNotFound } from './not-found.ts'
import { registerOpenApi } from './openapi.ts'
import { registerOriginRules } from './origin.ts'
import type { SchemaTypes } from './schema-types.ts'
import { compileValidator } from './validate.ts'

export type HttpApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  SchemaTypes
>

/** A room's routes: registered on the shared app without a scope of their own, so that hooks and parsers are shared. */
export type RoutePlugin = (app: HttpApp) => void | Promise<void>

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The action that the caller must hold; the service requires it, the authorisation matrix reads it here. */
    action?: string
    /** Needs no credentials; every such route stands in the reviewed list of public routes. */
    isPublic?: boolean
    /** Credentials that are not a bearer token are read by the route itself, with the same refusals. */
    ownCredentials?: boolean
  }
}

export type EdgeOptions = {
  logger: Logger
  health: HealthOptions
  maxBodyBytes: number
  corsOrigins: readonly string[]
  /** Addresses or subnets of reverse proxies whose X-Forwarded-For counts; none: the peer's address counts. */
  trustProxy: readonly string[]
  /** Called before the body is read, for every route that is neither public nor reads its own credentials. Throws `unauthenticated`. */
  authenticate: (request: FastifyRequest) => Promise<void>
}

/** The whole request must have arrived by then. */
const REQUEST_DEADLINE_MS = 60_000
/** An idle kept-alive connection is closed after this. */
const KEEP_ALIVE_MS = 65_000
const MAX_PARAM_CHARS = 1100
/** An id that a caller gives for its request: visible ASCII, so that it can stand in a header and a log line. */
const REQUEST_ID = /^[\x21-\x7e]{1,128}$/

export function createHttpApp(options: EdgeOptions): HttpApp {
  const app = Fastify({
    loggerInstance: options.logger as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: options.maxBodyBytes,
    requestTimeout: REQUEST_DEADLINE_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    trustProxy: options.trustProxy.length === 0 ? false : [...options.trustProxy],
    routerOptions: { maxParamLength: MAX_PARAM_CHARS, querystringParser: parseQuery },
    genReqId: (request) => {
      const given = request.headers['x-request-id']
      return typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID()
    },
    frameworkErrors: (error, request, reply) => {
      sendError(request as FastifyRequest, reply as unknown as FastifyReply, error)
    },
  }).withTypeProvider<SchemaTypes>() as unknown as HttpApp

  app.setValidatorCompiler(compileValidator as never)
  app.setSchemaErrorFormatter(
    (errors) => (errors as unknown as Error[])[0] ?? new ServiceError('malformed', 'the request is not valid'),
  )
  registerNotFound(app as unknown as FastifyInstance)
  registerErrorHandler(app as unknown as FastifyInstance)
  registerBodyParsers(app as unknown as FastifyInstance)
  app.addHook('onRequest', (request, reply, done) => {
    void reply.header('X-Request-Id', request.id)
    done(addressFault(request))
  })
  registerOriginRules(app as unknown as FastifyInstance, options.corsOrigins)
  registerRequestMetrics(app as unknown as FastifyInstance, options.health.metrics)
  app.addHook('onRequest', async (request) => {
    const { isPublic, ownCredentials } = request.routeOptions.config
    if (request.is404 || isPublic === true || ownCredentials === true) return
    await options.authenticate(request)
  })
  registerOpenApi(app, options.health.build)
  registerHealth(app, options.health)
  return app
}

/** Set by the query parser, which must not throw, to the first key that was given twice. */
const REPEATED_KEY = Symbol('repeated query key')

type Query = Record<string, string> & { [REPEATED_KEY]?: string }

function parseQuery(text: string): Query {
  const query = Object.create(null) as Query
  for (const [key, value] of new URLSearchParams(text)) {
    if (key in query) query[REPEATED_KEY] ??= key
    else query[key] = value
  }
  return query
}

/** Refuses an address that PostgreSQL would refuse, and the same query key twice (contract section 0). */
function addressFault(request: FastifyRequest): ServiceError | undefined {
  const repeated = (request.query as Query)[REPEATED_KEY]
  if (repeated !== undefined) {
    const message = 'must be given once'
    return new ServiceError('malformed', `the query parameter ${repeated} ${message}`, {
      details: [{ path: repeated, message }],
    })
  }
  if (!request.url.includes('%')) return undefined
  const fault = textFault(decodeLeniently(request.url))
  return fault === undefined ? undefined : new ServiceError('malformed', `the address ${fault}`)
}

function decodeLeniently(url: string): string {
  try {
    return decodeURIComponent(url)
  } catch {
    // A malformed escape in the path was refused by the router; in the query it is read as it stands.
    return url
  }
}

/** The error body of the contract (decision 44). */
export const ErrorBody = Type.Object(
  {
    error: Type.Enum([...ERROR_KINDS], { description: 'The kind of the error, from a closed list' }),
    message: Type.String({ description: 'A sentence that says what would be accepted' }),
    details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
    request_id: Type.Optional(Type.String({ description: 'Only with `internal`: what to look for in the log' })),
  },
  { $id: 'Error', description: 'Error' },
)

/** Kinds that any route may answer, whatever it does. */
const ALWAYS: readonly ErrorKind[] = ['malformed', 'internal', 'unavailable']

/** Response schemas of a route: its successes, and the error body for each status of the kinds it may refuse with. */
export function responses<S extends Record<number, TSchema>>(successes: S, ...kinds: ErrorKind[]): S {
  const statuses = new Set([...ALWAYS, ...kinds].map((kind) => PROTOCOL_STATUS[kind].http))
  return { ...Object.fromEntries([...statuses].map((status) => [status, ErrorBody])), ...successes }
}

/** A response without a body. */
export const NoBody = Type.Unsafe<undefined>({ type: 'null', description: 'No body' })
