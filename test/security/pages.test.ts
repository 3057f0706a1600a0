/**
 * Pages of listings are bounded (contract decision 79): at most 8 MiB, whatever their items hold, with a `limit` that says where the
 * next one begins. Every listing of the product is walked, so that a new one cannot be forgotten.
 */
import { createHash } from 'node:crypto'
import type { RouteOptions } from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { pageArrays } from '#http/answers/bounded-page.ts'
import { MAX_LISTED_RESULT_BYTES, MAX_PAGE_BYTES } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

/** Of each kind there are so many, each nearly as large as the body of a request may be: more than one page of them. */
const ITEMS = 10
const LARGE_BYTES = 950_000
const LARGE = 'x'.repeat(LARGE_BYTES)
/** Listings whose items cannot be large, by what a schema or a state machine says of them, or that are made empty here. */
const SMALL_ITEMS = [
  /\/roles?(\/|$)/,
  /^\/(:domain_id\/)?journal\//,
  /invitations/,
  /^\/(keys|pats)/,
  /^\/users\/(search|tokens)/,
  /subscriptions/,
  /\/consumers(\/|$)/,
  /\/alarms(\/|$)/,
  // One definition has at most a few expressions and templates of 4 KiB, one command 64 KiB and its result as much.
  /\/rules$/,
  /\/commands(\/|$)/,
  // One window has at most 100 ids of each kind.
  /\/maintenance-windows$/,
  // The keys of a state, without its values.
  /\/state$/,
  // At most 1,000 intervals of a series: test/messages has pages of many.
  /\/series$/,
  /certs|serials/,
  /sessions$/,
  /^\/workers$/,
  /^\/proplets(\/:proplet_id\/(alive-history|metrics))?$/,
]
/** Filters without which a listing is refused. */
const DAYS = { from: '1', to: '864001', interval: '24h', aggregation: 'AVG' }
const NEEDED: Readonly<Record<string, Record<string, string>>> = {
  '/users/search': { username: 'person' },
  '/m/:domain_id/c/:channel_id/series': DAYS,
  '/:domain_id/channels/:channel_id/messages/series': DAYS,
  '/channels/:channel_id/messages/series': DAYS,
}

type World = Record<'domain_id' | 'client_id' | 'channel_id' | 'group_id' | 'user_id' | 'task_id', string> & {
  proplet_id: string
  worker_id: string
  pat_id: string
  subscription_id: string
  consumer: string
  alarm_id: string
  rule_id: string
  window_id: string
}
type Answer = { status: number; bytes: number; body: Record<string, unknown> }

let database: TestDatabase
let full: FullApp
let token: string
let world: World

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  const login = { identity: FULL_APP_ADMIN.SKEIN_ADMIN_USERNAME, secret: FULL_APP_ADMIN.SKEIN_ADMIN_SECRET }
  token = `Bearer ${String((await call('POST', '/users/tokens/issue', login)).body['access_token'])}`
  world = await fill()
}, 240_000)

afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function call(
  method: 'GET' | 'POST' | 'PUT',
  url: string,
  payload?: object | string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await full.app.inject({
    method,
    url,
    headers: { authorization: token ?? '', ...headers },
    ...(payload === undefined ? {} : { payload }),
  })
  const isJson = String(response.headers['content-type']).startsWith('application/json')
  return {
    status: response.statusCode,
    bytes: response.rawPayload.length,
    body: isJson ? response.json<Record<string, unknown>>() : {},
  }
}

async function made(url: string, payload: object | string, headers?: Record<string, string>): Promise<Answer['body']> {
  const { status, body } = await call('POST', url, payload, headers)
  expect(status, `POST ${url}: ${JSON.stringify(body).slice(0, 500)}`).toBeLessThan(300)
  return body
}

const each = <T>(make: (index: number) => T): T[] => Array.from({ length: ITEMS }, (_, index) => make(index))
const idOf = (value: unknown) => String((value as { id: unknown }).id)

