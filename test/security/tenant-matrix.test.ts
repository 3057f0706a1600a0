/**
 * Every operation of the route table, asked by another tenant with what exists: bodies are valid, so that the refusal is that of
 * the authorization and not of the schema; and the answer is that for what does not exist, letter by letter.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { rowsOf } from '../matrix/rows.ts'

const DEADLINE_MS = 600_000
/** 422: the call is in a domain of the caller, and its body names what is not in it (contract 2.6, decision 31b). */
const REFUSALS: ReadonlySet<number> = new Set([403, 404, 422])
/** Their answer does not end. */
const STREAMS = /\/(events|live)$/

type Json = Record<string, unknown>
type Answer = { status: number; text: string }
/** Ids of what a tenant has, by the name of the parameter that takes them. */
type Ids = Readonly<Record<string, string>>

let database: TestDatabase
let full: FullApp
let stranger: string
let foreign: Ids
beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  const owner = await newUser('owner')
  stranger = (await newUser('stranger')).token
  await made(stranger, 'POST', '/domains', { name: 'own' })
  foreign = await furnish(owner)
})
afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function send(token: string | undefined, method: string, url: string, body?: unknown): Promise<Answer> {
  const response = await full.app.inject({
    method: method as 'GET',
    url,
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { payload: body as object }),
    payloadAsStream: true,
  })
  if (STREAMS.test(url.split('?', 1)[0] ?? '') && response.statusCode === 200) {
    response.stream().destroy()
    return { status: 200, text: '' }
  }
  const text = await new Response(response.stream() as unknown as ReadableStream).text()
  return { status: response.statusCode, text }
}

async function made(token: string | undefined, method: string, url: string, body?: unknown): Promise<Json> {
  const { status, text } = await send(token, method, url, body)
  expect(status, `${method} ${url}: ${text}`).toBeLessThan(300)
  return text === '' ? {} : (JSON.parse(text) as Json)
}

async function newUser(name: string): Promise<{ id: string; token: string }> {
  const secret = `secret-of-${name}`
  const user = {
    first_name: name,
    last_name: name,
    email: `${name}@example.com`,
    credentials: { username: name, secret },
  }
  const { id } = await made(undefined, 'POST', '/users', user)
  const { access_token: token } = await made(undefined, 'POST', '/users/tokens/issue', { identity: name, secret })
  return { id: String(id), token: String(token) }
}

/** One of everything that an operation can name. */
async function furnish({ id: userId, token }: { id: string; token: string }): Promise<Ids> {
  const make = async (url: string, body?: unknown) => await made(token, 'POST', url, body)
  const domain = String((await make('/domains', { name: 'theirs', route: 'theirs' }))['id'])
  const [client, channel, group] = [
    String((await make(`/${domain}/clients`, { name: 'foreign-thing' }))['id']),
    String((await make(`/${domain}/channels`, { name: 'foreign-thing' }))['id']),
    String((await make(`/${domain}/groups`, { name: 'foreign-thing' }))['id']),
  ]
  await make(`/domains/${domain}/roles`, { role_name: 'foreign-role' })
  const role = await roleOf(domain)
  const profile = await make(`/${domain}/clients/bootstrap/profiles`, {
    name: 'foreign-profile',
    content_format: 'json',
    content_template: '{}',
  })
  const configured = {
    external_id: 'foreign-device',
    external_key: 'a-key-of-the-factory',
    client_id: client,
    channels: [channel],
  }
  await make(`/${domain}/clients/configs`, configured)
  const certificate = await make(`/${domain}/certs/issue/${client}`, { ttl: '1h' })
  const subscription = await make('/subscriptions', {
    topic: `m/${domain}/c/${channel}`,
    contact: 'foreign@example.com',
  })
  const key = await make('/keys', { type: 3, duration: 3600 })
  const pat = await make('/pats', { name: 'foreign-token', duration: '24h' })
  const task = await make('/tasks', { name: 'foreign-task', domain_id: domain })
  const workflow = await make('/workflows', { name: 'foreign-flow', domain_id: domain, tasks: [{ name: 'step' }] })
  const worker = newId()
  await sql`
    INSERT INTO workers (id, name, domain_id, domain_key, boot_id, version, labels, os, arch, cpu_cores, memory_bytes, slots, backlog,
      runtimes, secret_hash, session_epoch, lease_until, last_alive_at, alive_history)
    SELECT ${worker}::uuid, 'foreign-worker', d.id, d.key, 'boot', '1', '{}', 'linux', 'x64', 1, 1, 1, 0, '{}', '\\x00', 1, now(), now(), '{}'
      FROM domains d WHERE d.id = ${domain}`.execute(database.database.db)
  return {
    domain_id: domain,
    client_id: client,
    channel_id: channel,
    group_id: group,
    other_group: String((await make(`/${domain}/groups`, { name: 'foreign-thing' }))['id']),
    role_id: role,
    user_id: userId,
    profile_id: String(profile['id']),
    config_id: client,
    serial: String(certificate['serial_number']),
    subscription_id: String(subscription['id']),
    key_id: String(key['id']),
    pat_id: String(pat['id']),
    task_id: String(task['id']),
    workflow_id: String(workflow['id']),
    job_id: String(workflow['id']),
    worker_id: worker,
    proplet_id: worker,
    run_id: newId(),
    digest: `sha256:${'a'.repeat(64)}`,
  }
}

