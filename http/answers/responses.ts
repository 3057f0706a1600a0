/** Response schemas of routes: successes, the error body for each kind of error, and the errors of the edge. */
import type { RouteOptions } from 'fastify'
import { Type } from 'typebox'
import type { TSchema } from 'typebox'
import { ERROR_KINDS, PROTOCOL_STATUS } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'

/** The error body of the contract (decision 44). */
export const ErrorBody = Type.Object(
  {
    error: Type.Enum([...ERROR_KINDS], { $id: 'ErrorKind', description: 'The kind of the error, from a closed list' }),
    message: Type.String({ description: 'What is wrong, and what is accepted' }),
    details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
    request_id: Type.Optional(Type.String({ description: 'Only with `internal`: the id of the request in the log' })),
  },
  { $id: 'Error', description: 'Error' },
)

/** A response without a body. */
export const NoBody = Type.Unsafe<undefined>({ type: 'null', description: 'No body' })

/** Bytes without an encoding. */
export const BINARY = Type.Unsafe<Buffer>({ type: 'string', format: 'binary' })

/** Kinds of errors that every route may return. */
const ALWAYS = ['malformed', 'method_not_allowed', 'too_large', 'internal', 'unavailable'] as const
/** Kinds of errors of routes with credentials: missing or invalid ones, or a token with fewer rights than its user. */
const WITH_CREDENTIALS = ['unauthenticated', 'forbidden'] as const
/** Kinds of errors of requests with side effects, which a page of another origin may have sent. */
const ON_CHANGES = ['forbidden'] as const
const WITH_BODY = ['unsupported_media_type'] as const
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

const refusals = (kinds: readonly ErrorKind[]) =>
  Object.fromEntries(kinds.map((kind) => [PROTOCOL_STATUS[kind].http, ErrorBody]))

/**
 * A kind of error of a route's own rules. `declareEdgeResponses` declares the others. A public route that checks a secret of its own
 * declares `unauthenticated`.
 */
export type RouteRefusal = Exclude<
  ErrorKind,
  (typeof ALWAYS)[number] | (typeof ON_CHANGES)[number] | (typeof WITH_BODY)[number]
>

/** The response schemas of a route: its successes, and the error body for the kinds of its own rules. */
export function responses<S extends Record<number, TSchema>>(successes: S, ...kinds: RouteRefusal[]): S {
  return { ...refusals(kinds), ...successes }
}

/** `onRoute` hook: declares the errors of the edge on every route. */
export function declareEdgeResponses(route: RouteOptions): void {
  const { schema } = route
  if (schema?.response === undefined) return
  const isSafe = [route.method].flat().every((method) => SAFE_METHODS.has(method))
  const takesBody = schema.body !== undefined || route.config?.bodies !== undefined
  const kinds = [
    ...ALWAYS,
    ...(route.config?.isPublic === true ? [] : WITH_CREDENTIALS),
    ...(isSafe ? [] : ON_CHANGES),
    ...(takesBody ? WITH_BODY : []),
  ]
  route.schema = { ...schema, response: { ...refusals(kinds), ...(schema.response as object) } }
}
