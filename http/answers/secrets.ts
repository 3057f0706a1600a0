/**
 * Responses that contain secrets: tokens, keys, passwords of devices. They are not stored by caches (RFC 9111 section 5.2.2.5) and not
 * compressed: the length of a compressed text tells what it repeats (BREACH). The schema of a route says which they are.
 */
import type { TSchema } from 'typebox'

/**
 * Marks a text of a response schema as a secret, also in the document. The format `password` would say the same, but generated clients
 * wrap its values in types of their own.
 */
export const SECRET = { 'x-secret': true } as const

/** The maximum nesting of schemas; no schema of Skein is deeper. */
const MAX_DEPTH = 14

type Walked = {
  'x-secret'?: unknown
  properties?: Record<string, TSchema>
  patternProperties?: Record<string, TSchema>
  additionalProperties?: unknown
  items?: unknown
  anyOf?: unknown[]
  oneOf?: unknown[]
  allOf?: unknown[]
}

/** Whether a value of the schema may contain a secret. */
export function holdsSecret(schema: unknown, depth = 0): boolean {
  if (typeof schema !== 'object' || schema === null || depth > MAX_DEPTH) return false
  const {
    'x-secret': isSecret,
    properties = {},
    patternProperties = {},
    additionalProperties,
    items,
    ...unions
  } = schema as Walked
  if (isSecret === true) return true
  const parts = [
    ...Object.values(properties),
    ...Object.values(patternProperties),
    additionalProperties,
    items,
    ...(unions.anyOf ?? []),
    ...(unions.oneOf ?? []),
    ...(unions.allOf ?? []),
  ]
  return parts.some((part) => holdsSecret(part, depth + 1))
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Responses are bytes that contain a secret; otherwise the schema of the response says so. */
    isSecret?: boolean
    /** The parameter of the query that is `false` in requests for responses without their secrets. */
    secretsParameter?: string
  }
}

type Declared = { schema?: { response?: unknown } | undefined; config?: { isSecret?: boolean } | undefined }

/** Whether any response of the route may contain a secret. */
export function returnsSecret({ schema, config }: Declared): boolean {
  return config?.isSecret === true || Object.values(schema?.response ?? {}).some((one) => holdsSecret(one))
}
