/** A domain of a million clients and ninety-nine small ones, with a caller for each way of reaching them. */
import type pg from 'pg'
import type { HttpApp } from '#http/index.ts'
import { newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { sealSecret } from '../../api/devices/secrets/index.ts'

/** Clients of the large domain. */
export const LARGEST = Number(process.env['BENCH_CLIENTS'] ?? 1_000_000)
const OTHER_DOMAINS = 99
/** Clients of all domains together. */
const CLIENTS = Math.floor(LARGEST * 1.1)
export const CHANNELS = Math.floor(LARGEST / 5)
export const SECRET = 'secret-of-the-bench'
const LEVELS = 20
const CHAINS = 50
const DIRECT = 20_000
const CLIENTS_PER_STATEMENT = 20_000
const ROUTE = 'largest'
const USERS = { owner: 'owner', direct: 'direct', flat: 'flat', everywhere: 'everywhere' } as const

export type Caller = {
  name: string
  token: string
  kind: 'administrator' | 'member' | 'everywhere'
  /** How many enabled clients a listing shows them. */
  reached: number
}
export type World = {
  app: HttpApp
  domainId: string
  callers: Caller[]
  userId: string
  groupId: string
  channelId: string
  clientId: string
}

export async function call<T>(
  app: HttpApp,
  method: 'GET' | 'POST' | 'PATCH',
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

/** Creates everything; PostgreSQL has not vacuumed or analysed it yet. */
export async function fill(app: HttpApp, client: pg.Client, keyring: Keyring): Promise<void> {
  await newUser(app, USERS.owner)
  const directId = await newUser(app, USERS.direct)
  const flatId = await newUser(app, USERS.flat)
  const everywhereId = await newUser(app, USERS.everywhere)
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
              CASE WHEN n % 19 = 0 THEN 'disabled' ELSE 'enabled' END,
              CASE WHEN n <= ${LARGEST} AND n % 2 = 0 THEN g.keys[1 + n % ${LEVELS * CHAINS}]
                   WHEN n <= ${LARGEST} AND n % 3 = 0 THEN g.keys[1 + ${LEVELS * CHAINS} + n % ${DIRECT}] END, now() - make_interval(secs => ${CLIENTS} - n)
         FROM unnest($2::int[], $3::bigint[], $4::uuid[], $5::bytea[]) row(n, d, id, sealed),
              (SELECT array_agg(key ORDER BY key) AS keys FROM groups WHERE domain_key = $1) g`,
      [domainKey, numbers, domainKeys, ids, sealed],
    )
  }
  await client.query(
    `INSERT INTO channels (domain_key, id, name, tags, parent_group_key)
     SELECT $1, gen_random_uuid(), 'channel ' || n, ARRAY['tag' || n % 1000],
            CASE WHEN n % 2 = 0 THEN g.keys[1 + n % ${LEVELS * CHAINS}] WHEN n % 3 = 0 THEN g.keys[1 + ${LEVELS * CHAINS} + n % ${DIRECT}] END
       FROM generate_series(1, ${CHANNELS}) n,
            (SELECT array_agg(key ORDER BY key) AS keys FROM groups WHERE domain_key = $1) g`,
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
  const directKey = await userKey(directId)
  const flatKey = await userKey(flatId)
  const everywhereKey = await userKey(everywhereId)
  const role = (type: string, entityKey: number, actions: string) =>
    key(
      `INSERT INTO roles (id, entity_type, domain_key, entity_key, name, actions) VALUES (gen_random_uuid()::text, $1, $2, $3, 'bench', $4) RETURNING key`,
      [type, domainKey, entityKey, actions],
    )
  const domainRole = await role('domain', domainKey, '{read}')
  const topKey = await key('SELECT min(key) AS key FROM groups WHERE domain_key = $1 AND parent_key IS NULL', [
    domainKey,
  ])
  const groupRole = await role('group', topKey, '{subgroup_client_read,subgroup_channel_read}')
  await client.query(
    `INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
     VALUES ($1, 'domain', $4, $4, $5), ($2, 'domain', $4, $4, $5), ($3, 'domain', $4, $4, $5), ($3, 'group', $4, $6, $7)`,
    [directKey, flatKey, everywhereKey, domainKey, domainRole, topKey, groupRole],
  )
  await client.query(
    `INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
     SELECT $1, 'domain', key, key FROM domains WHERE route LIKE 'other-%'`,
    [everywhereKey],
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

/** Whether a kept folder has everything already. */
export async function isFilled(client: pg.Client): Promise<boolean> {
  const { rowCount } = await client.query('SELECT 1 FROM users WHERE username = $1', [USERS.everywhere])
  return rowCount !== 0
}

/** Logs every caller in and finds the ids that the cases need. */
export async function enter(app: HttpApp, client: pg.Client): Promise<World> {
  const found = await client.query<{ key: string; id: string }>('SELECT key, id FROM domains WHERE route = $1', [ROUTE])
  const domain = found.rows[0] as { key: string; id: string }
  const id = async (text: string, value: string = domain.key) =>
    ((await client.query<{ id: string }>(text, [value])).rows[0] as { id: string }).id
  const caller = async (username: string, name: string, kind: Caller['kind']) => {
    const token = await logIn(app, username)
    const path = kind === 'everywhere' ? '/clients' : `/${domain.id}/clients`
    const { total } = await call<{ total: number }>(app, 'GET', `${path}?only_total=true`, token)
    return { name, kind, token, reached: total }
  }
  return {
    app,
    domainId: domain.id,
    callers: [
      await caller(USERS.owner, 'administrator of the domain', 'administrator'),
      await caller(USERS.flat, `member of ${DIRECT.toLocaleString('en')} groups`, 'member'),
      await caller(USERS.direct, `user with ${DIRECT.toLocaleString('en')} grants`, 'member'),
      await caller(USERS.everywhere, `member of ${OTHER_DOMAINS + 1} domains`, 'everywhere'),
    ],
    userId: await id('SELECT id FROM users WHERE username = $1', USERS.direct),
    groupId: await id('SELECT id FROM groups WHERE domain_key = $1 ORDER BY key LIMIT 1 OFFSET 5'),
    channelId: await id('SELECT id FROM channels WHERE domain_key = $1 ORDER BY key LIMIT 1 OFFSET 5'),
    clientId: await id('SELECT id FROM clients WHERE domain_key = $1 ORDER BY key LIMIT 1 OFFSET 5'),
  }
}
