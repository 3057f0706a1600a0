/**
 * What the fuzzed requests meet: a tenant that they may change, and a vault that no caller may read.
 * `repair` puts back what requests took away, so that each operation finds something to work on.
 */
import type { AddressInfo } from 'node:net'
import type { RoutePlugin } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import type { Caller, TestApi, TestUser } from '../harness/api.ts'
import { startTaskManager } from '../harness/task-manager.ts'
import type { CallerName, Plan } from './request.ts'
import type { Reference } from './values.ts'

/** The document names the routes of tasks too, so the world has a task manager (and no worker). */
export async function taskRoutes(...platform: Parameters<typeof startTaskManager>): Promise<RoutePlugin> {
  return (await startTaskManager(...platform)).routes
}

type Ids = Record<string, string>

export type World = AsyncDisposable & {
  readonly api: TestApi
  /** Where it listens, for answers that do not end. */
  readonly base: string
  /** Contained in every name, secret and metadata of the vault. */
  readonly canary: string
  /** Callers who may see the vault. */
  mayMeetCanary(caller: CallerName): boolean
  idOf(reference: Reference, plan: Plan): string
  authorizationOf(caller: CallerName): string | undefined
  repair(): Promise<void>
}

const UNKNOWN = '00000000-0000-4000-8000-000000000000'
const MALFORMED = 'not-a-uuid'
const DEVICE_SECRET = 'the-secret-of-the-fuzzed-device'
const TYPES = ['client', 'channel', 'group'] as const
/** Each may need those before it. */
const PARTS = ['domain', 'entities', 'roles', 'tokens'] as const
type Part = (typeof PARTS)[number]

async function sent(call: Caller, method: string, url: string, body?: unknown): Promise<Ids> {
  const answer = await call(method, url, body)
  if (answer.status >= 300) throw new Error(`the world is broken: ${method} ${url} ${answer.status} ${answer.text}`)
  return answer.text.startsWith('{') ? answer.json<Ids>() : {}
}

