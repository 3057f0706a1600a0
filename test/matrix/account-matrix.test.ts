/**
 * Who may do what with users and their own things, compared with the reviewed file account-matrix.txt (contract 5 and 6,
 * decisions 29, 40, 45 and 51); and no route with an action is in neither matrix without a reason.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { ACCOUNT_COLUMNS, accountRequest, endsSomething } from './accounts.ts'
import type { AccountColumn } from './accounts.ts'
import { isInside, routesOf } from './fill.ts'

const DEADLINE_MS = 900_000
const HEAD = `# Who may do what with users and what is theirs alone, asked of the running API by a test that compares its answers with this file.
# After a change that is meant: vitest run --project matrix test/matrix -u, and review every line of the difference.
#
# A row is a call; the word behind it is its action. A cell is the status. 404 of a call about a key, a token, a session or an
# invitation: let through, and there is none of the id that was asked for.
#
`

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

type User = { id: string; secret: string; tokens: Partial<Record<AccountColumn, string>> }

async function send(token: string | undefined, method: string, url: string, body?: unknown) {
  return await full.app.inject({
    method: method as 'GET',
    url,
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { payload: body as object }),
  })
}
async function json<T>(token: string | undefined, method: string, url: string, body?: unknown): Promise<T> {
  const response = await send(token, method, url, body)
  if (response.statusCode >= 300) throw new Error(`${method} ${url}: ${response.statusCode} ${response.body}`)
  return response.json()
}
type Pair = { access_token: string; refresh_token: string }
const logIn = (identity: string, secret: string, domainId?: string) =>
  json<Pair>(undefined, 'POST', '/users/tokens/issue', { identity, secret, domain_id: domainId })

async function register(by?: string): Promise<{ id: string; username: string; secret: string }> {
  const mark = newId().slice(0, 13)
  const secret = `secret-${mark}`
  const { id } = await json<{ id: string }>(by, 'POST', '/users', {
    first_name: `F ${mark}`,
    last_name: `L ${mark}`,
    email: `u-${mark}@example.com`,
    credentials: { username: `u-${mark}`, secret },
  })
  return { id, username: `u-${mark}`, secret }
}

test(
  'every call about users by every caller is answered as account-matrix.txt says',
  async () => {
    const admin = (await logIn(FULL_APP_ADMIN.SKEIN_ADMIN_USERNAME, FULL_APP_ADMIN.SKEIN_ADMIN_SECRET)).access_token
    const tokenOf = async ({ username, secret }: { username: string; secret: string }) =>
      (await logIn(username, secret)).access_token
    const [creatorUser, fellow, stranger, lost] = [
      await register(),
      await register(),
      await register(),
      await register(),
    ]
    const [creator, fellowToken, strangerToken, lostToken] = [
      await tokenOf(creatorUser),
      await tokenOf(fellow),
      await tokenOf(stranger),
      await tokenOf(lost),
    ]
    await json(admin, 'POST', `/users/${lost.id}/disable`)
    const domain = await json<{ id: string }>(fellowToken, 'POST', '/domains', { name: 'shared' })
    const scopes = ['users', 'domains'].flatMap((type) =>
      ['create', 'read', 'list', 'update', 'delete'].map((operation) => ({
        entity_type: type,
        operation,
        entity_id: '*',
      })),
    )

    async function newUser(): Promise<User> {
      const { id, username, secret } = await register(creator)
      await json(fellowToken, 'POST', `/domains/${domain.id}/users/assign`, {
        relation: 'member',
        user_ids: [id],
      }).catch(
        // The answer has no body.
        () => undefined,
      )
      const login = await logIn(username, secret)
      const plain = login.access_token
      const newPat = async (name: string, of: readonly object[]) => {
        const pat = await json<{ id: string; secret: string }>(plain, 'POST', '/pats', { name, duration: '1h' })
        await send(plain, 'PATCH', `/pats/${pat.id}/scope/add`, { scopes: of })
        return pat.secret
      }
      const dashboards = { entity_type: 'dashboards', operation: 'read', entity_id: '*', domain_id: domain.id }
      return {
        id,
        secret,
        tokens: {
          ref: login.refresh_token,
          dis: lostToken,
          str: strangerToken,
          fel: fellowToken,
          cre: creator,
          slf: plain,
          bnd: (await logIn(username, secret, domain.id)).access_token,
          key: (await json<{ value: string }>(plain, 'POST', '/keys', { type: 3, duration: 3600 })).value,
          pat: await newPat('everything', scopes),
          'p--': await newPat('dashboards', [dashboards]),
          adm: admin,
        },
      }
    }

    const routes = routesOf(full).filter((route) => route.action !== undefined && isAboutAccounts(route))
    const common = await newUser()
    const lines: string[] = []
    const width = Math.max(...routes.map((route) => labelOf(route).length)) + 2
    for (const route of routes) {
      const name = `${route.method} ${route.url}`
      const cells: string[] = []
      for (const [column] of ACCOUNT_COLUMNS) {
        const user = endsSomething(name) ? await newUser() : common
        const { url, body } = accountRequest(name, { ...user, domainId: domain.id })
        cells.push(String((await send(user.tokens[column], route.method, url, body)).statusCode))
      }
      lines.push(`${labelOf(route).padEnd(width)}${cells.join(' ')}`)
    }
    const legend = ACCOUNT_COLUMNS.map(([name, says]) => `# ${name}  ${says}`)
    const heading = `${' '.repeat(width)}${ACCOUNT_COLUMNS.map(([name]) => name).join(' ')}`
    const text = `${HEAD}${legend.join('\n')}\n\n${heading}\n${lines.join('\n')}\n`
    await expect(text).toMatchFileSnapshot(join(import.meta.dirname, 'account-matrix.txt'))
  },
  DEADLINE_MS,
)

test('every route of the OpenAPI document is in a matrix, or in the list of exceptions with a reason', async () => {
  const document = (await full.app.inject({ method: 'GET', url: '/openapi.json' })).json<{
    paths: Record<string, Record<string, unknown>>
  }>()
  const names = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  )
  expect(names.length).toBeGreaterThan(400)
  const covered = new Set(
    routesOf(full)
      .filter((route) => isInside(route) || (route.action !== undefined && isAboutAccounts(route)))
      .map(({ method, url }) => `${method} ${url.replaceAll(/:([a-z_]+)/g, '{$1}').replace('*', '{rest}')}`),
  )
  const listed = readFileSync(join(import.meta.dirname, 'elsewhere.txt'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(/\s{2,}/))
  for (const [route, reason] of listed) expect(reason, `${route} needs a reason`).toMatch(/\S/)
  const missing = names.filter((name) => !covered.has(name))
  expect(new Set(missing)).toEqual(new Set(listed.map(([route]) => route)))
})

const labelOf = ({ method, url, action }: { method: string; url: string; action: string | undefined }) =>
  `${method.padEnd(6)} ${url.replaceAll(/:([a-z_]+)/g, '{$1}')}  ${action}`

function isAboutAccounts(route: { method: string; url: string; action: string | undefined }): boolean {
  return !isInside(route) && !/^\/(tasks|workers|workflows|modules|events)/.test(route.url)
}