/** Large items of every kind that a caller can make large. */
async function fill(): Promise<World> {
  const userId = idOf((await call('GET', '/users/profile')).body)
  const domains: string[] = []
  for (const index of each((at) => at))
    domains.push(idOf(await made('/domains', { name: `plant ${index}`, route: `plant${index}`, metadata: { LARGE } })))
  const domainId = String(domains[0])
  const groups: string[] = []
  for (const index of each((at) => at)) {
    const parent = index === 0 ? {} : { parent_id: groups[0] }
    groups.push(
      idOf(await made(`/${domainId}/groups`, { name: `group ${index}`, metadata: { LARGE, index }, ...parent })),
    )
  }
  const inGroup = (index: number) => ({ metadata: { LARGE, index }, parent_group_id: groups[0] })
  const { clients } = (await made(
    `/${domainId}/clients/bulk`,
    each((index) => ({ name: `client ${index}`, ...inGroup(index) })),
  )) as { clients: { id: string; credentials: { secret: string } }[] }
  const { channels } = (await made(
    `/${domainId}/channels/bulk`,
    each((index) => ({ name: `channel ${index}`, ...inGroup(index) })),
  )) as { channels: { id: string }[] }
  const [clientIds, channelIds] = [clients.map(idOf), channels.map(idOf)]
  await made(`/${domainId}/channels/connect`, {
    client_ids: clientIds,
    channel_ids: channelIds,
    types: ['publish', 'subscribe'],
  })
  const [clientId, channelId] = [String(clientIds[0]), String(channelIds[0])]
  for (const index of each((at) => at)) {
    const user = await made('/users', {
      first_name: `Person ${index}`,
      last_name: `Number ${index}`,
      email: `person${index}@example.com`,
      credentials: { username: `person${index}`, secret: 'secret-of-person' },
      metadata: { LARGE },
    })
    for (const assigned of [`/domains/${domainId}/users/assign`, `/${domainId}/groups/${groups[0]}/users/assign`])
      await made(assigned, { user_ids: [idOf(user)], relation: 'member' })
  }
  const secret = { authorization: `Client ${clients[0]?.credentials.secret}` }
  for (const index of each((at) => at)) {
    const pack = JSON.stringify([{ n: `text-${index}`, vs: `${index} ${LARGE}` }])
    await made(`/m/${domainId}/c/${channelId}`, pack, { ...secret, 'content-type': 'application/senml+json' })
    const raw = { ...secret, 'content-type': 'application/octet-stream' }
    await made(`/m/${domainId}/c/${channelId}`, `${index} ${LARGE}`, raw)
  }
  const { db } = database.database
  await sql`INSERT INTO mqtt_retained (channel_key, subtopic, publisher_id, qos, payload)
    SELECT c.key, 'place' || n, '', 0, convert_to(${LARGE}, 'UTF8') FROM channels c, generate_series(1, ${ITEMS}::integer) n
     WHERE c.id = ${channelId}`.execute(db)
  for (let index = 0; index < 4 * ITEMS; index++) {
    await made(`/${domainId}/clients/bootstrap/profiles`, {
      name: `profile ${index}`,
      content_template: 'x'.repeat(250_000),
    })
  }
  for (const [index, id] of clientIds.entries()) {
    const config = { external_id: `device-${index}`, external_key: `external-key-of-device-${index}`, client_id: id }
    await made(`/${domainId}/clients/configs`, { ...config, channels: [channelId] })
  }
  const tasks: string[] = []
  for (const index of each((at) => at)) {
    const fields = { name: `task ${index}`, domain_id: domainId, metadata: { LARGE } }
    tasks.push(idOf(await made('/tasks', fields)))
    await made('/workflows', { ...fields, tasks: [{ name: 'first' }] })
  }
  await sql`INSERT INTO modules (digest, size_bytes, kind, runtime, exports, imports)
    SELECT 'sha256:' || encode(sha256(n::text::bytea), 'hex'), 8, 'core', 'core',
           jsonb_build_array(jsonb_build_object('name', ${LARGE}::text, 'kind', 'function', 'params', '[]'::jsonb, 'results', '[]'::jsonb)), '[]'
      FROM generate_series(1, ${ITEMS}::integer) n`.execute(db)
  await sql`UPDATE tasks t SET module_key = m.key FROM (SELECT key, row_number() OVER (ORDER BY key) AS n FROM modules) m,
      (SELECT key, row_number() OVER (ORDER BY key) AS n FROM tasks WHERE workflow_key IS NULL) one
    WHERE t.key = one.key AND one.n = m.n`.execute(db)
  // Runs as they end with results of every size: in the row, small or not, and in parts.
  await sql`INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, results, result_digest, result_bytes)
    SELECT gen_random_uuid(), t.key, false, 3, '{}', 'sha256:', '', 50,
           CASE WHEN n % 3 = 0 THEN '[1]'::json WHEN n % 3 = 1 THEN json_build_array(left(${LARGE}, 250000)) END,
           CASE WHEN n % 3 = 2 THEN 'sha256:staged' END, CASE WHEN n % 3 = 2 THEN 900000 END
      FROM tasks t, generate_series(1, 60) n WHERE t.id = ${tasks[0]}`.execute(db)
  const pat = await made('/pats', { name: 'a pat', duration: '24h' })
  // A mail needs a mail server; where messages are posted to is asked for with the first of them.
  const contact = 'https://hooks.example.com/skein'
  expect(await call('POST', '/subscriptions', { topic: channelId, contact })).toMatchObject({ status: 201 })
  const consumer = { name: 'large', channels: [channelId], from: 'earliest' }
  expect(await call('POST', `/${domainId}/consumers`, consumer)).toMatchObject({ status: 201 })
  const { subscriptions } = (await call('GET', '/subscriptions')).body as { subscriptions: unknown[] }
  const workerId = await newWorker()
  return {
    domain_id: domainId,
    client_id: clientId,
    channel_id: channelId,
    group_id: String(groups[0]),
    user_id: userId,
    task_id: String(tasks[0]),
    proplet_id: workerId,
    worker_id: workerId,
    pat_id: idOf(pat),
    subscription_id: idOf(subscriptions[0]),
    consumer: 'large',
    alarm_id: await newAlarm(domainId),
    rule_id: await newRule(domainId),
    window_id: await newWindow(domainId),
  }
}

