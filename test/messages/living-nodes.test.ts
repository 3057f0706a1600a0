/**
 * One row and one sign of life for each process, and processes of an earlier build beside it: these have a row in each of three tables,
 * and run the statements that stand here as EARLIER.
 */
import pg from 'pg'
import { beforeAll, beforeEach, expect, inject, test } from 'vitest'
import { removeDeadNodes } from '#api/messages/index.ts'
import { MIGRATIONS_FOLDER, createDatabase, migrate, readMigrations } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import type { LivingNode } from '#core/nodes/index.ts'
import { lockDeadNode } from '#core/nodes/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { aNode } from '../harness/node.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

/** The statements of the build before, as they are in its files. */
const EARLIER = {
  startsWith: `INSERT INTO nodes (id, kind, version, migration) VALUES ($1, 'api', '0.1.0', 21)
      ON CONFLICT ON CONSTRAINT nodes_pkey DO UPDATE SET seen_at = now()`,
  beatsSessions: `INSERT INTO mqtt_nodes (node, position) VALUES ($1, $2)
      ON CONFLICT ON CONSTRAINT mqtt_nodes_pkey DO UPDATE SET seen_at = now(), position = EXCLUDED.position
      RETURNING xmax = 0 AS is_new`,
  beatsPresence: `INSERT INTO presence_nodes (node) VALUES ($1)
    ON CONFLICT ON CONSTRAINT presence_nodes_pkey DO UPDATE SET seen_at = now() RETURNING xmax::text <> '0' AS was_known`,
  deadSessions: `SELECT node FROM mqtt_nodes WHERE seen_at < now() - interval '15 seconds' ORDER BY node FOR UPDATE SKIP LOCKED`,
  deadPresence: `SELECT node FROM presence_nodes WHERE seen_at < now() - interval '20 seconds'`,
  takesSession: `UPDATE mqtt_subscriptions u SET position = n.position FROM mqtt_sessions s JOIN mqtt_nodes n ON n.node = s.node
     WHERE s.key = ANY ($1::bigint[]) AND u.session_key = s.key AND u.position IS NULL`,
  removesSessions: `DELETE FROM mqtt_nodes WHERE node = $1`,
  removesPresence: `DELETE FROM presence_nodes WHERE node = $1`,
  ends: `DELETE FROM nodes WHERE id = $1`,
}

const plant = useWorld(() => startPlant())
let client: { key: number; channelId: string }
const nodes: LivingNode[] = []

const query = <Row extends pg.QueryResultRow>(text: string, values: unknown[] = []) =>
  plant.api.database.pool.query<Row>(text, values)

beforeAll(async () => {
  // The processes of the test, which would remove dead nodes before it looks.
  plant.api.infrastructure.node.removeDeadWith(() => Promise.resolve())
})
beforeEach(async () => {
  const { id, channelId } = await plant.newConnectedDevice()
  const { rows } = await query<{ key: number }>('SELECT key FROM clients WHERE id = $1', [id])
  client = { channelId, key: rows[0]?.key as number }
  return async () => {
    await Promise.all(nodes.splice(0).map((node) => node.stop()))
    await query(`DELETE FROM nodes WHERE version <> 'test' AND migration < 22`)
    await query('DELETE FROM client_presence')
    expect(await namesIn('mqtt_nodes')).toEqual([])
    expect(await namesIn('presence_nodes')).toEqual([])
  }
})

async function newNode(): Promise<LivingNode> {
  const node = aNode(plant.api.database)
  nodes.push(node)
  await node.beat()
  return node
}

const beatAt = (node: LivingNode, position: string) => node.beat({ position, also: () => Promise.resolve() })

/** Without the process of the test. */
async function namesIn(table: 'mqtt_nodes' | 'presence_nodes'): Promise<string[]> {
  const { rows } = await query<{ node: string }>(`SELECT node FROM ${table} ORDER BY node COLLATE "C"`)
  return rows.map(({ node }) => node).filter((node) => node !== plant.api.infrastructure.node.id)
}

async function rowOf(id: string) {
  const { rows } = await query<{ position: string | null; age: number; dead_after_seconds: number; migration: number }>(
    `SELECT position, extract(epoch FROM now() - seen_at)::float8 AS age, dead_after_seconds, migration FROM nodes WHERE id = $1`,
    [id],
  )
  return rows[0]
}

/** An earlier process: its three names. */
async function earlier() {
  const names = { api: `api-${newId()}`, sessions: newId(), presence: newId() }
  await query(EARLIER.startsWith, [names.api])
  await query(EARLIER.beatsSessions, [names.sessions, 'earlier'])
  await query(EARLIER.beatsPresence, [names.presence])
  return names
}

