/** The app that rooms bring their routes to. */
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify'
import type { SchemaTypes } from './schema-types.ts'

export type HttpApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  SchemaTypes
>

/** A room's routes: registered on the shared app without a scope of their own, so that hooks and parsers are shared. */
export type RoutePlugin = (app: HttpApp) => void | Promise<void>