export async function startWorld(): Promise<World> {
  const api = await startTestApi({ alsoServes: taskRoutes })
  await api.app.listen({ host: '127.0.0.1', port: 0 })
  const base = `http://127.0.0.1:${(api.app.server.address() as AddressInfo).port}`
  const { access_token: adminToken } = await sent(api.anonymous, 'POST', '/users/tokens/issue', {
    identity: 'admin',
    secret: 'the-first-admin',
  })
  const [owner, member, stranger, eve] = [
    await api.newUser(),
    await api.newUser(),
    await api.newUser(),
    await api.newUser(),
  ]
  await sent(stranger.call, 'POST', '/domains', { name: 'elsewhere' })
  const canary = `canary-${newId().slice(0, 8)}`
  const vault = await fillVault(eve, canary)
  const own: Ids = {}
  let pawn: TestUser | undefined
  let patToken = ''
  let boundToken = ''

  const isThere = async (call: Caller, path: string): Promise<boolean> => (await call('GET', path)).status === 200
  const make = async (path: string, body: unknown): Promise<string> =>
    (await sent(owner.call, 'POST', path, body))['id'] ?? ''

  async function repairDomain(): Promise<void> {
    const found = await owner.call('GET', `/domains/${own['domain']}`)
    if (found.status === 200 && found.json<Ids>()['status'] === 'enabled') return
    const enabled = await api.admin('POST', `/domains/${own['domain']}/enable`)
    if (enabled.status === 200 && (await isThere(owner.call, `/domains/${own['domain']}`))) return
    for (const key of Object.keys(own)) delete own[key]
    own['domain'] = await make('/domains', { name: 'the fuzzed plant' })
  }

  async function repairEntities(): Promise<void> {
    const d = own['domain']
    for (const type of TYPES) {
      const found = await owner.call('GET', `/${d}/${type}s/${own[type]}`)
      if (found.status !== 200)
        own[type] = await make(`/${d}/${type}s`, {
          name: 'fuzzed',
          metadata: { a: 1 },
          ...(type === 'client' ? { credentials: { secret: `${DEVICE_SECRET}-${newId()}` } } : {}),
        })
      else if (found.json<Ids>()['status'] !== 'enabled')
        await sent(owner.call, 'POST', `/${d}/${type}s/${own[type]}/enable`)
    }
    if (!(await isThere(owner.call, `/${d}/groups/${own['other group']}`)))
      own['other group'] = await make(`/${d}/groups`, { name: 'another' })
    // Its secret may have been changed.
    own['secret'] = `${DEVICE_SECRET}-${newId()}`
    await sent(owner.call, 'PATCH', `/${d}/clients/${own['client']}/secret`, { secret: own['secret'] })
    await sent(owner.call, 'POST', `/${d}/channels/connect`, {
      client_ids: [own['client']],
      channel_ids: [own['channel']],
    })
  }

  async function repairRoles(): Promise<void> {
    const bases = [
      ['domain', `/domains/${own['domain']}`],
      ...TYPES.map((type) => [type, `/${own['domain']}/${type}s/${own[type]}`]),
    ]
    for (const [type, base] of bases)
      if (!(await isThere(owner.call, `${base}/roles/${own[`role of ${type}`]}`)))
        own[`role of ${type}`] = await make(`${base}/roles`, {
          role_name: `crew ${newId()}`,
          optional_actions: ['read'],
        })
    if (!(await isThere(member.call, `/domains/${own['domain']}`)))
      await sent(owner.call, 'POST', `/domains/${own['domain']}/users/assign`, {
        relation: 'viewer',
        user_ids: [member.id],
      })
  }

  async function repairTokens(): Promise<void> {
    if (!(await isThere(owner.call, `/keys/${own['key']}`)))
      own['key'] = await make('/keys', { type: 3, duration: 3600 })
    if (!(await isThere(api.as(`Bearer ${patToken}`), `/${own['domain']}/clients`))) {
      const pat = await sent(owner.call, 'POST', '/pats', { name: 'fuzzed', duration: '24h' })
      own['pat'] = pat['id'] ?? ''
      patToken = pat['secret'] ?? ''
      const scopes = ['clients', 'channels', 'groups'].flatMap((entityType) =>
        ['create', 'read', 'list', 'update'].map((operation) => ({
          domain_id: own['domain'],
          entity_type: entityType,
          entity_id: '*',
          operation,
        })),
      )
      await sent(owner.call, 'PATCH', `/pats/${own['pat']}/scope/add`, { scopes })
    }
    if (!(await isThere(api.as(`Bearer ${boundToken}`), `/${own['domain']}/clients`))) {
      const tokens = await sent(api.anonymous, 'POST', '/users/tokens/issue', {
        identity: owner.username,
        secret: owner.secret,
        domain_id: own['domain'],
      })
      boundToken = tokens['access_token'] ?? ''
    }
    if (pawn === undefined || !(await isThere(pawn.call, '/users/profile'))) pawn = await api.newUser()
    if (!(await isThere(pawn.call, `/domains/${own['domain']}`)))
      await sent(owner.call, 'POST', `/domains/${own['domain']}/users/assign`, {
        relation: 'viewer',
        user_ids: [pawn.id],
      })
    own['user'] = pawn.id
    const sessions = (await pawn.call('GET', '/users/tokens/refresh-tokens')).text
    own['session'] = /"id":"(?<id>[^"]+)"/.exec(sessions)?.groups?.['id'] ?? UNKNOWN
  }

  /** One statement tells which part requests have changed. To ask the platform for each would be some 25 requests. */
  async function stateOf(): Promise<Record<Part, string>> {
    const id = (name: string) => sql`${own[name] ?? UNKNOWN}`
    const roles = ['domain', ...TYPES].map((type) => own[`role of ${type}`] ?? '')
    const { rows } = await sql<Record<Part, string>>`
      WITH d AS (SELECT key, status FROM domains WHERE id = ${id('domain')}),
           people AS (SELECT key, id, status FROM users WHERE id = ANY(${[owner.id, member.id, pawn?.id ?? UNKNOWN]}::uuid[])),
           joined AS (SELECT p.id, p.status, g.role_key FROM d JOIN grants g ON g.domain_key = d.key AND g.entity_type = 'domain'
             JOIN people p ON p.key = g.user_key),
           entities AS (
             SELECT c.key, c.status, encode(c.secret_mac, 'hex') AS secret FROM d JOIN clients c ON c.domain_key = d.key AND c.id = ${id('client')}
             UNION ALL SELECT h.key, h.status, '' FROM d JOIN channels h ON h.domain_key = d.key AND h.id = ${id('channel')}
             UNION ALL SELECT g.key, g.status, '' FROM d JOIN groups g ON g.domain_key = d.key AND g.id IN (${id('group')}, ${id('other group')})
             UNION ALL SELECT n.client_key, 'connected', n.channel_key::text FROM d JOIN connections n ON n.domain_key = d.key)
      SELECT (SELECT concat(d.status, (SELECT string_agg(j::text, ',' ORDER BY j::text) FROM joined j WHERE j.id = ${owner.id})) FROM d) AS domain,
             (SELECT string_agg(e::text, ',' ORDER BY e::text) FROM entities e) AS entities,
             concat((SELECT string_agg(r.key::text, ',' ORDER BY r.key) FROM d JOIN roles r ON r.domain_key = d.key AND r.id = ANY(${roles})),
               (SELECT string_agg(j::text, ',' ORDER BY j::text) FROM joined j WHERE j.id = ${member.id})) AS roles,
             concat((SELECT string_agg(j::text, ',' ORDER BY j::text) FROM joined j WHERE j.id <> ${member.id}),
               (SELECT string_agg(p::text, ',' ORDER BY p::text) FROM people p),
               (SELECT string_agg(concat(s.id, s.revoked_at), ',' ORDER BY s.id) FROM sessions s JOIN people p ON p.key = s.user_key),
               (SELECT k.key FROM api_keys k WHERE k.id = ${id('key')}),
               (SELECT concat(t.key, t.revoked_at, encode(t.secret_hash, 'hex'),
                   (SELECT string_agg(s.key::text, ',' ORDER BY s.key) FROM pat_scopes s WHERE s.pat_key = t.key))
                  FROM pats t WHERE t.id = ${id('pat')})) AS tokens`.execute(api.database.db)
    return rows[0] as Record<Part, string>
  }

  const REPAIRS: Record<Part, () => Promise<void>> = {
    domain: repairDomain,
    entities: repairEntities,
    roles: repairRoles,
    tokens: repairTokens,
  }
  let whole: Partial<Record<Part, string>> = {}

  async function repair(): Promise<void> {
    let state = await stateOf()
    for (const part of PARTS) {
      if (state[part] === whole[part]) continue
      await REPAIRS[part]()
      state = await stateOf()
    }
    whole = state
  }
  await repair()

  return {
    api,
    base,
    canary,
    // The administrator sees everything, and a pawn may become one.
    mayMeetCanary: (caller) => caller === 'admin' || caller === 'pawn',
    idOf({ ref, whose }, plan) {
      if (whose === 'malformed') return MALFORMED
      // With rights everywhere the administrator would open the vault to others.
      if (whose === 'unknown' || (whose === 'foreign' && plan.caller === 'admin')) return UNKNOWN
      const kind = ref === 'role' ? roleKindOf(plan) : ref
      return (whose === 'foreign' ? vault : own)[kind] ?? UNKNOWN
    },
    authorizationOf(caller) {
      switch (caller) {
        case 'owner':
          return `Bearer ${owner.accessToken}`
        case 'member':
          return `Bearer ${member.accessToken}`
        case 'stranger':
          return `Bearer ${stranger.accessToken}`
        case 'admin':
          return `Bearer ${adminToken}`
        case 'pawn':
          return `Bearer ${pawn?.accessToken ?? ''}`
        case 'token':
          return `Bearer ${patToken}`
        case 'bound':
          return `Bearer ${boundToken}`
        case 'device':
          return `Client ${own['secret']}`
        case 'nobody':
          return undefined
      }
    },
    repair,
    [Symbol.asyncDispose]: () => api[Symbol.asyncDispose](),
  }
}

