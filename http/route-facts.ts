/**
 * The facts about the route of a request that the edge must know. They are computed once for each route: Fastify's `routeOptions` builds an
 * object at each read, and several hooks need it for every request.
 */
import type { FastifyContextConfig, FastifyRequest } from 'fastify'
import { knownNamesOf } from './requests/hints.ts'
import type { KnownNames } from './requests/hints.ts'
import { returnsSecret } from './answers/secrets.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the first hook of the edge. */
    facts: RouteFacts
  }
}

export type RouteFacts = {
  /** The pattern; undefined for an unknown path. */
  readonly url: string | undefined
  readonly config: Readonly<FastifyContextConfig>
  readonly bodyLimit: number
  readonly names: KnownNames
  /** Responses may contain secrets. */
  readonly isSecret: boolean
}

/** The keys are the configurations of the routes. A configuration is one object for all requests. */
const known = new WeakMap<object, RouteFacts>()

export function factsOf({ routeOptions }: FastifyRequest): RouteFacts {
  const { config, url, schema, bodyLimit } = routeOptions
  let facts = known.get(config)
  if (facts === undefined) {
    facts = { url, config, bodyLimit, names: knownNamesOf(schema), isSecret: returnsSecret({ schema, config }) }
    known.set(config, facts)
  }
  return facts
}
