// contract sections 6 and 2.3: what a personal access token with few scopes may call
import type { RouteOptions } from 'fastify'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { OUTSIDE_ACTIONS, requiredScopes } from '#api/identity/index.ts'
import { newId } from '#core/ids.ts'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let database: TestDatabase
let full: FullApp
let login: string

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = FULL_APP_ADMIN
  const issued = await send('POST', '/users/tokens/issue', { identity, secret })
  login = `Bearer ${issued.json<{ access_token: string }>().access_token}`
})

afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

const send = async (method: string, url: string, payload?: object, authorization?: string) =>
  await full.app.inject({
    method: method as 'GET',
    url,
    ...(payload === undefined ? {} : { payload }),
    ...(authorization === undefined ? {} : { headers: { authorization } }),
    payloadAsStream: url.endsWith('/events') || url.endsWith('/live'),
  })

async function idOf(url: string, body: object): Promise<string> {
  const made = await send('POST', url, body, login)
  expect(made.statusCode, made.body).toBe(201)
  return made.json<{ id: string }>().id
}

const methodsOf = (route: RouteOptions) => [route.method].flat().filter((method) => method !== 'HEAD')

/** The scopes of each route as one line. */
function linesOf(route: RouteOptions): string[] {
  const { isPublic, ownCredentials, action = '', scope } = route.config ?? {}
  const isForTokens = isPublic !== true && (ownCredentials === undefined || ownCredentials.includes('bearer'))
  if (!isForTokens || action === '') return []
  const outside = Object.hasOwn(OUTSIDE_ACTIONS, action) ? OUTSIDE_ACTIONS[action] : undefined
  const needed = outside === undefined ? requiredScopes({ url: route.url, action, scope }) : [outside.pat]
  const text =
    needed === undefined
      ? 'none: refused'
      : needed === 'filtered'
        ? 'any in the domain; the answer is filtered'
        : needed.map((one) => (one === 'never' ? 'none: refused' : `${one.type}:${one.operation}`)).join(' or ')
  return methodsOf(route).map((method) => `${method} ${route.url}  ${text}`)
}

it('every route that accepts bearer tokens has the reviewed scopes', async () => {
  const lines = [...new Set(full.routes.flatMap(linesOf))].toSorted()
  expect(lines.length).toBeGreaterThan(250)
  await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot('route-scopes.txt')
})

/** Answers that contain what the scopes cover, which is nothing here, and who the caller is. */
const FILTERED = new Set([
  'GET /:domain_id/access',
  'POST /:domain_id/access/check',
  'GET /:domain_id/events',
  'GET /:domain_id/overview',
  'GET /:domain_id/search',
])

it('a token to publish on one channel publishes there, and no other route answers it', async () => {
  const domain = await idOf('/domains', { name: 'plant', route: 'scoped' })
  const channel = await idOf(`/${domain}/channels`, { name: 'one' })
  const client = await idOf(`/${domain}/clients`, { name: 'pump' })
  const group = await idOf(`/${domain}/groups`, { name: 'hall' })
  const dashboard = await idOf(`/${domain}/dashboards`, { name: 'mine' })
  const task = await idOf('/tasks', { name: 'add', domain_id: domain })
  const { id: pat, secret } = (await send('POST', '/pats', { name: 'robot', duration: '1h' }, login)).json<{
    id: string
    secret: string
  }>()
  const scope = { optional_domain_id: domain, entity_type: 'messages', entity_id: channel, operation: 'publish' }
  const added = await send('PATCH', `/pats/${pat}/scope/add`, { scopes: [scope] }, login)
  expect(added.statusCode, added.body).toBe(200)
  const { id: user } = (await send('GET', '/users/profile', undefined, login)).json<{ id: string }>()
  const ids: Readonly<Record<string, string>> = {
    domain_id: domain,
    channel_id: channel,
    client_id: client,
    group_id: group,
    dashboard_id: dashboard,
    task_id: task,
    user_id: user,
    entity_type: 'client',
    entity_id: client,
  }
  const answered: string[] = []
  for (const route of full.routes) {
    if (route.config?.isPublic === true || route.url.startsWith('/docs')) continue
    for (const method of methodsOf(route)) {
      const url = route.url.replaceAll(/:([a-z_]+)/g, (_match, name: string) => ids[name] ?? newId()).replace('*', 'a')
      const query = url.endsWith('/search')
        ? '?q=p'
        : url.endsWith('/access')
          ? `?entity=channel:${channel}&action=read`
          : ''
      const body = url.endsWith('/check')
        ? { questions: [{ entity: `client:${client}`, action: 'read' }] }
        : method === 'GET' || method === 'DELETE'
          ? undefined
          : url === '/publish'
            ? { topic: `channels/${channel}/messages`, payload: 'MQ==' }
            : { name: 'changed', value: 1, preferences: {} }
      const answer = await send(method, `${url}${query}`, body, `Bearer ${secret}`)
      expect(answer.statusCode, `${method} ${route.url}`).toBeLessThan(500)
      const name = `${method} ${route.url}`
      if (answer.statusCode < 300 && !FILTERED.has(name)) answered.push(name)
      if (url.endsWith('/events')) answer.stream().destroy()
      else if (answer.statusCode < 300)
        for (const hidden of ['mine', 'pump', 'hall']) expect(answer.body, name).not.toContain(hidden)
    }
  }
  const publishing = new Set(full.routes.filter(({ config }) => config?.action === 'publish'))
  expect(new Set(answered)).toEqual(new Set([...publishing].flatMap(linesOf).map((line) => line.split('  ')[0])))
})