/** A connected session of the client at the node, with a subscription that shares the position of the node. */
async function aSession(node: string): Promise<number> {
  const { rows } = await query<{ key: number }>(
    `INSERT INTO mqtt_sessions (client_key, client_identifier, node, version, address, expiry_seconds)
       VALUES ($1, $2, $3, 5, '', 1000) RETURNING key`,
    [client.key, newId(), node],
  )
  const key = rows[0]?.key as number
  await query(
    `INSERT INTO mqtt_subscriptions (session_key, filter, client_key, channel_key, options)
       SELECT $1, 'f', $2, key, 1 FROM channels WHERE id = $3`,
    [key, client.key, client.channelId],
  )
  return key
}

async function sessionOf(key: number) {
  const { rows } = await query<{ is_connected: boolean; position: string | null }>(
    `SELECT s.is_connected, u.position FROM mqtt_sessions s JOIN mqtt_subscriptions u ON u.session_key = s.key WHERE s.key = $1`,
    [key],
  )
  return rows[0]
}

async function online(node: string): Promise<void> {
  await query(
    `INSERT INTO client_telemetry (client_key, first_seen, last_seen, inbound_messages, outbound_messages, is_online, state_since)
       VALUES ($1, now(), now(), 0, 0, true, now()) ON CONFLICT (client_key) DO UPDATE SET is_online = true`,
    [client.key],
  )
  await query(
    `INSERT INTO client_presence (client_key, node, protocol, sessions, subscriptions) VALUES ($1, $2, 1, 1, 0)`,
    [client.key, node],
  )
}

const isOnline = async () =>
  (await query<{ is_online: boolean }>('SELECT is_online FROM client_telemetry WHERE client_key = $1', [client.key]))
    .rows[0]?.is_online

const unseen = (table: 'nodes' | 'mqtt_nodes' | 'presence_nodes', node: string) =>
  query(`UPDATE ${table} SET seen_at = seen_at - interval '1 hour' WHERE ${table === 'nodes' ? 'id' : 'node'} = $1`, [
    node,
  ])

const remove = () => removeDeadNodes(plant.api.api.identity.journal)

test('a process alone has one row, and a sign of life writes no other', async () => {
  const node = await newNode()
  await beatAt(node, 'here')
  await node.beat()
  expect(await rowOf(node.id)).toMatchObject({ position: 'here', dead_after_seconds: 15 })
  expect([await namesIn('mqtt_nodes'), await namesIn('presence_nodes')]).toEqual([[], []])
})

test('a node that was declared dead notices it with its next sign of life, and its row has its position again', async () => {
  const node = await newNode()
  await beatAt(node, 'here')
  let notices = 0
  node.onDeclaredDead(() => notices++)
  const session = await aSession(node.id)
  await online(node.id)
  await unseen('nodes', node.id)
  await remove()
  expect(await sessionOf(session)).toEqual({ is_connected: false, position: 'here' })
  expect(await isOnline()).toBe(false)
  expect(await rowOf(node.id)).toBeUndefined()
  await node.beat()
  expect(notices).toBe(1)
  expect(await rowOf(node.id)).toMatchObject({ position: 'here' })
  await node.beat()
  expect(notices).toBe(1)
})

test('two processes that remove the same dead node at the same time do it once', async () => {
  const node = await newNode()
  await online(node.id)
  await unseen('nodes', node.id)
  await plant.api.database.transaction(async (tx) => {
    expect(await lockDeadNode(tx)).toMatchObject({ id: node.id })
    // The other one neither waits nor removes.
    await remove()
    expect(await isOnline()).toBe(true)
  })
  await remove()
  expect(await isOnline()).toBe(false)
})

test('an earlier process that starts sees the rows of the processes that run, and their positions as they move', async () => {
  const node = await newNode()
  await beatAt(node, 'before')
  const names = await earlier()
  expect(await namesIn('mqtt_nodes')).toEqual([node.id, names.sessions].toSorted())
  expect(await namesIn('presence_nodes')).toEqual([node.id, names.presence].toSorted())
  const first = await aSession(node.id)
  await query(EARLIER.takesSession, [[first]])
  expect(await sessionOf(first)).toMatchObject({ position: 'before' })
  await beatAt(node, 'moved')
  const second = await aSession(node.id)
  await query(EARLIER.takesSession, [[second]])
  expect(await sessionOf(second)).toMatchObject({ position: 'moved' })
})

test('a position that is written while an earlier process starts is not lost to it', async () => {
  const node = await newNode()
  await beatAt(node, 'before')
  const started = Promise.withResolvers<unknown>()
  await node.beat({
    position: 'meanwhile',
    async also() {
      const starting = query(EARLIER.startsWith, [`api-${newId()}`])
      started.resolve(starting)
      await until(async () => {
        const { rows } = await query(
          `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO nodes%'`,
        )
        return rows.length > 0
      }, 'it waits for the position')
    },
  })
  await started.promise
  const session = await aSession(node.id)
  await query(EARLIER.takesSession, [[session]])
  expect(await sessionOf(session)).toMatchObject({ position: 'meanwhile' })
})

test('an earlier process sees one that starts after it', async () => {
  const names = await earlier()
  const node = await newNode()
  expect(await namesIn('mqtt_nodes')).toEqual([node.id, names.sessions].toSorted())
  await node.stop()
  nodes.splice(0)
  expect(await namesIn('mqtt_nodes')).toEqual([names.sessions])
  expect(await namesIn('presence_nodes')).toEqual([names.presence])
})

