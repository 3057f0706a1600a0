/** The columns and rows of the account matrix: calls about users and what is theirs alone. */
import { newId } from '#core/ids.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { undeclared } from './requests.ts'
import type { Requests } from './requests.ts'
import type { Route } from './rows.ts'
import { isInside, routesOf } from './walk.ts'

export const ACCOUNT_COLUMNS = [
  ['nob', 'nobody: no credentials'],
  ['ref', 'the user himself with a refresh token in the place of an access token'],
  ['dis', 'a user who was disabled'],
  ['str', 'a stranger'],
  ['fel', 'a fellow: the administrator of a domain in which the user is a member'],
  ['cre', 'who created the user: his owner (decision 51)'],
  ['slf', 'the user himself'],
  ['bnd', 'the user himself with a token that is bound to a domain (decision 40)'],
  ['key', 'the user himself with an API key'],
  ['pat', 'the user himself with a personal access token that has every scope on users and domains'],
  ['p--', 'the user himself with a personal access token for dashboards alone'],
  ['adm', 'the platform administrator'],
] as const
export type AccountColumn = (typeof ACCOUNT_COLUMNS)[number][0]

/** Calls that change a user: each cell uses its own user. */
const ENDING = new Set([
  'DELETE /users/:user_id',
  'POST /users/:user_id/disable',
  'PATCH /users/secret',
  'PATCH /users/:user_id/email',
  'PATCH /users/:user_id/username',
  'DELETE /pats',
])
const endsSomething = (name: string) => ENDING.has(name)

const NOTHING: ReadonlySet<string> = new Set(['enable', 'disable', 'rotate', 'send-verification'])

/** A call that only a refusal can keep from working; ids of keys, tokens and invitations are unknown ones: 404 when let through. */
function accountRequest(
  name: string,
  target: { id: string; secret: string; domainId: string },
): { url: string; body?: unknown } {
  const [method = '', path = ''] = name.split(' ')
  const url = path
    .replace(':user_id', target.id)
    .replace(':domain_id', target.domainId)
    .replaceAll(/:[a-z_]+/g, () => newId())
  const mark = newId().slice(0, 8)
  const last = path.split('/').at(-1) ?? ''
  if (path === '/users/search') return { url: `${url}?username=owner` }
  if (method === 'GET' || method === 'DELETE' || NOTHING.has(last)) return { url }
  const person = { first_name: `First ${mark}`, last_name: `Last ${mark}` }
  switch (name) {
    case 'POST /users':
      return {
        url,
        body: {
          ...person,
          email: `m-${mark}@example.com`,
          credentials: { username: `m-${mark}`, secret: `secret-${mark}` },
        },
      }
    case 'POST /keys':
      return { url, body: { type: 3, duration: 60 } }
    case 'POST /pats':
    case 'POST /domains':
      return { url, body: { name: `m-${mark}`, duration: '1h' } }
    case 'PATCH /users/secret':
      return { url, body: { old_secret: target.secret, new_secret: `other-${target.secret}` } }
    case 'PATCH /users/:user_id':
      return { url, body: { metadata: { floor: 1 } } }
  }
  const bodies: Record<string, unknown> = {
    tags: { tags: ['north'] },
    picture: { profile_picture: 'https://example.com/a.png' },
    email: { email: `n-${mark}@example.com` },
    username: { username: `n-${mark}` },
    role: { role: 'user' },
    quotas: { own: {} },
    name: { name: 'renamed' },
    description: { description: 'renamed' },
    reset: { duration: '1h' },
    add: { scopes: [{ entity_type: 'users', operation: 'read', entity_id: '*' }] },
    remove: { scopes_id: [newId()] },
    accept: { domain_id: newId() },
    reject: { domain_id: newId() },
  }
  return bodies[last] === undefined ? { url } : { url, body: bodies[last] }
}

/** Calls of the account matrix. Those of tasks, workers and modules stand elsewhere. */
export const isAboutAccounts = (route: Route): boolean =>
  route.action !== undefined && !isInside(route) && !/^\/(tasks|workers|workflows|modules|events)/.test(route.url)

