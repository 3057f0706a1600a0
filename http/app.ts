/** The Fastify app on which the rooms register their routes. */
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify'
import type { SchemaTypes } from './openapi/schema-types.ts'

export type HttpApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  SchemaTypes
>

/** A room's routes. They are registered without a scope, so that hooks and parsers are shared. */
export type RoutePlugin = (app: HttpApp) => void | Promise<void>
