/**
 * Applies the paths of `older/table.ts`: each is answered by the route of its newer name, with the names of the older version in the answer
 * (contract, decision 81). The paths of `/things/bootstrap` without a domain, which devices use, have routes of their own. Before Magistrala
 * v0.15 the domain was only in the token: paths that have no route without a domain get it from there (decision 69).
 */
import type { FastifyRequest } from 'fastify'
import { RESERVED_ROUTES, claimedDomainOf } from '#api/identity/index.ts'
import { bearerTokenOf } from '#core/authorization.ts'
import type { HttpApp } from '#http/index.ts'
import { isId } from '#core/ids.ts'
import { PATHS } from '#older/index.ts'
import type { OlderPath, PathParams } from '#older/index.ts'

/** Paths of devices, which have routes of their own. */
const DEVICE_PATHS = /^\/things\/bootstrap(?=[/?]|$)/
/** Certificates of the authority, which belong to no domain. */
const AUTHORITY_PATHS = /^\/certs\/(view-ca|download-ca|crl|ocsp)(?=[/?]|$)/
/** A cheap test for every request: only these words occur in a path of the table. */
const MAY_BE_OLDER = /\/things?(?=[/?]|$)|\/(dis)?connect(?=\?|$)|^\/(certs|serials)(?=[/?]|$)/

type Pattern = {
  segments: readonly string[]
  hasDomain: boolean
  isBound: boolean
  row: OlderPath
  to: string
}

/** Each row without and with the domain. */
const PATTERNS: readonly Pattern[] = PATHS.flatMap((row) => {
  const { older, newer } = row
  if (!older.startsWith('{domain}')) return [patternOf(older, newer, row)]
  return ['', '/:domain'].map((domain) =>
    patternOf(older.replace('{domain}', domain), newer.replace('{domain}', domain), row),
  )
})

function patternOf(older: string, newer: string, row: OlderPath): Pattern {
  const segments = older.slice(1).split('/')
  return { segments, hasDomain: segments[0] === ':domain', isBound: newer.startsWith('/{bound}/'), row, to: newer }
}

type Found = { row: OlderPath; params: PathParams; path: string }

function find(path: string, authorization: string | undefined): Found | undefined {
  if (!MAY_BE_OLDER.test(path) || DEVICE_PATHS.test(path) || AUTHORITY_PATHS.test(path)) return undefined
  const given = path.slice(1).split('/')
  for (const pattern of PATTERNS) {
    const params = paramsOf(pattern, given)
    if (params === undefined) continue
    const bound = pattern.isBound ? boundDomainOf(authorization) : ''
    if (bound === undefined) continue
    return { row: pattern.row, params, path: pathOf(pattern.to.replace('{bound}', bound), params) }
  }
  return undefined
}

/** The route of the domain verifies the token, and refuses every other domain. */
function boundDomainOf(authorization: string | undefined): string | undefined {
  const token = bearerTokenOf(authorization)
  const domain = token === undefined ? undefined : claimedDomainOf(token)
  return domain !== undefined && isId(domain) ? domain : undefined
}

function paramsOf({ segments, hasDomain }: Pattern, given: readonly string[]): PathParams | undefined {
  // `/channels/connect` is no path of a domain.
  if (hasDomain && RESERVED_ROUTES.has(given[0] ?? '')) return undefined
  const params: Record<string, string> = {}
  for (const [index, segment] of segments.entries()) {
    if (segment === '*') {
      params['*'] = given.slice(index).join('/')
      return params
    }
    const value = given[index]
    if (value === undefined || value === '') return undefined
    if (segment.startsWith(':')) params[segment.slice(1)] = value
    else if (segment !== value) return undefined
  }
  if (given.length !== segments.length) return undefined
  return params
}

const pathOf = (to: string, params: PathParams) =>
  to
    .split('/')
    .map((segment) =>
      segment === '*' || segment.startsWith(':') ? (params[segment.replace(/^:/, '')] ?? '') : segment,
    )
    .join('/')
    .replace(/\/$/, '')

/** The row that a URL is treated by. */
export const olderPathOf = (url: string, authorization?: string): OlderPath | undefined =>
  find(withoutEmptyDomain(withoutQuery(url)), authorization)?.row

const withoutQuery = (url: string) => url.split('?', 1)[0] ?? ''
/** Command lines of v0.15 and v0.16 list what a user can reach with an empty domain. */
const withoutEmptyDomain = (path: string) => (path.startsWith('//users/') ? path.slice(1) : path)

/** The URL of the newer route; unchanged where no row fits. */
export function newerUrl(url: string, authorization?: string): string {
  const given = withoutQuery(url)
  const path = withoutEmptyDomain(given)
  const found = find(path, authorization)
  return found === undefined && path === given ? url : `${found?.path ?? path}${url.slice(given.length)}`
}

/** The beginning of a page: only numbers precede its list. A single client has other fields, and its metadata stays as it is. */
const PAGE_OF_CLIENTS = /^(\{(?:"[a-z_]{1,32}":\d{1,20},){0,8})"clients":\[/

/** Registers the translation of bodies and answers, for every route that is registered after it. */
export function translateOlderRequests(app: HttpApp): void {
  app.addHook('preValidation', (request, _reply, done) => {
    const found = olderRequest(request)
    const { body } = found?.row ?? {}
    if (found !== undefined && body !== undefined) request.body = body(found.params)
    done()
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    const found = olderRequest(request)
    if (found === undefined || reply.statusCode >= 400) return done(null, payload)
    const location = reply.getHeader('location')
    if (typeof location === 'string') void reply.header('location', location.replace(/^\/clients\//, '/things/'))
    const { status } = found.row
    // The report of a dry run is the answer: a 204 would say that the thing is gone.
    const isDryRun = (request.query as { dry_run?: unknown }).dry_run === true
    if (status !== undefined && request.method === 'DELETE' && !isDryRun) {
      void reply.code(status).removeHeader('content-type').removeHeader('content-length')
      return done(null, null)
    }
    done(null, typeof payload === 'string' ? payload.replace(PAGE_OF_CLIENTS, '$1"things":[') : payload)
  })
}

const olderRequest = (request: FastifyRequest) =>
  request.originalUrl === request.url
    ? undefined
    : find(withoutEmptyDomain(withoutQuery(request.originalUrl)), request.headers.authorization)
