/** Every route of the product says what it answers and what its caller needs; the ones without a bearer token are reviewed. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { RouteOptions } from 'fastify'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ACTIONS, OUTSIDE_ACTIONS, RESERVED_ROUTES } from '#api/identity/index.ts'
import { completeDocument, returnsSecret } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { probeRoutes } from './route-probe.ts'
import { ROOT } from './source-imports.ts'

/** Actions that no role grants: they depend on the caller and not on a grant. The list says which of them tokens allow. */
const UNGRANTED_ACTIONS = new Set(Object.keys(OUTSIDE_ACTIONS))
const GRANTED_ACTIONS = new Set<string>(Object.values(ACTIONS).flat())
/** Pages and the document itself: what they answer is not the API's. */
const isDocumentation = ({ url }: RouteOptions) =>
  url === '/' || url === '/openapi.json' || url === '/docs' || url.startsWith('/docs/')

const methodsOf = (route: RouteOptions) => [route.method].flat().filter((method) => method !== 'HEAD')
const nameOf = (route: RouteOptions) => `${methodsOf(route).join(',')} ${route.url}`
const statusesOf = (route: RouteOptions) => Object.keys((route.schema?.response ?? {}) as object)

/** Fields of responses whose names sound like secrets, and whose values are none: they are empty or masked, or keys of the state of a task. */
const NOT_SECRET = ['.client_key', '.key', '.secrets', 'keys.key', 'tasks.secrets']
const UNKNOWN_ID = '11111111-1111-4111-8111-111111111111'

type Shape = {
  type?: string
  'x-secret'?: boolean
  properties?: Record<string, Shape>
  patternProperties?: Record<string, Shape>
  additionalProperties?: Shape
  items?: Shape
  anyOf?: Shape[]
  oneOf?: Shape[]
  allOf?: Shape[]
}

/** Texts without a mark, and objects of texts, whose name sounds like a secret. */
function unmarkedSecrets(schema: Shape | undefined, path: string, depth = 0): string[] {
  if (typeof schema !== 'object' || depth > 14) return []
  const own =
    schema.type === 'string' &&
    schema['x-secret'] !== true &&
    /secret|token|passw|key$|ticket|pem$/i.test(path.split('.').at(-1) ?? '')
      ? [path.split('.').slice(-2).join('.')]
      : []
  const named = Object.entries(schema.properties ?? {}).flatMap(([name, one]) =>
    unmarkedSecrets(one, `${path}.${name}`, depth + 1),
  )
  const others = [
    ...Object.values(schema.patternProperties ?? {}),
    schema.additionalProperties,
    schema.items,
    ...(schema.anyOf ?? []),
    ...(schema.oneOf ?? []),
    ...(schema.allOf ?? []),
  ].flatMap((one) => unmarkedSecrets(one, path, depth + 1))
  return [...own, ...named, ...others]
}

let database: TestDatabase
let full: FullApp

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
})

afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

