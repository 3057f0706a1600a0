/**
 * Listings over HTTP with a million clients in a hundred domains, 600,000 of them in one: for its administrator, for a member
 * with a role on a group twenty levels up, for a member with 20,000 direct grants, and for one who administers 20,000 groups. A
 * page is measured with its total known, and the first total by itself. `BENCH_DATA_DIR` names a folder that keeps the data for the next run.
 */
import type pg from 'pg'
import { IDENTITY_SETTINGS, startApi } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import { GROUND_SETTINGS, startGround } from '#core/ground/index.ts'
import { createHttpApp, createMetrics } from '#core/http/index.ts'
import type { HttpApp } from '#core/http/index.ts'
import { newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { createLifecycle } from '#core/lifecycle.ts'
import { createLogger } from '#core/logging/index.ts'
import { sealSecret } from '../api/devices/client-secrets.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const CLIENTS = Number(process.env['BENCH_CLIENTS'] ?? 1_000_000)
const LARGEST = Math.floor(CLIENTS * 0.6)
const OTHER_DOMAINS = 99
const CHANNELS = Math.floor(CLIENTS / 5)
const LEVELS = 20
const CHAINS = 50
const DIRECT = 20_000
const CLIENTS_PER_STATEMENT = 20_000
const SECRET = 'secret-of-the-bench'
const ROUTE = 'largest'
const USERS = { owner: 'owner', grouped: 'grouped', direct: 'direct', flat: 'flat' } as const
const REPEATS = 60
const TARGET_PAGE_MS = 20
const TARGET_TOTAL_MS = 300
const TARGET_DEEP_MS = 50

type Caller = { name: string; token: string }
type World = { app: HttpApp; domainId: string; callers: Caller[]; groupId: string; channelId: string; clientId: string }

export async function benchListing(): Promise<void> {
  const kept = process.env['BENCH_DATA_DIR']
  const dataDir = kept ?? newDataDir()
  const logger = createLogger({ name: 'bench', level: 'error' })
  const life = createLifecycle(logger)
  try {
    const environment = {
      SKEIN_DATA_DIR: dataDir,
      SKEIN_ADMIN_SECRET: SECRET,
      SKEIN_USERS_UNIQUE_NAMES: 'false',
    }
    const config = readConfig({ ...GROUND_SETTINGS, ...IDENTITY_SETTINGS }, environment)
    const ground = await startGround(life, { config, logger, kind: 'bench', maxConnections: 8 })
    const api = await startApi(life, { ground, config })
    const app = createHttpApp({
      logger,
      health: { build: ground.build, metrics: createMetrics(), serviceOf: () => 'bench' },
      maxBodyBytes: 1024 * 1024,
      corsOrigins: [],
      trustProxy: [],
      authenticate: api.authenticate,
    })
    await api.routes(app)
    await app.ready()
    const client = await ground.database.dedicated('bench')
    await client.query('SET statement_timeout = 0')
    const { rowCount: isFilled } = await client.query(`SELECT 1 FROM domains WHERE route = $1`, [ROUTE])
    if (isFilled === 0) {
      await fill(app, client, ground.keyring)
      await client.query('VACUUM ANALYZE')
      await client.query('CHECKPOINT')
    }
    const world = await enter(app, client)
    await client.end()
    const rows: Row[] = []
    for (const caller of world.callers) await measure(world, caller, rows)
    printTable(
      `Listings among ${CLIENTS.toLocaleString('en')} clients, ${LARGEST.toLocaleString('en')} in the domain`,
      rows,
    )
    await app.close()
  } finally {
    await life.stop()
    if (kept === undefined) removeDataDir(dataDir)
  }
}

async function call<T>(
  app: HttpApp,
  method: 'GET' | 'POST',
  url: string,
  token?: string,
  payload?: object,
): Promise<T> {
  const response = await app.inject({
    method,
    url,
    ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
    ...(payload === undefined ? {} : { payload }),
  })
  if (response.statusCode >= 300) throw new Error(`${method} ${url}: ${response.statusCode} ${response.body}`)
  return (response.body === '' ? undefined : response.json()) as T
}

async function logIn(app: HttpApp, username: string): Promise<string> {
  const tokens = await call<{ access_token: string }>(app, 'POST', '/users/tokens/issue', undefined, {
    username,
    password: SECRET,
  })
  return tokens.access_token
}

async function newUser(app: HttpApp, username: string): Promise<string> {
  const { id } = await call<{ id: string }>(app, 'POST', '/users', undefined, {
    first_name: username,
    last_name: username,
    email: `${username}@example.com`,
    credentials: { username, secret: SECRET },
  })
  return id
}

async function fill(app: HttpApp, client: pg.Client, keyring: Keyring): Promise<void> {
  await newUser(app, USERS.owner)
  const [groupedId, directId] = [await newUser(app, USERS.grouped), await newUser(app, USERS.direct)]
  const flatId = await newUser(app, USERS.flat)
  const domain = await call<{ id: string }>(app, 'POST', '/domains', await logIn(app, USERS.owner), {
    name: ROUTE,
    alias: ROUTE,
  })
  await client.query(
    `INSERT INTO domains (id, name, route) SELECT gen_random_uuid(), 'other ' || n, 'other-' || n FROM generate_series(1, ${OTHER_DOMAINS}) n`,
  )
  const key = async (text: string, values: unknown[] = []) =>
    Number(((await client.query<{ key: number }>(text, values)).rows[0] as { key: number }).key)
  const domainKey = await key('SELECT key FROM domains WHERE id = $1', [domain.id])
  await client.query(
    `WITH RECURSIVE made AS (
       INSERT INTO groups (domain_key, id, name) SELECT $1, gen_random_uuid(), 'group ' || n FROM generate_series(1, $2::int) n RETURNING key, name)
     SELECT count(*) FROM made`,
    [domainKey, LEVELS * CHAINS],
  )
  // Chains of groups, twenty levels deep, and the closure of them.
  await client.query(
    `WITH placed AS (SELECT key, (row_number() OVER (ORDER BY key) - 1) / ${LEVELS} AS chain, (row_number() OVER (ORDER BY key) - 1) % ${LEVELS} AS level
                       FROM groups WHERE domain_key = $1), closed AS (
       INSERT INTO group_closure (ancestor_key, descendant_key, depth)
       SELECT a.key, d.key, d.level - a.level FROM placed a JOIN placed d ON d.chain = a.chain AND d.level >= a.level)
     UPDATE groups g SET parent_key = p.key FROM placed me JOIN placed p ON p.chain = me.chain AND p.level = me.level - 1 WHERE g.key = me.key`,
    [domainKey],
  )
  await client.query(
    `WITH made AS (INSERT INTO groups (domain_key, id, name) SELECT $1, gen_random_uuid(), 'flat ' || n FROM generate_series(1, ${DIRECT}) n RETURNING key)
     INSERT INTO group_closure (ancestor_key, descendant_key, depth) SELECT key, key, 0 FROM made`,
    [domainKey],
  )
  const otherKeys = (
    await client.query<{ key: string }>(`SELECT key FROM domains WHERE route LIKE 'other-%' ORDER BY key`)
  ).rows
  for (let first = 1; first <= CLIENTS; first += CLIENTS_PER_STATEMENT) {
    const numbers = Array.from(
      { length: Math.min(CLIENTS_PER_STATEMENT, CLIENTS - first + 1) },
      (_, index) => first + index,
    )
    const ids = numbers.map(() => newId())
    const domainKeys = numbers.map((n) => (n <= LARGEST ? domainKey : Number(otherKeys[n % OTHER_DOMAINS]?.key)))
    const sealed = numbers.map((n, index) =>
      sealSecret(keyring, domainKeys[index] as number, ids[index] as string, `secret ${n}`),
    )
    await client.query(
      `INSERT INTO clients (domain_key, id, name, tags, metadata, secret_mac, secret_sealed, status, parent_group_key, created_at)
       SELECT d, id, 'device ' || md5(n::text), ARRAY['tag' || n % 1000, 'kind' || n % 7],
              jsonb_build_object('serial', n, 'model', 'm' || n % 500), sha256(int4send(n)), sealed,
              CASE WHEN n % 20 = 0 THEN 'disabled' ELSE 'enabled' END,
              CASE WHEN n <= ${LARGEST} AND n % 2 = 0 THEN g.keys[1 + n % ${LEVELS * CHAINS}]
                   WHEN n <= ${LARGEST} AND n % 3 = 0 THEN g.keys[1 + ${LEVELS * CHAINS} + n % ${DIRECT}] END, now() - make_interval(secs => ${CLIENTS} - n)
         FROM unnest($2::int[], $3::bigint[], $4::uuid[], $5::bytea[]) row(n, d, id, sealed),
              (SELECT array_agg(key ORDER BY key) AS keys FROM groups WHERE domain_key = $1) g`,
      [domainKey, numbers, domainKeys, ids, sealed],
    )
  }
  await client.query(
    `INSERT INTO channels (domain_key, id, name) SELECT $1, gen_random_uuid(), 'channel ' || n FROM generate_series(1, ${CHANNELS}) n`,
    [domainKey],
  )
  await client.query(
    `INSERT INTO connections (client_key, channel_key, domain_key, types)
     SELECT DISTINCT ON (c.key, h.key) c.key, h.key, $1, 3
       FROM (SELECT key, row_number() OVER () AS n FROM clients WHERE domain_key = $1) c
       JOIN (SELECT key, row_number() OVER () AS n FROM channels WHERE domain_key = $1) h ON h.n = 1 + c.n % ${CHANNELS}`,
    [domainKey],
  )
  const userKey = (id: string) => key('SELECT key FROM users WHERE id = $1', [id])
  const [groupedKey, directKey] = [await userKey(groupedId), await userKey(directId)]
  const flatKey = await userKey(flatId)
  const role = (type: string, entityKey: number, actions: string) =>
    key(
      `INSERT INTO roles (id, entity_type, domain_key, entity_key, name, actions) VALUES (gen_random_uuid()::text, $1, $2, $3, 'bench', $4) RETURNING key`,
      [type, domainKey, entityKey, actions],
    )
  const domainRole = await role('domain', domainKey, '{read}')
  const topKey = await key('SELECT min(key) AS key FROM groups WHERE domain_key = $1 AND parent_key IS NULL', [
    domainKey,
  ])
  const groupRole = await role('group', topKey, '{subgroup_client_read}')
  await client.query(
    `INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
     VALUES ($1, 'domain', $3, $3, $4), ($2, 'domain', $3, $3, $4), ($7, 'domain', $3, $3, $4), ($1, 'group', $3, $5, $6)`,
    [groupedKey, directKey, domainKey, domainRole, topKey, groupRole, flatKey],
  )
  await client.query(
    `INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
     SELECT $1, 'client', $2, key FROM (SELECT key FROM clients WHERE domain_key = $2 ORDER BY sha256(int8send(key)) LIMIT ${DIRECT}) c`,
    [directKey, domainKey],
  )
  await client.query(
    `INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
     SELECT $1, 'group', $2, key FROM groups WHERE domain_key = $2 AND name LIKE 'flat %'`,
    [flatKey, domainKey],
  )
}

/** The world as it stands in the database, with everybody logged in. */
async function enter(app: HttpApp, client: pg.Client): Promise<World> {
  const found = await client.query<{ key: string; id: string }>('SELECT key, id FROM domains WHERE route = $1', [ROUTE])
  const domain = found.rows[0] as { key: string; id: string }
  const id = async (text: string) =>
    ((await client.query<{ id: string }>(text, [domain.key])).rows[0] as { id: string }).id
  return {
    app,
    domainId: domain.id,
    callers: [
      { name: 'administrator', token: await logIn(app, USERS.owner) },
      { name: 'member through groups', token: await logIn(app, USERS.grouped) },
      { name: `member with ${DIRECT.toLocaleString('en')} grants`, token: await logIn(app, USERS.direct) },
      { name: `administrator of ${DIRECT.toLocaleString('en')} groups`, token: await logIn(app, USERS.flat) },
    ],
    groupId: await id('SELECT id FROM groups WHERE domain_key = $1 ORDER BY key LIMIT 1 OFFSET 5'),
    channelId: await id('SELECT id FROM channels WHERE domain_key = $1 ORDER BY key LIMIT 1 OFFSET 5'),
    clientId: await id('SELECT id FROM clients WHERE domain_key = $1 ORDER BY key LIMIT 1 OFFSET 5'),
  }
}

async function measure(world: World, caller: Caller, rows: Row[]): Promise<void> {
  const { app, domainId, groupId, channelId, clientId } = world
  const metadata = encodeURIComponent('{"model":"m77"}')
  const onGroups: [string, string, number][] = [
    ['groups', '', TARGET_PAGE_MS],
    ['groups by name', 'order=name&limit=100', TARGET_PAGE_MS],
    ['groups, seen as roots', 'root_group=true', TARGET_PAGE_MS],
    ['groups, 5,000 deep', 'offset=5000', TARGET_DEEP_MS],
  ]
  const onClients: [string, string, number][] = [
    ['first page', '', TARGET_PAGE_MS],
    ['page of 100, newest first', 'limit=100&order=created_at&dir=desc', TARGET_PAGE_MS],
    ['by name', 'order=name', TARGET_PAGE_MS],
    ['any status', 'status=all', TARGET_PAGE_MS],
    ['disabled', 'status=disabled&order=created_at', TARGET_PAGE_MS],
    ['name contains', 'name=abcd', TARGET_PAGE_MS],
    ['tag', 'tag=tag77', TARGET_PAGE_MS],
    ['metadata', `metadata=${metadata}`, TARGET_PAGE_MS],
    ['of a group', `group=${groupId}`, TARGET_PAGE_MS],
    ['of a channel', `channel=${channelId}`, TARGET_PAGE_MS],
    ['by id', `id=${clientId}`, TARGET_PAGE_MS],
    ['access_type=direct', 'access_type=direct', TARGET_PAGE_MS],
    ['deep page', `offset=${Math.floor(LARGEST / 2)}`, TARGET_DEEP_MS],
    ['page 5,000 deep', 'offset=5000', TARGET_DEEP_MS],
  ]
  const cases = [
    ...onClients.map(([name, query, targetMs]) => ({ name, url: `/${domainId}/clients?${query}`, targetMs })),
    ...onGroups.map(([name, query, targetMs]) => ({ name, url: `/${domainId}/groups?${query}`, targetMs })),
  ]
  for (const { name, url, targetMs } of cases) {
    const timed = async () => {
      const began = performance.now()
      await call(app, 'GET', url, caller.token)
      return performance.now() - began
    }
    const firstMs = await timed()
    const times: number[] = []
    for (let round = 0; round < REPEATS; round++) times.push(await timed())
    const p99 = percentile(times, 0.99)
    rows.push({
      name: `${caller.name}: ${name}`,
      figure: `p50 ${milliseconds(median(times))}, p99 ${milliseconds(p99)}, with its first total ${milliseconds(firstMs)}`,
      target: `${milliseconds(targetMs)}, ${milliseconds(TARGET_TOTAL_MS)}`,
      isReached: p99 < targetMs && firstMs < TARGET_TOTAL_MS,
    })
  }
}