async function roleOf(domain: string): Promise<string> {
  const { rows } = await sql<{ id: string }>`SELECT r.id FROM roles r JOIN domains d ON d.key = r.domain_key
    WHERE d.id = ${domain} AND r.name = 'foreign-role'`.execute(database.database.db)
  return rows[0]?.id ?? ''
}

/** The same names for what nobody has. */
function unknownIds(): Ids {
  return Object.fromEntries(
    Object.entries(foreign).map(([name, id]) => [
      name,
      name === 'digest'
        ? `sha256:${'b'.repeat(64)}`
        : id
            .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, newId())
            .replace(/(?<=^(?:domain_)?)[0-9A-Za-z]{20,32}$/, (text) => Array.from(text).toReversed().join('')),
    ]),
  )
}

/** A valid value of a schema, with ids where its names ask for some. */
function sample(schema: Json, name: string, ids: Ids): unknown {
  const single = name
    .replace(/s$/, '')
    .replace(/_ids$/, '_id')
    .replace(/^(member|child|children|parent|subject)_id$/, 'group_id')
  const known = ids[name] ?? ids[single] ?? (name === 'members' || name === 'member_ids' ? ids['user_id'] : undefined)
  if (Array.isArray(schema['enum'])) return (schema['enum'] as unknown[]).find((one) => one !== '')
  if (schema['const'] !== undefined) return schema['const']
  const variants = (schema['anyOf'] ?? schema['oneOf']) as Json[] | undefined
  if (variants !== undefined) return sample(variants.find((one) => one['type'] !== 'null') ?? {}, name, ids)
  switch (schema['type']) {
    case 'object': {
      const properties = (schema['properties'] ?? {}) as Record<string, Json>
      const required = new Set((schema['required'] ?? []) as string[])
      const wanted = Object.entries(properties).filter(([key]) => required.has(key) || /_ids?$/.test(key))
      return Object.fromEntries(wanted.map(([key, value]) => [key, sample(value, key, ids)]))
    }
    case 'array':
      return [sample((schema['items'] ?? {}) as Json, name, ids)]
    case 'integer':
    case 'number':
      return schema['minimum'] ?? 1
    case 'boolean':
      return true
    case 'string':
      return known ?? 'sample-of-a-text'
    default:
      return known ?? 'sample'
  }
}

type Operation = {
  method: string
  url: string
  label: string
  schema: Json
  request(ids: Ids): { url: string; body?: unknown }
}

const isOfManager = (url: string) => /^\/(tasks|runs|workers|proplets|workflows|jobs|modules)(\/|$)/.test(url)

/** Bodies whose meaning no schema tells; the rest comes from the schema, or from the access matrix. */
const BODIES: Readonly<Record<string, (ids: Ids) => unknown>> = {
  'POST /tasks/:task_id/invoke-many': () => ({ inputs: [[1]] }),
  'POST /tasks/:task_id/replay': (ids) => ({ channel_id: ids['channel_id'], from: 1, to: 2 }),
  'POST /tasks': (ids) => ({ name: 'x', domain_id: ids['domain_id'] }),
  'POST /workflows': (ids) => ({ name: 'x', domain_id: ids['domain_id'], tasks: [{ name: 'step' }] }),
  'POST /jobs': (ids) => ({ name: 'x', domain_id: ids['domain_id'], tasks: [{ name: 'step' }] }),
  'POST /publish': (ids) => ({ topic: `m/${ids['domain_id']}/c/${ids['channel_id']}`, payload: 'x' }),
  'POST /workers/tokens': (ids) => ({ domain_id: ids['domain_id'] }),
  'POST /modules': (ids) => ({ reference: 'example.com/a:1', domain_id: ids['domain_id'] }),
  'PUT /modules/policy': () => ({ signatures: 'off', keys: [] }),
  'POST /subscriptions': (ids) => ({
    topic: `m/${ids['domain_id']}/c/${ids['channel_id']}`,
    contact: 'stranger@example.com',
  }),
  'POST /:domain_id/clients/bootstrap/profiles': () => ({ name: 'x', content_format: 'json', content_template: '{}' }),
  'PUT /tasks/:task_id': () => ({ inputs: [1] }),
  'PATCH /pats/:pat_id/secret/reset': () => ({ duration: '1h' }),
  'POST /invitations': (ids) => ({ user_id: ids['user_id'], domain_id: ids['domain_id'], relation: 'member' }),
}
/** What names a domain in its query. */
const QUERIES: Readonly<Record<string, (ids: Ids) => string>> = {
  'GET /runs': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /tasks': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /workflows': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /modules': (ids) => `?domain_id=${ids['domain_id']}`,
  'GET /modules/policy': (ids) => `?domain_id=${ids['domain_id']}`,
  'PUT /modules/policy': (ids) => `?domain_id=${ids['domain_id']}`,
  'POST /modules/inspect': (ids) => `?domain_id=${ids['domain_id']}`,
  'PUT /modules': (ids) => `?reference=example.com/a:1&domain_id=${ids['domain_id']}`,
  'DELETE /modules/:digest': (ids) => `?domain_id=${ids['domain_id']}`,
}