describe('routes', () => {
  const ours = () => full.routes.filter((route) => !isDocumentation(route))

  it('are all found', () => {
    const names = new Set(full.routes.map(nameOf))
    for (const name of [
      'GET /health',
      'POST /users',
      'POST /:domain_id/clients',
      'POST /m/:domain_id/c/:channel_id',
      'POST /tasks',
      'GET /workers',
    ])
      expect(names, name).toContain(name)
    expect(full.routes.length).toBeGreaterThan(60)
  })

  it('each declare one success and the error body for every failure of any request', () => {
    const faults = ours().flatMap((route) => {
      const statuses = statusesOf(route)
      // 101: a WebSocket.
      const hasSuccess = statuses.some((status) => /^(2\d\d|101)$/.test(status))
      const missing = ['400', '500', '503'].filter((status) => !statuses.includes(status))
      return hasSuccess && missing.length === 0
        ? []
        : [`${nameOf(route)} lacks ${hasSuccess ? missing.join(', ') : 'a success'}`]
    })
    expect(faults).toEqual([])
  })

  it('each declare 413 and 415 if they take a body', () => {
    const faults = ours().filter(
      (route) =>
        route.schema?.body !== undefined && !['413', '415'].every((status) => statusesOf(route).includes(status)),
    )
    expect(faults.map(nameOf)).toEqual([])
  })

  it('each name the action of the caller or are on the reviewed list', () => {
    const faults = full.routes.filter(
      ({ config }) => config?.action === undefined && config?.isPublic !== true && config?.ownCredentials === undefined,
    )
    expect(faults.map(nameOf)).toEqual([])
    const unknown = full.routes
      .map(({ config }) => config?.action)
      .filter((action) => action !== undefined && !GRANTED_ACTIONS.has(action) && !UNGRANTED_ACTIONS.has(action))
    expect(unknown).toEqual([])
  })

  it('without the bearer check of the edge are exactly those of public-routes.txt', () => {
    const listed = readFileSync(join(ROOT, 'test/architecture/public-routes.txt'), 'utf8')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => line.split(/\s{2,}/))
    for (const [route, , reason] of listed) expect(reason, `${route} needs a reason`).toMatch(/\S/)
    const found = full.routes
      .filter(({ config }) => config?.isPublic === true || config?.ownCredentials !== undefined)
      .map((route) => `${nameOf(route)}  ${route.config?.isPublic === true ? 'public' : 'own'}`)
    expect(listed.map(([route, kind]) => `${route}  ${kind}`).toSorted()).toEqual([...new Set(found)].toSorted())
  })

  it('each answer as they declare, for any request', async () => {
    const admin = await logIn(FULL_APP_ADMIN.SKEIN_ADMIN_USERNAME, FULL_APP_ADMIN.SKEIN_ADMIN_SECRET)
    const registered = await post('/users', {
      first_name: 'A',
      last_name: 'Stranger',
      email: 'stranger@example.com',
      credentials: { username: 'stranger', secret: 'secret-of-stranger' },
    })
    expect(registered.statusCode, registered.body).toBe(201)
    const stranger = await logIn('stranger', 'secret-of-stranger')
    const domain = await post('/domains', { name: 'probed', route: 'probed' }, admin)
    expect(domain.statusCode, domain.body).toBe(201)
    const answers = await probeRoutes(full.app, ours(), { admin, stranger, domainId: domain.json<{ id: string }>().id })
    expect(answers.length).toBeGreaterThan(500)
    const undeclared = answers.filter(({ status, declared }) => !declared.includes(String(status)))
    expect([
      ...new Set(undeclared.map(({ method, url, what, status }) => `${method} ${url} answers ${status} to ${what}`)),
    ]).toEqual([])
    const failures = answers.filter(({ status }) => status === 500)
    expect(failures.map(({ method, url, what, body }) => `${method} ${url}: ${what}: ${body}`)).toEqual([])
    // `/ready` says in a body of its own what the program lacks, as a busy machine may make it do.
    // Errors of the Iceberg catalogue have the form of its specification.
    const odd = answers.filter(
      ({ url, status, body }) =>
        url !== '/ready' &&
        status >= 400 &&
        !(url.includes('/iceberg/v1/') ? isIcebergError(body, status) : isErrorBody(body)),
    )
    expect(odd.map(({ method, url, what, body }) => `${method} ${url}: ${what}: ${body}`)).toEqual([])
  })

  it('each mark the secrets that they return, or are on the reviewed list', () => {
    const names = new Set<string>()
    for (const route of full.routes)
      for (const [status, schema] of Object.entries((route.schema?.response ?? {}) as object))
        if (status.startsWith('2')) for (const name of unmarkedSecrets(schema, '')) names.add(name)
    expect([...names].toSorted()).toEqual(NOT_SECRET)
  })

  it('with secrets are those that are known to have them', () => {
    const secret = new Set(full.routes.filter(returnsSecret).map(nameOf))
    for (const route of [
      'POST /users/tokens/issue',
      'POST /users/tokens/refresh',
      'POST /console/session',
      'POST /console/session/token',
      'POST /keys',
      'POST /pats',
      'POST /:domain_id/clients',
      'GET /:domain_id/clients',
      'POST /:domain_id/clients/bulk',
      'POST /:domain_id/clients/import',
      'POST /:domain_id/certs',
      'POST /:domain_id/mapping',
      'GET /clients/bootstrap/:external_id',
      'GET /clients/bootstrap/secure/:external_id',
      'GET /:domain_id/clients/configs',
      'GET /subscriptions/:subscription_id',
      'POST /workers/tokens',
      'POST /modules/tickets',
    ])
      expect(secret, route).toContain(route)
    for (const route of [
      'GET /m/:domain_id/c/:channel_id',
      'GET /:domain_id/channels',
      'GET /runs',
      'GET /journal/user/:user_id',
    ])
      expect(secret, route).not.toContain(route)
  })

  it('with secrets are not stored by caches and not compressed, whatever they answer', async () => {
    const authorization = await logIn(FULL_APP_ADMIN.SKEIN_ADMIN_USERNAME, FULL_APP_ADMIN.SKEIN_ADMIN_SECRET)
    for (const route of full.routes) {
      if (!returnsSecret(route)) continue
      for (const method of methodsOf(route)) {
        const url = route.url.replaceAll(/:[a-z_]+/g, UNKNOWN_ID).replace('*', 'unknown')
        const { headers } = await full.app.inject({
          method: method as 'GET',
          url,
          headers: { authorization, 'accept-encoding': 'br, gzip' },
        })
        const name = `${method} ${route.url}`
        expect(headers['cache-control'], name).toBe('no-store')
        expect(headers['content-encoding'], name).toBeUndefined()
      }
    }
  })

  it('of the task manager, and no others, are led to it by the reverse proxy of the reference deployment', () => {
    const text = readFileSync(join(ROOT, 'deploy/Caddyfile'), 'utf8')
    const matchers = /^\t@tasks path (.*)$/m.exec(text)?.[1]?.split(' ') ?? []
    const led = full.routes.filter(({ url }) =>
      matchers.some((path) => (path.endsWith('/*') ? url.startsWith(path.slice(0, -1)) : url === path)),
    )
    expect(full.managerRoutes.length).toBeGreaterThan(40)
    expect(led.map(nameOf).toSorted()).toEqual(full.managerRoutes.map(nameOf).toSorted())
    // A matcher that fits no route could lead a path of a later route astray.
    const unused = matchers.filter(
      (path) => !full.managerRoutes.some(({ url }) => `${url}/`.startsWith(path.replace(/\*$/, ''))),
    )
    expect(unused).toEqual([])
  })

  it('each begin with a word that no domain can have as its route', () => {
    const words = new Set(full.routes.map(({ url }) => url.split('/')[1] ?? '').filter((word) => /^[a-z]/.test(word)))
    expect(words).toContain('tasks')
    expect([...words].filter((word) => !RESERVED_ROUTES.has(word))).toEqual([])
  })

  it('each are in /openapi.json with every status', async () => {
    const published = (await full.app.inject({ method: 'GET', url: '/openapi.json' })).json<Document>()
    const document = completeDocument(published) as {
      paths: Record<string, Record<string, { responses: Record<string, unknown> }>>
    }
    const faults = ours().flatMap((route) => {
      const path = route.url.replaceAll(/:([a-z_]+)/g, '{$1}').replace('*', '{rest}')
      return methodsOf(route).flatMap((method) => {
        const operation = document.paths[path]?.[method.toLowerCase()]
        if (operation === undefined) return [`${method} ${path} is missing`]
        return statusesOf(route)
          .filter((status) => operation.responses[status] === undefined)
          .map((status) => `${method} ${path} lacks ${status}`)
      })
    })
    expect(faults).toEqual([])
  })
})

function isIcebergError(text: string, status: number): boolean {
  try {
    const { error, ...others } = JSON.parse(text) as { error?: { message?: unknown; type?: unknown; code?: unknown } }
    const isOnly = Object.keys(others).length === 0
    return isOnly && error?.code === status && typeof error.message === 'string' && typeof error.type === 'string'
  } catch {
    return false
  }
}

function isErrorBody(text: string): boolean {
  try {
    const body = JSON.parse(text) as { error?: unknown; message?: unknown }
    return typeof body.error === 'string' && typeof body.message === 'string' && !('stack' in body)
  } catch {
    return false
  }
}

async function post(url: string, payload: object, authorization?: string) {
  return await full.app.inject({
    method: 'POST',
    url,
    payload,
    headers: authorization === undefined ? {} : { authorization },
  })
}

async function logIn(identity: string, secret: string): Promise<string> {
  const response = await post('/users/tokens/issue', { identity, secret })
  expect(response.statusCode, response.body).toBe(201)
  return `Bearer ${response.json<{ access_token: string }>().access_token}`
}
