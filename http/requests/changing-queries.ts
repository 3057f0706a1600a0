/**
 * Query parameters of calls that change something fail closed (contract, decisions 84 and 85): an empty value, which is often an unset
 * variable of a shell, an unknown parameter of a DELETE, and a dry run that the route does not have, are refused before the change. Reads
 * are lenient; see `hints.ts`.
 */
import type { FastifyContextConfig, FastifyRequest } from 'fastify'
import { refusedField } from '#core/errors/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { nearestName } from '#core/nearest.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route changes nothing, although its method is not GET: what it needs is too large or too secret for a URL. */
    isReading?: boolean
  }
}

/** Credentials, whose absence and emptiness are 401. */
const CREDENTIAL_PARAMETERS: ReadonlySet<string> = new Set(['authorization'])
const DRY_RUN = 'dry_run'
/** `dryRun`, `dry-run` and `dry_run[]` are spelled with these letters. */
const DRY_RUN_LETTERS = 'dryrun'
const READING_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
/** Unknown names may have any length. */
const MAX_SHOWN_CHARS = 64

/** True when a request to the route changes nothing. */
export function isReadingRoute(method: string, config: { isReading?: boolean | undefined }): boolean {
  return READING_METHODS.has(method) || config.isReading === true
}

/**
 * The first parameter that a call may not have; undefined when there is none, and always for calls that change nothing. `known` are the
 * parameters in the schema of the route.
 */
export function changingQueryFault(
  { query, method }: Pick<FastifyRequest, 'query' | 'method'>,
  config: Readonly<FastifyContextConfig>,
  known: ReadonlyMap<string, unknown>,
): ServiceError | undefined {
  for (const name in query as object) {
    // The process to which a request is forwarded knows the parameters.
    if (config.isForwarded === true || isReadingRoute(method, config)) return undefined
    const fault = faultOf(name, (query as Record<string, string>)[name], method, known)
    if (fault !== undefined) return refusedField(name.slice(0, MAX_SHOWN_CHARS), fault)
  }
  return undefined
}

function faultOf(
  name: string,
  value: string | undefined,
  method: string,
  known: ReadonlyMap<string, unknown>,
): string | undefined {
  if (!known.has(name)) {
    if (isDryRun(name))
      return known.has(DRY_RUN) ? `is unknown: did you mean ${DRY_RUN}?` : 'is not supported: this call has no dry run'
    if (method === 'DELETE') return `is unknown: ${expectedIn(name, known)}`
  }
  return value === '' && !CREDENTIAL_PARAMETERS.has(name) ? 'must not be empty' : undefined
}

const isDryRun = (name: string) =>
  name.toLowerCase().replaceAll(/[^a-z]/g, '') === DRY_RUN_LETTERS || nearestName(name, [DRY_RUN]) !== undefined

function expectedIn(name: string, known: ReadonlyMap<string, unknown>): string {
  const nearest = nearestName(name, known.keys())
  if (nearest !== undefined) return `did you mean ${nearest}?`
  return known.size === 0 ? 'this call has no parameters' : `this call accepts ${[...known.keys()].join(', ')}`
}
