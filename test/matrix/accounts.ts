/** The columns and rows of the account matrix: calls about users and what is theirs alone. */
import { newId } from '#core/ids.ts'

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
export const endsSomething = (name: string) => ENDING.has(name)

const NOTHING: ReadonlySet<string> = new Set(['enable', 'disable', 'rotate', 'send-verification'])

/** A call that only a refusal can keep from working; ids of keys, tokens and invitations are unknown ones: 404 when let through. */
export function accountRequest(
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
