// contract decisions 84 and 85: calls that change something do not guess what a parameter means
import type { RouteOptions } from 'fastify'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { isReadingRoute } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let database: TestDatabase
let full: FullApp
let authorization: string

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = FULL_APP_ADMIN
  const payload = { identity, secret }
  const login = await full.app.inject({ method: 'POST', url: '/users/tokens/issue', payload })
  authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
})

afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

type Changing = { method: string; url: string; name: string; parameters: readonly string[] }

/** Routes whose credentials are not the access token of this test: each refuses it before anything else. */
const WITH_OTHER_CREDENTIALS = new Set([
  'POST /users/tokens/refresh',
  'POST /console/session',
  'POST /console/session/token',
  'DELETE /console/session',
  'PUT /password/reset',
  'POST /c/:domain_id/commands/:command_id/result',
])

function changingRoutes(): Changing[] {
  return full.routes.flatMap((route: RouteOptions) =>
    [route.method].flat().flatMap((method) => {
      const name = `${method} ${route.url}`
      if (isReadingRoute(method, route.config ?? {}) || WITH_OTHER_CREDENTIALS.has(name)) return []
      const url = route.url.replaceAll(/:[a-z_]+/g, () => newId()).replace('*', 'a')
      const query = route.schema?.querystring as { properties?: object } | undefined
      return [{ method, url, name, parameters: Object.keys(query?.properties ?? {}) }]
    }),
  )
}

async function ask({ method, url }: Changing, query: string): Promise<{ status: number; message: string }> {
  const answer = await full.app.inject({
    method: method as 'DELETE',
    url: `${url}?${query}`,
    headers: { authorization },
  })
  return {
    status: answer.statusCode,
    message: answer.body === '' ? '' : (answer.json<{ message?: string }>().message ?? ''),
  }
}

/** What the routes answer that do not answer 400 with this message. */
async function others(routes: readonly Changing[], query: (route: Changing) => string, message: RegExp) {
  const found: string[] = []
  for (const route of routes) {
    const answer = await ask(route, query(route))
    if (answer.status !== 400 || !message.test(answer.message))
      found.push(`${route.name}: ${answer.status} ${answer.message}`)
  }
  return found
}

it('finds the routes', () => {
  const names = changingRoutes().map(({ name }) => name)
  expect(names.length).toBeGreaterThan(150)
  for (const name of [
    'DELETE /:domain_id/channels/:channel_id/messages',
    'POST /tasks',
    'POST /m/:domain_id/c/:channel_id',
  ])
    expect(names).toContain(name)
})

it('every changing route without a dry run refuses dry_run, whatever its value', async () => {
  const routes = changingRoutes().filter(({ parameters }) => !parameters.includes('dry_run'))
  for (const value of ['true', 'false', ''])
    expect(
      await others(routes, () => `dry_run=${value}`, /^dry_run is not supported: this call has no dry run$/),
    ).toEqual([])
})

it('every changing route refuses other spellings of dry_run', async () => {
  for (const name of ['dryRun', 'dryrun', 'dry-run', 'dry_run[]', 'DRY_RUN', 'dry run', 'dry_rnu'])
    expect(
      await others(
        changingRoutes(),
        () => `${encodeURIComponent(name)}=true`,
        /is unknown: did you mean dry_run\?$|is not supported: this call has no dry run$/,
      ),
      name,
    ).toEqual([])
})

it('every changing route refuses an empty value, of its own parameters and of others', async () => {
  const isCredential = (name: string) => name === 'authorization'
  for (const route of changingRoutes()) {
    for (const name of route.parameters.filter((one) => !isCredential(one)))
      expect(await ask(route, `${name}=`), route.name).toEqual({ status: 400, message: `${name} must not be empty` })
  }
  const unknown = changingRoutes().filter(({ method }) => method !== 'DELETE')
  expect(await others(unknown, () => 'elsewhere=', /^elsewhere must not be empty$/)).toEqual([])
})

it('every DELETE refuses unknown parameters, and names the nearest known one', async () => {
  const routes = changingRoutes().filter(({ method }) => method === 'DELETE')
  expect(
    await others(routes, () => 'elsewhere=1', /^elsewhere is unknown: this call (has no parameters|accepts .+)$/),
  ).toEqual([])
  for (const route of routes) {
    for (const name of route.parameters) {
      // One letter more than the name, as in a typing error.
      const { status, message } = await ask(route, `${name}s=1`)
      const nearest =
        name.length === 2 ? /^tos is unknown/ : new RegExp(`^${name}s is unknown: did you mean ${name}\\?$`)
      expect([status, message], route.name).toEqual([400, expect.stringMatching(nearest)])
    }
  }
})
