/**
 * A node that dies without a word: what it wrote down of its sessions is all that the next one has. Here nodes say where their sessions
 * stand once, when they start, and never again; so another node that takes a session up finds what a kill at the worst moment leaves.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startSessionStore } from '#api/messages/index.ts'
import type { SessionPositions, SessionStore } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { TestApi } from '../harness/api.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { aNode } from '../harness/node.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Connecting } from './peer.ts'
import { publish, receive, subscribe, textOf } from './peer.ts'
import type { Node } from './support.ts'
import { aDevice, anotherProcess, startNode } from './support.ts'

const NEVER_MS = 3_600_000

const plant = useWorld(() => startPlant())
let otherApi: TestApi
/** Another process each: nobody follows anything there before a session does. */
let first: Node
let second: Node
/** Says where its sessions stand, as nodes do. */
let alive: Node
/** How often its store refuses the end of a session. */
let refusals = 0

const refusing = (store: SessionStore): SessionStore => ({
  ...store,
  async close(session) {
    if (refusals > 0) {
      refusals--
      throw new ServiceError('unavailable', 'the database is away')
    }
    await store.close(session)
  },
})

beforeAll(async () => {
  otherApi = await anotherProcess(plant)
  first = await startNode(plant.api, { roundMs: NEVER_MS })
  second = await startNode(otherApi, { roundMs: NEVER_MS })
  alive = await startNode(plant.api, { storeOf: refusing })
}, 60_000)
afterAll(async () => {
  await alive.stop()
  await second.stop()
  await first.stop()
  await otherApi[Symbol.asyncDispose]()
})

const kept: Connecting = {
  clientId: 'kept',
  clean: false,
  protocolVersion: 5,
  properties: { sessionExpiryInterval: 1000, receiveMaximum: 1 },
}

test('a node that dies right after SUBACK loses no later messages, nor does the next node that dies before it caught up', async () => {
  const device = await aDevice(plant, first.port)
  using sender = await device.connect({}, alive.port)
  using atFirst = await device.connect(kept)
  await subscribe(atFirst, `${device.topic}/#`)
  for (const text of ['one', 'two', 'three']) await publish(sender, device.topic, text)
  expect(textOf(await atFirst.next('publish'))).toBe('one')

  using atSecond = await device.connect(kept, second.port)
  expect(atSecond.connack.sessionPresent).toBe(true)
  expect(textOf(await atSecond.next('publish'))).toBe('one')

  using atLast = await device.connect(kept, alive.port)
  expect(atLast.connack.sessionPresent).toBe(true)
  expect([await receive(atLast), await receive(atLast), await receive(atLast)]).toEqual(['one', 'two', 'three'])
})

test('messages with QoS 2 that may have been sent are sent again with their identifier and the DUP flag [MQTT-4.3.3-3]', async () => {
  const device = await aDevice(plant, first.port)
  using sender = await device.connect({}, alive.port)
  using before = await device.connect(kept)
  await subscribe(before, `${device.topic}/#`, 2)
  await publish(sender, device.topic, 'once', { qos: 2 })
  const sent = await before.next('publish')
  expect(sent.qos).toBe(2)
  using after = await device.connect(kept, second.port)
  expect(await after.next('publish')).toMatchObject({ messageId: sent.messageId, dup: true, qos: 2 })
})

test('a session end that could not be written is written when the database is back', async () => {
  const device = await aDevice(plant, alive.port)
  using sender = await device.connect()
  {
    using before = await device.connect(kept)
    await subscribe(before, `${device.topic}/#`)
    await publish(sender, device.topic, 'unacknowledged')
    await before.next('publish')
    refusals = 2
  }
  await until(() => refusals === 0, 'the end was refused')
  using back = await device.connect(kept)
  expect(await back.next('publish')).toMatchObject({ dup: true })
})