async function newRule(domainId: string): Promise<string> {
  const body = { name: 'telling', source: { type: 'messages' }, condition: 'false' }
  const { body: made } = await call('POST', `/${domainId}/rules`, body)
  return String(made['id'])
}

async function newWindow(domainId: string): Promise<string> {
  const body = { name: 'planned', schedule: '0 3 * * 0', duration: '1h' }
  const { body: made } = await call('POST', `/${domainId}/maintenance-windows`, body)
  return String(made['id'])
}

async function newAlarm(domainId: string): Promise<string> {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO alarms (id, domain_key, rule_id, rule_name, series_digest, severity, first_at, last_at)
    SELECT gen_random_uuid(), key, gen_random_uuid(), 'rule', '\\x00', 'info', now(), now() FROM domains WHERE id = ${domainId}
    RETURNING id`.execute(database.database.db)
  return rows[0]?.id ?? ''
}

/** A worker that never ran. */
async function newWorker(): Promise<string> {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO workers (id, name, boot_id, version, labels, os, arch, cpu_cores, memory_bytes, slots, backlog,
      runtimes, secret_hash, session_epoch, lease_until, last_alive_at, alive_history)
    VALUES (gen_random_uuid(), 'worker', 'boot', '1', '{}', 'linux', 'x64', 1, 1, 1, 0, '{}', '\\x00', 1, now(), now(), '{}')
    RETURNING id`.execute(database.database.db)
  return rows[0]?.id ?? ''
}

