/** Who is online, on whatever node: clients with a session, until it ends or its node dies. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { Presence } from '../../api/messages/presence/index.ts'
import { removeDeadNodes } from '../../api/messages/dead-nodes.ts'
import { findTelemetry } from '../../api/messages/presence/repository.ts'
import type { LivingNode } from '#core/nodes/index.ts'
import { ZERO_TIME } from '#core/time.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { startLivingNode } from '../harness/node.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())
let here: Presence
let elsewhere: Presence
let client: number

const nodes: LivingNode[] = []

const start = async () => {
  const { database } = plant.api
  const node = await startLivingNode(database)
  nodes.push(node)
  return new Presence({ database, logger, writeIntervalMs: 20, node })
}

beforeAll(async () => {
  here = await start()
  elsewhere = await start()
})
afterAll(async () => {
  await Promise.all([here.stop(), elsewhere.stop()])
  await Promise.all(nodes.map((node) => node.stop()))
})
beforeEach(async () => {
  client = await keyOf((await plant.newDevice()).id)
})

async function keyOf(id: string): Promise<number> {
  const { rows } = await plant.api.database.pool.query<{ key: number }>('SELECT key FROM clients WHERE id = $1', [id])
  return (rows[0] as { key: number }).key
}

const seen = (key = client) => findTelemetry(plant.api.database.db, key)

async function becomes(isOnline: boolean, key = client): Promise<void> {
  await until(async () => (await seen(key)).is_online === isOnline, `the client is ${isOnline ? 'online' : 'offline'}`)
}

test('a client that was never seen is offline without a time', async () => {
  expect(await seen()).toEqual({
    subscriptions: 0,
    inbound_messages: 0,
    outbound_messages: 0,
    first_seen: null,
    last_seen: null,
    is_online: false,
    state_since: null,
    unparsed_messages: 0,
    last_error: null,
    last_error_at: null,
  })
})

test('a client is online while it has a session at any node, over any protocol', async () => {
  here.online(client, 'ws')
  await becomes(true)
  const { state_since: since } = await seen()
  elsewhere.online(client, 'coap')
  elsewhere.subscribed(client, 'coap', 3)
  await until(async () => (await seen()).subscriptions === 3, 'the other node has written')
  here.offline(client, 'ws')
  here.delivered(client, 2)
  await until(async () => (await seen()).outbound_messages === 2, 'this node has written')
  expect(await seen()).toMatchObject({ is_online: true, state_since: since, subscriptions: 3 })
  elsewhere.unsubscribed(client, 'coap', 3)
  elsewhere.offline(client, 'coap')
  await becomes(false)
  const last = await seen()
  expect(last.subscriptions).toBe(0)
  expect((last.state_since as string) > (since as string)).toBe(true)
})

test('delivered messages are added up over nodes', async () => {
  for (let count = 0; count < 500; count++) {
    here.delivered(client, 1)
    elsewhere.delivered(client, 2)
  }
  await until(async () => (await seen()).outbound_messages === 1500, 'both have written')
})

test('two nodes with changing clients agree in the end', async () => {
  const keys = await Promise.all(Array.from({ length: 8 }, async () => await keyOf((await plant.newDevice()).id)))
  const nodes = [here, elsewhere]
  const open = new Map(keys.map((key) => [key, 0]))
  for (let step = 0; step < 2000; step++) {
    const key = keys[step % keys.length] as number
    const node = nodes[(step * 7) % 2] as Presence
    node.online(key, 'ws')
    if (step % 5 === 0) await new Promise((resolve) => void setImmediate(resolve))
    // The last of every client stays at one of the nodes, for half of the clients.
    const stays = step >= 2000 - keys.length && key % 2 === 0
    if (stays) open.set(key, 1)
    else node.offline(key, 'ws')
  }
  for (const key of keys) await becomes(open.get(key) === 1, key)
})

test('the clients of a dead node are offline since it was last seen; a slow node writes its sessions again', async () => {
  const slow = await start()
  slow.online(client, 'mqtt')
  await becomes(true)
  const { pool } = plant.api.database
  const aged = `UPDATE nodes SET seen_at = seen_at - interval '1 hour'
    WHERE id IN (SELECT node FROM client_presence WHERE client_key = $1)`
  const offlineFor = async () => {
    const { rows } = await pool.query<{ seconds: number }>(
      `SELECT extract(epoch FROM now() - state_since)::float8 AS seconds FROM client_telemetry
        WHERE client_key = $1 AND NOT is_online`,
      [client],
    )
    return rows[0]?.seconds
  }
  // It lives, and may say so in between.
  const seconds = await until(async () => {
    await pool.query(aged, [client])
    await removeDeadNodes(plant.api.api.identity.journal)
    return await offlineFor()
  }, 'it is taken for dead')
  expect(seconds).toBeGreaterThan(3000)
  // It hears of it with its next change.
  slow.subscribed(client, 'mqtt')
  await becomes(true)
  expect((await seen()).subscriptions).toBe(1)
  await slow.stop()
  await becomes(false)
})

test('the shutdown of a node ends its sessions', async () => {
  const node = await start()
  node.online(client, 'mqtt')
  await becomes(true)
  await node.stop()
  expect((await seen()).is_online).toBe(false)
})

test('the rows of a client that is deleted while online are removed, and the others are written', async () => {
  const gone = await plant.newDevice()
  const goneKey = await keyOf(gone.id)
  here.online(goneKey, 'ws')
  await becomes(true, goneKey)
  const deleted = await plant.owner.call('DELETE', `/${plant.domainId}/clients/${gone.id}`)
  expect(deleted.status).toBe(200)
  here.offline(goneKey, 'ws')
  here.online(client, 'ws')
  await becomes(true)
  expect((await seen(goneKey)).first_seen).toBeNull()
  here.offline(client, 'ws')
})

const telemetryUrl = (id: string) => `/${plant.domainId}/journal/client/${id}/telemetry`

test('GET telemetry shows what a client sent, received and follows, and since when it is online', async () => {
  const device = await plant.newDevice()
  const key = await keyOf(device.id)
  const nothing = await plant.owner.call('GET', telemetryUrl(device.id))
  expect(nothing.json()).toEqual({
    client_id: device.id,
    domain_id: plant.domainId,
    subscriptions: 0,
    inbound_messages: 0,
    outbound_messages: 0,
    first_seen: ZERO_TIME,
    last_seen: ZERO_TIME,
    online: false,
    online_changed_at: ZERO_TIME,
    unparsed_messages: 0,
    last_error: '',
    last_error_at: ZERO_TIME,
  })
  here.online(key, 'mqtt')
  here.subscribed(key, 'mqtt', 2)
  here.delivered(key, 7)
  // As much of it as people read, and as the database takes.
  here.unparsed(key, `first\0${'x'.repeat(1000)}\ud800`)
  here.unparsed(key, 'second')
  await becomes(true, key)
  const shown = (await plant.owner.call('GET', telemetryUrl(device.id))).json<Record<string, string>>()
  expect(shown).toMatchObject({
    subscriptions: 2,
    outbound_messages: 7,
    online: true,
    unparsed_messages: 2,
    last_error: 'second',
  })
  expect(Date.parse(shown['online_changed_at'] as string)).toBeGreaterThan(Date.now() - 60_000)
  here.unsubscribed(key, 'mqtt', 2)
  here.offline(key, 'mqtt')
})

test('telemetry requires read on the client', async () => {
  const device = await plant.newDevice()
  expect((await plant.api.anonymous('GET', telemetryUrl(device.id))).status).toBe(401)
  const stranger = await plant.api.newUser()
  expect((await stranger.call('GET', telemetryUrl(device.id))).status).toBe(403)
  expect((await plant.owner.call('GET', telemetryUrl('11111111-1111-4111-8111-111111111111'))).status).toBe(404)
})