type User = { id: string; username: string; secret: string }
export type AccountLine = { route: Route; cells: readonly string[] }

/** Asks every call about users as every column. Calls that change a user get a user of their own for each cell. */
export async function walkAccounts(
  full: FullApp,
  { send, made, logIn }: Requests,
  admin: string,
): Promise<{ lines: AccountLine[]; undeclared: string[] }> {
  const faults: string[] = []
  const tokenOf = async ({ username, secret }: User) => (await logIn(username, secret)).access_token

  async function register(by?: string): Promise<User> {
    const mark = newId().slice(0, 13)
    const secret = `secret-${mark}`
    const { id } = await made<{ id: string }>(by, 'POST', '/users', {
      first_name: `F ${mark}`,
      last_name: `L ${mark}`,
      email: `u-${mark}@example.com`,
      credentials: { username: `u-${mark}`, secret },
    })
    return { id, username: `u-${mark}`, secret }
  }

  const [creator, fellow, stranger, lost] = [await register(), await register(), await register(), await register()]
  const [creatorToken, fellowToken, lostToken] = [await tokenOf(creator), await tokenOf(fellow), await tokenOf(lost)]
  const strangerToken = await tokenOf(stranger)
  await made(admin, 'POST', `/users/${lost.id}/disable`)
  const domain = await made<{ id: string }>(fellowToken, 'POST', '/domains', { name: 'shared' })
  const scopes = ['users', 'domains'].flatMap((type) =>
    ['create', 'read', 'list', 'update', 'delete'].map((operation) => ({
      entity_type: type,
      operation,
      entity_id: '*',
    })),
  )
  const dashboards = { entity_type: 'dashboards', operation: 'read', entity_id: '*', domain_id: domain.id }

  async function newMember(): Promise<User> {
    const user = await register(creatorToken)
    const body = { relation: 'member', user_ids: [user.id] }
    await made(fellowToken, 'POST', `/domains/${domain.id}/users/assign`, body)
    return user
  }
  async function newPat(user: User, name: string, of: readonly object[]): Promise<string> {
    const plain = await tokenOf(user)
    const pat = await made<{ id: string; secret: string }>(plain, 'POST', '/pats', { name, duration: '1h' })
    await made(plain, 'PATCH', `/pats/${pat.id}/scope/add`, { scopes: of })
    return pat.secret
  }
  const TOKENS: Record<AccountColumn, (user: User) => string | undefined | Promise<string>> = {
    nob: () => undefined,
    ref: async ({ username, secret }) => (await logIn(username, secret)).refresh_token,
    dis: () => lostToken,
    str: () => strangerToken,
    fel: () => fellowToken,
    cre: () => creatorToken,
    slf: tokenOf,
    bnd: async ({ username, secret }) => (await logIn(username, secret, domain.id)).access_token,
    key: async (user) =>
      (await made<{ value: string }>(await tokenOf(user), 'POST', '/keys', { type: 3, duration: 3600 })).value,
    pat: (user) => newPat(user, 'everything', scopes),
    'p--': (user) => newPat(user, 'dashboards', [dashboards]),
    adm: () => admin,
  }

  const common = await newMember()
  const tokens = new Map<AccountColumn, string | undefined>()
  for (const [column] of ACCOUNT_COLUMNS) tokens.set(column, await TOKENS[column](common))
  const lines: AccountLine[] = []
  for (const route of routesOf(full).filter(isAboutAccounts)) {
    const name = `${route.method} ${route.url}`
    const cells: string[] = []
    for (const [column] of ACCOUNT_COLUMNS) {
      const isOwn = endsSomething(name)
      const user = isOwn ? await newMember() : common
      const token = isOwn ? await TOKENS[column](user) : tokens.get(column)
      const { url, body } = accountRequest(name, { ...user, domainId: domain.id })
      const answer = await send(token, route.method, url, body)
      cells.push(String(answer.status))
      faults.push(...undeclared(route, answer).map((fault) => `${fault} (${column})`))
    }
    lines.push({ route, cells })
  }
  return { lines, undeclared: faults }
}
