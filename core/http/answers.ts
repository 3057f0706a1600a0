/** What routes declare that they answer: their successes, the error body for each refusal, and what the edge refuses. */
import type { RouteOptions } from 'fastify'
import { Type } from 'typebox'
import type { TSchema } from 'typebox'
import { ERROR_KINDS, PROTOCOL_STATUS } from '../errors/index.ts'
import type { ErrorKind } from '../errors/index.ts'

/** The error body of the contract (decision 44). */
export const ErrorBody = Type.Object(
  {
    error: Type.Enum([...ERROR_KINDS], { $id: 'ErrorKind', description: 'The kind of the error, from a closed list' }),
    message: Type.String({ description: 'A sentence that says what would be accepted' }),
    details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), message: Type.String() }))),
    request_id: Type.Optional(Type.String({ description: 'Only with `internal`: what to look for in the log' })),
  },
  { $id: 'Error', description: 'Error' },
)

/** A response without a body. */
export const NoBody = Type.Unsafe<undefined>({ type: 'null', description: 'No body' })

/** Bytes, as they are. */
export const BINARY = Type.Unsafe<Buffer>({ type: 'string', format: 'binary' })

/** Kinds that any route may answer, whatever it does. */
const ALWAYS: readonly ErrorKind[] = ['malformed', 'method_not_allowed', 'too_large', 'internal', 'unavailable']
/** What a changing request may meet too: a foreign page sent it. */
const ON_CHANGES: readonly ErrorKind[] = ['forbidden']
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

const refusals = (kinds: readonly ErrorKind[]) =>
  Object.fromEntries(kinds.map((kind) => [PROTOCOL_STATUS[kind].http, ErrorBody]))

/** Response schemas of a route: its successes, and the error body for the kinds that its own rules refuse with. */
export function responses<S extends Record<number, TSchema>>(successes: S, ...kinds: ErrorKind[]): S {
  return { ...refusals(kinds), ...successes }
}

/** Hook of each route as it is added: declares the refusals of the edge, so that no route has to remember them. */
export function declareEdgeAnswers(route: RouteOptions): void {
  const { schema } = route
  if (schema?.response === undefined) return
  const isSafe = [route.method].flat().every((method) => SAFE_METHODS.has(method))
  const kinds: ErrorKind[] = [...ALWAYS]
  // Credentials may be narrower than whoever holds them, on any route that looks at them.
  if (route.config?.isPublic !== true) kinds.push('unauthenticated', 'forbidden')
  if (!isSafe) kinds.push(...ON_CHANGES)
  if (schema.body !== undefined) kinds.push('unsupported_media_type')
  route.schema = { ...schema, response: { ...refusals(kinds), ...(schema.response as object) } }
}