const successOf = (route: RouteOptions) => (route.schema?.response as Record<string, unknown> | undefined)?.['200']
const arraysOf = (route: RouteOptions) => pageArrays(successOf(route))
const listings = () =>
  full.routes.filter((route) => [route.method].flat().includes('GET') && arraysOf(route).length > 0)

async function addressOf({ url }: RouteOptions): Promise<string> {
  const known: Record<string, string> = { ...world, entity_type: 'client', entity_id: world.client_id }
  const path = url.replaceAll(/:([a-z_]+)/g, (_, name: string) => known[name] ?? `:${name}`)
  if (!path.includes(':role_id')) return path
  const { body } = await call('GET', `${path.slice(0, path.indexOf('/:role_id'))}?limit=1`)
  return path.replace(':role_id', String((body['roles'] as { id: string }[])[0]?.id))
}

type Query = { properties?: Record<string, { maximum?: number; enum?: unknown[] }> }
const queryOf = (route: RouteOptions) => ((route.schema?.querystring ?? {}) as Query).properties ?? {}

/** What asks for as much as the listing gives at a time, of everything that it lists. */
function widest(route: RouteOptions): Record<string, string> {
  const { limit, status } = queryOf(route)
  return {
    limit: String(limit?.maximum ?? 100),
    ...(status?.enum?.includes('all') === true ? { status: 'all' } : {}),
    ...NEEDED[route.url],
  }
}

type Walked = { pages: number; items: number; total: number; distinct: number; largestBytes: number; faults: string[] }

/** All pages of a listing, each begun where the one before said that it ends. */
async function walk(route: RouteOptions, query: Record<string, string> = {}): Promise<Walked> {
  const path = await addressOf(route)
  const [name = ''] = arraysOf(route)
  const walked: Walked = { pages: 0, items: 0, total: 0, distinct: 0, largestBytes: 0, faults: [] }
  const seen = new Set<string>()
  for (let offset = 0; ;) {
    const asked = new URLSearchParams({ ...widest(route), ...query, offset: String(offset) })
    const { status, bytes, body } = await call('GET', `${path}?${asked.toString()}`)
    if (status !== 200) {
      walked.faults.push(`${status} ${JSON.stringify(body)}`)
      return walked
    }
    const items = body[name] as unknown[]
    const total = Number(body['total'])
    walked.pages += 1
    walked.total = total
    walked.items += items.length
    walked.largestBytes = Math.max(walked.largestBytes, bytes)
    for (const item of items) seen.add(createHash('sha256').update(JSON.stringify(item)).digest('base64'))
    walked.distinct = seen.size
    if (bytes > MAX_PAGE_BYTES) walked.faults.push(`${bytes} bytes at offset ${offset}`)
    const next = offset + Number(body['limit'])
    if (next >= total) return walked
    if (items.length === 0 || next !== offset + items.length) {
      walked.faults.push(`offset ${offset}: ${items.length} items and limit ${String(body['limit'])} of ${total}`)
      return walked
    }
    offset = next
  }
}