/** Every user who is logged in can find users; strangers.test.ts and the matrix of accounts test what is shown of them. */
const isAboutUsers = (url: string) => /^\/(users|journal\/user)\//.test(url)

function operations(): Operation[] {
  return full.routes
    .filter(({ url, config }) => (config?.action !== undefined || isOfManager(url)) && !isAboutUsers(url))
    .flatMap((route) => [route.method].flat().map((method) => ({ ...route, method })))
    .flatMap(({ method, url, schema, config }): Operation[] => {
      const label = `${method} ${url}`
      const own = BODIES[label]
      const known = { method, url, label, schema: (schema?.body ?? {}) as Json }
      if (!isOfManager(url) && own === undefined && /:(domain|client|channel|group)_id|^\/(dis)?connect/.test(url))
        return rowsOf({ method, url, action: config?.action }).map((row) => ({
          ...known,
          label: row.label,
          request: (ids) => {
            const asked = row.request(furniture(ids), people(ids))
            return { ...asked, url: fill(asked.url, ids) }
          },
        }))
      return [
        {
          ...known,
          request(ids) {
            const body = own?.(ids) ?? (schema?.body === undefined ? undefined : sample(schema.body as Json, '', ids))
            return {
              url: `${fill(url, ids)}${QUERIES[label]?.(ids) ?? ''}`,
              ...(body === undefined || body === 'sample' ? {} : { body }),
            }
          },
        },
      ]
    })
}

const fill = (url: string, ids: Ids) => url.replaceAll(/:([a-z_]+)/g, (whole, name: string) => ids[name] ?? whole)

function furniture(ids: Ids) {
  const thing = (type: string, id: string | undefined) => ({ type, key: 0, id: id ?? '' })
  const [group, other] = [thing('group', ids['group_id']), thing('group', ids['other_group'])]
  const role = ids['role_id'] ?? ''
  return {
    domain: thing('domain', ids['domain_id']),
    client: thing('client', ids['client_id']),
    channel: thing('channel', ids['channel_id']),
    group,
    parent: other,
    child: other,
    other,
    roles: { domain: role, client: role, channel: role, group: role },
  } as Parameters<ReturnType<typeof rowsOf>[number]['request']>[0]
}
const people = (ids: Ids) => ({
  bystander: ids['user_id'] ?? '',
  leaver: ids['user_id'] ?? '',
  outsider: ids['user_id'] ?? '',
})

/** The answer without the ids that the call named. */
function bare({ status, text }: Answer, ids: Ids): string {
  const named = Object.values(ids).toSorted((one, other) => other.length - one.length)
  return `${status} ${named.reduce((rest, id) => rest.replaceAll(id, '<id>'), text)}`
}

const isNamed = (operation: Operation) => {
  const { url, body } = operation.request(foreign)
  const asked = `${url} ${JSON.stringify(body ?? '')}`
  return Object.values(foreign).some((id) => asked.includes(id))
}

test(
  'no operation shows or changes anything of another tenant, and existing and missing entities are refused alike',
  async () => {
    const faults: string[] = []
    const asked = operations().filter(isNamed)
    const before = await written()
    for (const operation of asked) {
      const nobodys = unknownIds()
      const [there, nowhere] = [operation.request(foreign), operation.request(nobodys)]
      const one = await send(stranger, operation.method, there.url, there.body)
      const other = await send(stranger, operation.method, nowhere.url, nowhere.body)
      if (!REFUSALS.has(one.status)) faults.push(`${operation.label}: ${one.status} ${one.text.slice(0, 200)}`)
      else if (bare(one, foreign) !== bare(other, nobodys))
        faults.push(`${operation.label} tells: ${bare(one, foreign)} but ${bare(other, nobodys)}`)
      if (/foreign-|owner@/.test(one.text)) faults.push(`${operation.label} shows: ${one.text.slice(0, 200)}`)
    }
    expect(faults).toEqual([])
    expect(asked.length).toBeGreaterThan(250)
    expect(await written()).toBe(before)
  },
  DEADLINE_MS,
)

/** How often something was written in the domain, and by its owner. */
async function written(): Promise<number> {
  const { rows } = await sql<{ count: number }>`SELECT count(*)::int AS count FROM journal j
    WHERE j.domain_key = (SELECT key FROM domains WHERE id = ${foreign['domain_id']})`.execute(database.database.db)
  return rows[0]?.count ?? 0
}
