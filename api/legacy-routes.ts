/**
 * The paths of Magistrala v0.15, where clients were called things, as a table: each is answered by the route of its newer name, with the
 * names of that version in the answer (contract, decision 81). No service knows of it. The routes of `/things/bootstrap` without a
 * domain, which devices use, have routes of their own. Before v0.15 the domain was only in the token: paths that have no route without a
 * domain get it from there (decision 69).
 */
import type { FastifyRequest } from 'fastify'
import { RESERVED_ROUTES, claimedDomainOf } from '#api/identity/index.ts'
import { bearerTokenOf } from '#core/authorization.ts'
import type { HttpApp } from '#http/index.ts'
import { isId } from '#core/ids.ts'

type Params = Readonly<Record<string, string>>

type Translation = {
  /**
   * `:name` is one segment, a final `*` the rest of the path, also none. `{domain}` is an optional segment. `{bound}` in `to` is the domain
   * that the token is bound to. Without one the row does not fit.
   */
  from: string
  to: string
  /** The body of the newer route, where the older one has none. */
  body?: (params: Params) => unknown
  /** The answer has no body and this status. */
  status?: number
}

const pairOf = ({ thing = '' }: Params) => ({ client_ids: [thing] })

/** The first row that fits is used. */
const TRANSLATIONS: readonly Translation[] = [
  { from: '/things/configs/*', to: '/{bound}/clients/configs/*' },
  { from: '/things/state/:thing', to: '/{bound}/clients/state/:thing' },
  { from: '/journal/thing/*', to: '/{bound}/journal/client/*' },
  { from: '/certs', to: '/{bound}/certs' },
  { from: '/certs/:certificate', to: '/{bound}/certs/:certificate' },
  { from: '/serials/:thing', to: '/{bound}/serials/:thing' },
  { from: '{domain}/things/:thing', to: '{domain}/clients/:thing', status: 204 },
  { from: '{domain}/things/*', to: '{domain}/clients/*' },
  {
    from: '{domain}/channels/:channel/things/:thing/connect',
    to: '{domain}/channels/:channel/connect',
    body: pairOf,
  },
  {
    from: '{domain}/channels/:channel/things/:thing/disconnect',
    to: '{domain}/channels/:channel/disconnect',
    body: pairOf,
  },
  { from: '{domain}/channels/:channel/things/*', to: '{domain}/channels/:channel/clients/*' },
  { from: '{domain}/groups/:group/things', to: '{domain}/groups/:group/clients' },
  { from: '{domain}/users/:user/things', to: '{domain}/users/:user/clients' },
  { from: '{domain}/journal/thing/*', to: '{domain}/journal/client/*' },
  { from: '/:domain/connect', to: '/:domain/channels/connect' },
  { from: '/:domain/disconnect', to: '/:domain/channels/disconnect' },
]

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
  translation: Translation
  to: string
}

/** Each row without and with the domain. */
const PATTERNS: readonly Pattern[] = TRANSLATIONS.flatMap((translation) => {
  const { from, to } = translation
  if (!from.startsWith('{domain}')) return [patternOf(from, to, translation)]
  return ['', '/:domain'].map((domain) =>
    patternOf(from.replace('{domain}', domain), to.replace('{domain}', domain), translation),
  )
})

function patternOf(from: string, to: string, translation: Translation): Pattern {
  const segments = from.slice(1).split('/')
  return { segments, hasDomain: segments[0] === ':domain', isBound: to.startsWith('/{bound}/'), translation, to }
}

type Found = { translation: Translation; params: Params; path: string }

function find(path: string, authorization: string | undefined): Found | undefined {
  if (!MAY_BE_OLDER.test(path) || DEVICE_PATHS.test(path) || AUTHORITY_PATHS.test(path)) return undefined
  const given = path.slice(1).split('/')
  for (const pattern of PATTERNS) {
    const params = paramsOf(pattern, given)
    if (params === undefined) continue
    const bound = pattern.isBound ? boundDomainOf(authorization) : ''
    if (bound === undefined) continue
    return { translation: pattern.translation, params, path: pathOf(pattern.to.replace('{bound}', bound), params) }
  }
  return undefined
}

/** The route of the domain verifies the token, and refuses every other domain. */
function boundDomainOf(authorization: string | undefined): string | undefined {
  const token = bearerTokenOf(authorization)
  const domain = token === undefined ? undefined : claimedDomainOf(token)
  return domain !== undefined && isId(domain) ? domain : undefined
}

function paramsOf({ segments, hasDomain }: Pattern, given: readonly string[]): Params | undefined {
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

const pathOf = (to: string, params: Params) =>
  to
    .split('/')
    .map((segment) =>
      segment === '*' || segment.startsWith(':') ? (params[segment.replace(/^:/, '')] ?? '') : segment,
    )
    .join('/')
    .replace(/\/$/, '')

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
    const { body } = found?.translation ?? {}
    if (found !== undefined && body !== undefined) request.body = body(found.params)
    done()
  })
  app.addHook('onSend', (request, reply, payload, done) => {
    const found = olderRequest(request)
    if (found === undefined || reply.statusCode >= 400) return done(null, payload)
    const location = reply.getHeader('location')
    if (typeof location === 'string') void reply.header('location', location.replace(/^\/clients\//, '/things/'))
    const { status } = found.translation
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