describe('every listing', () => {
  test('has pages of at most 8 MiB that give each item exactly once', async () => {
    const routes = listings()
    expect(routes.length).toBeGreaterThan(80)
    const faults: string[] = []
    const whole: string[] = []
    for (const route of routes) {
      const walked = await walk(route)
      const { items, total, distinct } = walked
      faults.push(...walked.faults.map((fault) => `GET ${route.url}: ${fault}`))
      if (items !== total || distinct !== total)
        faults.push(`GET ${route.url}: ${items} items, ${distinct} of them different, of ${total}`)
      if (walked.pages < 2 && !SMALL_ITEMS.some((pattern) => pattern.test(route.url))) whole.push(route.url)
    }
    expect(faults).toEqual([])
    // What is listed here has large items and was all on one page: its items are not as large as they may be, and prove nothing.
    expect(whole).toEqual(expectedWhole(routes))
  }, 240_000)

  test('of messages has such pages too: raw ones as well as records, in every order', async () => {
    const route = full.routes.find(({ url, method }) => url === '/m/:domain_id/c/:channel_id' && method === 'GET')
    const queries = [
      { format: 'raw' },
      { format: 'raw', dir: 'asc' },
      { dir: 'asc' },
      { order: 'name' },
      { order: 'value' },
    ]
    for (const query of queries) {
      const walked = await walk(route as RouteOptions, query as Record<string, string>)
      expect(walked, JSON.stringify(query)).toMatchObject({ faults: [], items: ITEMS, distinct: ITEMS })
      expect(walked.pages, JSON.stringify(query)).toBeGreaterThan(1)
    }
  })

  test('is paged, or is on the list here with its limit', () => {
    const isList = (schema: unknown): boolean => {
      const { type, anyOf, properties } = (schema ?? {}) as Record<string, unknown>
      if (type === 'array') return true
      if (Array.isArray(anyOf)) return anyOf.some(isList)
      return Object.values((properties ?? {}) as object).some((one: unknown) => {
        const { type: kind, items } = one as { type?: string; items?: { type?: string } }
        return kind === 'array' && items?.type === 'object'
      })
    }
    const others = full.routes.filter(
      (route) =>
        [route.method].flat().includes('GET') && arraysOf(route).length === 0 && isList(successOf(route) ?? undefined),
    )
    const unknown = others.filter(({ url }) => !BOUNDED_OTHERWISE.some(([pattern]) => pattern.test(url)))
    expect(unknown.map(({ url }) => url)).toEqual([])
  })
})

/** Lists that are no pages. */
const BOUNDED_OTHERWISE: readonly (readonly [RegExp, string])[] = [
  [/\/roles?(\/:role_id\/(actions|members))?$/, 'roles and their members in bare arrays, at most 100; actions are few'],
  [/\/consumers\/:consumer\/messages$/, 'at most 4 MiB, and one message more'],
  [/\/available-actions$/, 'a list of the product'],
  [/^\/health\/database$/, 'standbys and nodes, at most MAX_ROWS of infrastructure/diagnosis.ts'],
  [
    /^\/(:domain_id\/)?(clients|channels|groups)\/:[a-z]+_id$|^\/domains\/:domain_id$/,
    'roles of the caller on one entity',
  ],
  [/\/hierarchy$/, 'refused above 8 MiB'],
  [/\/iceberg\/v1\/namespaces\/:namespace\/tables$/, 'the one table of a domain'],
  [/\/desired-states$/, 'names of at most 33 documents'],
  [/^\/c\/:domain_id\/commands$/, 'at most 100 open commands of one device, with 1 MiB of payloads'],
  [/^\/:domain_id\/maintenance-windows\/:window_id$/, 'at most 100 ids of each kind in one window'],
  [/^\/:domain_id\/rules\/:rule_id(\/contacts)?$/, 'the channels, actions and at most 100 contacts of one rule'],
  [/\/(bootstrap|configs|enrollments)(\/|$)/, 'the channels of one device, or the bindings of one configuration'],
  [/^\/:domain_id\/access$/, 'roles that grant one action'],
  [/^\/(domains\/:domain_id|:domain_id)\/usage$/, 'days, at most a year'],
  [/^\/:domain_id\/overview$/, 'ten changes, ten sources of dead letters, and at most 96 steps of a series'],
  [/^\/:domain_id\/latest$/, 'one value of each of at most 100 clients, cut after 256 characters'],
  [/^\/:domain_id\/search$/, 'at most 50 of each type'],
  [/^\/keys\/\.well-known\/jwks\.json$/, 'signing keys of the installation'],
  [/^\/modules\/:digest$/, 'at most 100 uses of one module'],
  [/^\/(workflows\/:workflow_id|jobs\/:job_id)$/, 'tasks as many as 8 MiB hold'],
  [/^\/tasks\/:task_id(\/runs\/:run_id|\/placement)?$/, 'one task, one run, workers by name'],
  [/\/(ca|certs)/, 'one certificate'],
]