/** A store whose node says what the test wants it to say. */
function speaking() {
  let told: Partial<SessionPositions> = {}
  let rounds = 0
  let undone = 0
  let isBroken = false
  const { database } = plant.api.infrastructure
  const breakable = Object.assign(Object.create(database) as typeof database, {
    transaction: (run: Parameters<typeof database.transaction>[0]) =>
      isBroken ? Promise.reject(new ServiceError('unavailable', 'the database is away')) : database.transaction(run),
  })
  const store = startSessionStore({
    database: breakable,
    node: aNode(breakable),
    journal: plant.api.api.identity.journal,
    quotas: plant.api.api.identity.quotas,
    logger,
    roundMs: 10,
    maxSessionsPerClient: 20,
    sendWill: () => Promise.resolve(),
    onTakeover: () => undefined,
    onDeclaredDead: () => undefined,
    wantedGroups: () => [],
    onGroups: () => undefined,
    positions() {
      rounds++
      const undo = () => void undone++
      return { node: 'here', moved: [], done: [], skipped: [], groups: [], ...told, undo }
    },
  })
  const untilSaid = async () => {
    const seen = rounds
    // The round that began after the word was given is over when another one begins.
    await until(() => rounds > seen + 1, 'the node has said it')
  }
  return {
    store,
    async say(positions: Partial<SessionPositions>) {
      told = positions
      await untilSaid()
    },
    untilSaid,
    break: () => void (isBroken = true),
    get undone() {
      return undone
    },
    [Symbol.asyncDispose]: () => store.stop(),
  }
}

const positionOf = async (sessionKey: number) => {
  const { rows } = await sql<{ position: string | null }>`
    SELECT position FROM mqtt_subscriptions WHERE session_key = ${sessionKey}`.execute(plant.api.database.db)
  return rows[0]?.position
}

/** A session of a store with one subscription. */
async function aSession(store: SessionStore) {
  const device = await plant.newConnectedDevice()
  const { rows } = await sql<{ client_key: number; domain_key: number; channel_key: number }>`
    SELECT c.key AS client_key, c.domain_key, h.key AS channel_key FROM clients c, channels h
     WHERE c.id = ${device.id} AND h.id = ${device.channelId}`.execute(plant.api.database.db)
  const {
    client_key: clientKey,
    domain_key: domainKey,
    channel_key: channelKey,
  } = rows[0] as { client_key: number; domain_key: number; channel_key: number }
  const owner = {
    clientKey,
    domainKey,
    clientIdentifier: 'c',
    isClean: false,
    version: 5,
    address: '',
    expirySeconds: 1000,
  }
  const open = (at: SessionStore) => at.open({ ...owner, will: undefined })
  const opened = await open(store)
  const subscription = { filter: 'f', channelKey, options: 1, identifier: undefined, position: 'begun' }
  await store.subscribe(opened, clientKey, [subscription])
  return { session: { key: opened.key, epoch: opened.epoch }, domainKey, open }
}

test('a position report for a session that was closed or taken over meanwhile has no effect', async () => {
  await using one = speaking()
  await using other = speaking()
  const { session, domainKey, open } = await aSession(one.store)
  await one.say({ moved: [{ session, filter: 'f', position: undefined }] })
  expect(await positionOf(session.key)).toBeNull()

  const { epoch, subscriptions } = await open(other.store)
  // It stood with its node, and no node takes it along.
  expect(subscriptions).toMatchObject([{ filter: 'f', position: 'here' }])
  await one.say({ moved: [{ session, filter: 'f', position: 'late' }], done: [{ session, ordinal: 1 }] })
  expect(await positionOf(session.key)).toBe('here')

  const end = { key: session.key, epoch, domainKey, expirySeconds: 1000, will: undefined, outbound: [] }
  await other.store.close({ ...end, positions: [{ filter: 'f', position: 'end' }] })
  await other.say({ moved: [{ session: { key: session.key, epoch }, filter: 'f', position: undefined }] })
  expect(await positionOf(session.key)).toBe('end')
})

test('a failed position report is sent again', async () => {
  const one = speaking()
  await one.untilSaid()
  expect(one.undone).toBe(0)
  one.break()
  const said = one.say({ node: 'further' })
  await until(() => one.undone > 0, 'it was taken back')
  await said
  await one.store.stop()
})