/** A role belongs to the entity of its path. */
function roleKindOf(plan: Plan): string {
  const type = TYPES.find((name) => `${name}_id` in plan.path)
  return `role of ${type ?? 'domain'}`
}

/** A tenant of which every name, secret and metadata is marked. */
async function fillVault({ call, id: user }: TestUser, canary: string): Promise<Ids> {
  const name = `${canary} name`
  const metadata = { canary }
  const domain = (await sent(call, 'POST', '/domains', { name, alias: canary, metadata }))['id'] ?? ''
  const vault: Ids = { domain, user }
  for (const type of TYPES) {
    const credentials = type === 'client' ? { credentials: { secret: `${canary}-secret`, identity: canary } } : {}
    const { id = '' } = await sent(call, 'POST', `/${domain}/${type}s`, {
      name,
      metadata,
      tags: [canary],
      ...credentials,
    })
    vault[type] = id
    const role = await sent(call, 'POST', `/${domain}/${type}s/${id}/roles`, {
      role_name: name,
      optional_actions: ['read'],
    })
    vault[`role of ${type}`] = role['role_id'] ?? ''
  }
  const role = await sent(call, 'POST', `/domains/${domain}/roles`, { role_name: name, optional_actions: ['read'] })
  vault['role of domain'] = role['role_id'] ?? ''
  vault['pat'] = (await sent(call, 'POST', '/pats', { name, description: canary, duration: '24h' }))['id'] ?? ''
  vault['key'] = (await sent(call, 'POST', '/keys', { type: 3, duration: 3600 }))['id'] ?? ''
  return vault
}