/** Listings with few of the large items of this world, and those that show of their items only what is small. */
function expectedWhole(routes: readonly RouteOptions[]): string[] {
  const reasons = [
    // One parent, the group of the channel, the owner of the entity.
    /\/parents$/,
    /\/channels\/:channel_id\/(groups|users)$/,
    /\/clients\/:client_id\/users$/,
    // Without their content, and few.
    /\/dashboards$/,
    // Without exports, and with results of at most 4 KiB.
    /^\/modules$/,
    /^\/(tasks\/:task_id\/)?runs$/,
    // Durations of runs.
    /^\/tasks\/:task_id\/metrics$/,
    // None here: test/tasks/dead-letters.test.ts has many.
    /^\/tasks\/:task_id\/dead-letters$/,
    // None here, either: they are listed as those of subscriptions are.
    /^\/:domain_id\/rules\/:rule_id\/dead-letters$/,
  ]
  return routes.map(({ url }) => url).filter((url) => reasons.some((pattern) => pattern.test(url)))
}

describe('a list', () => {
  test('of runs shows results up to 4 KiB and the size of longer ones; the run itself shows all', async () => {
    const { body } = await call('GET', `/tasks/${world.task_id}/runs?limit=100`)
    const runs = body['runs'] as { id: string; results: unknown; result_bytes?: number }[]
    expect(runs).toHaveLength(60)
    for (const { results, result_bytes: bytes } of runs)
      expect(results === null ? (bytes ?? 0) > MAX_LISTED_RESULT_BYTES : bytes === undefined).toBe(true)
    const long = runs.find(({ result_bytes: bytes }) => bytes !== undefined && bytes < 900_000)
    const one = await call('GET', `/tasks/${world.task_id}/runs/${long?.id}`)
    expect(JSON.stringify(one.body['results'])).toHaveLength(250_004)
  })

  test('of tasks, of the tasks of a workflow and of modules has no exports and imports; the task and the module have', async () => {
    const { body } = await call('GET', '/tasks?limit=100&name=task')
    const [first] = body['tasks'] as { id: string; module: object }[]
    expect(Object.keys(first?.module ?? {}).toSorted()).toEqual(['digest', 'kind', 'size'])
    const one = (await call('GET', `/tasks/${first?.id}`)).body['module'] as {
      exports: { name: string }[]
      digest: string
    }
    expect(one.exports[0]?.name).toHaveLength(LARGE_BYTES)
    const modules = (await call('GET', '/modules?limit=100')).body['modules'] as object[]
    expect(modules).toHaveLength(ITEMS)
    expect(modules.filter((module) => 'exports' in module)).toEqual([])
    const module = (await call('GET', `/modules/${one.digest}`)).body as { exports: { name: string }[] }
    expect(module.exports[0]?.name).toHaveLength(LARGE_BYTES)
  })
})

test('ten concurrent lists of large items use no more memory than ten pages', async () => {
  const url = `/${world.domain_id}/clients?limit=100&status=all`
  await call('GET', url)
  const before = process.memoryUsage().rss
  let peak = before
  const sampling = setInterval(() => (peak = Math.max(peak, process.memoryUsage().rss)), 5)
  const answers = await Promise.all(each(() => call('GET', url)))
  clearInterval(sampling)
  expect(answers.map(({ status }) => status)).toEqual(each(() => 200))
  for (const { bytes } of answers) expect(bytes).toBeLessThanOrEqual(MAX_PAGE_BYTES)
  // The rows of a page, what is read of them, the items, their text, and the test's own copy of it.
  expect(peak - before).toBeLessThan(ITEMS * 8 * MAX_PAGE_BYTES)
})