test('the rows of an earlier process are in the one table, with its position, and a session moves from it with that', async () => {
  const names = await earlier()
  expect(await rowOf(names.sessions)).toMatchObject({ position: 'earlier', dead_after_seconds: 15, migration: 21 })
  expect(await rowOf(names.presence)).toMatchObject({ position: null, dead_after_seconds: 20, migration: 21 })
  expect(await rowOf(names.api)).toMatchObject({ dead_after_seconds: 30 })
  const again = await query<{ is_new: boolean }>(EARLIER.beatsSessions, [names.sessions, 'later'])
  expect(again.rows).toEqual([{ is_new: false }])
  expect((await query(EARLIER.beatsPresence, [names.presence])).rows).toEqual([{ was_known: true }])
  expect(await rowOf(names.sessions)).toMatchObject({ position: 'later' })
})

test('what a dead earlier process held is removed, with its rows in every table; it would notice', async () => {
  const names = await earlier()
  const session = await aSession(names.sessions)
  await online(names.presence)
  await unseen('mqtt_nodes', names.sessions)
  await unseen('presence_nodes', names.presence)
  await unseen('nodes', names.api)
  await remove()
  expect(await sessionOf(session)).toEqual({ is_connected: false, position: 'earlier' })
  expect(await isOnline()).toBe(false)
  for (const name of Object.values(names)) expect(await rowOf(name)).toBeUndefined()
  expect([await namesIn('mqtt_nodes'), await namesIn('presence_nodes')]).toEqual([[], []])
  const { rows } = await query<{ is_new: boolean }>(EARLIER.beatsSessions, [names.sessions, 'back'])
  expect(rows).toEqual([{ is_new: true }])
})

test('an earlier process takes another one for dead a minute later than this build does, and then it notices', async () => {
  const names = await earlier()
  const node = await newNode()
  let notices = 0
  node.onDeclaredDead(() => notices++)
  const deadSessions = async () => (await query<{ node: string }>(EARLIER.deadSessions)).rows.map((row) => row.node)
  const deadPresence = async () => (await query<{ node: string }>(EARLIER.deadPresence)).rows.map((row) => row.node)
  await query(`UPDATE nodes SET seen_at = now() - interval '70 seconds' WHERE id = $1`, [node.id])
  expect([await deadSessions(), await deadPresence()]).toEqual([[], []])
  await query(`UPDATE nodes SET seen_at = now() - interval '81 seconds' WHERE id = $1`, [node.id])
  expect([await deadSessions(), await deadPresence()]).toEqual([[node.id], [node.id]])
  await query(EARLIER.removesSessions, [node.id])
  // What it held of presence is still removed by the other row.
  expect(await deadPresence()).toEqual([node.id])
  await query(EARLIER.removesPresence, [node.id])
  await node.beat()
  expect(notices).toBe(1)
  expect(await namesIn('mqtt_nodes')).toEqual([node.id, names.sessions].toSorted())
  expect(await namesIn('presence_nodes')).toEqual([node.id, names.presence].toSorted())
})

test('an earlier process that ends leaves no row', async () => {
  const names = await earlier()
  await query(EARLIER.removesSessions, [names.sessions])
  await query(EARLIER.removesPresence, [names.presence])
  await query(EARLIER.ends, [names.api])
  for (const name of Object.values(names)) expect(await rowOf(name)).toBeUndefined()
})

test('earlier processes that run during the migration are in the table after it', async () => {
  const name = `test_${newId().replaceAll('-', '')}`
  await using stack = new AsyncDisposableStack()
  const admin = new pg.Client(inject('postgres'))
  await admin.connect()
  stack.defer(() => admin.end())
  await admin.query(`CREATE DATABASE ${name}`)
  stack.defer(async () => void (await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)))
  const address = { ...inject('postgres'), database: name }
  const database = createDatabase({ address, maxConnections: 1, applicationName: 'test', logger })
  stack.defer(() => database.close())
  const migrations = await readMigrations(MIGRATIONS_FOLDER)
  const setup = await database.dedicated('migrations')
  try {
    await migrate(setup, migrations.slice(0, 21), logger)
    await setup.query(EARLIER.startsWith, ['api-1'])
    await setup.query(EARLIER.beatsSessions, ['sessions-1', 'here'])
    await setup.query(EARLIER.beatsPresence, ['presence-1'])
    await migrate(setup, migrations, logger)
    const { rows } = await setup.query('SELECT id, position, dead_after_seconds FROM nodes ORDER BY id')
    expect(rows).toEqual([
      { id: 'api-1', position: null, dead_after_seconds: 30 },
      { id: 'presence-1', position: null, dead_after_seconds: 20 },
      { id: 'sessions-1', position: 'here', dead_after_seconds: 15 },
    ])
  } finally {
    await setup.end()
  }
})
