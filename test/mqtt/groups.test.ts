/**
 * Shared subscriptions over several nodes (MQTT 5.0 section 4.8.2, contract section 7.3): whatever node its members are connected to, a
 * group is sent each message once, and nothing is lost with a member or with the node that serves it.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Connecting, Peer } from './peer.ts'
import { publish, receive as receiveWithin, subscribe as askFor, textOf } from './peer.ts'
import type { Node } from './support.ts'
import { aDevice, anotherProcess, leave, startNode } from './support.ts'

const NEVER_MS = 3_600_000
const DEADLINE_MS = 60_000
const DEAD_AFTER_SECONDS = 10

const plant = useWorld(() => startPlant())
let otherApi: TestApi
let one: Node
let other: Node

beforeAll(async () => {
  otherApi = await anotherProcess(plant)
  // So long a node watches the others before it takes one for dead: no longer than a test can wait.
  one = await startNode(plant.api, { deadAfterSeconds: DEAD_AFTER_SECONDS })
  other = await startNode(otherApi, { deadAfterSeconds: DEAD_AFTER_SECONDS })
}, 60_000)
afterAll(async () => {
  await other.stop()
  await one.stop()
  await otherApi[Symbol.asyncDispose]()
})

/** A session that is kept, with one message at a time under way. */
const kept = (clientId: string, receiveMaximum = 1): Connecting => ({
  clientId,
  clean: false,
  protocolVersion: 5,
  properties: { sessionExpiryInterval: 1000, receiveMaximum },
})

async function subscribe(peer: Peer, topic: string, qos: 1 | 2 = 1) {
  expect(await askFor(peer, topic, qos)).toEqual([qos])
}

const receive = (peer: Peer) => receiveWithin(peer, DEADLINE_MS)

/** Acknowledges everything that comes, and remembers it. */
function taking(peer: Peer): string[] {
  const taken: string[] = []
  peer.socket.on('data', () => {
    for (let at = 0; at < peer.inbox.length;) {
      const packet = peer.inbox[at]
      if (packet?.cmd === 'publish') {
        taken.push(textOf(packet))
        peer.send({ cmd: packet.qos === 2 ? 'pubrec' : 'puback', messageId: packet.messageId ?? 0 })
      } else if (packet?.cmd === 'pubrel') peer.send({ cmd: 'pubcomp', messageId: packet.messageId ?? 0 })
      else {
        at++
        continue
      }
      peer.inbox.splice(at, 1)
    }
  })
  return taken
}

/** The node that serves the group of the channel; null: none. */
async function servedBy(channelId: string): Promise<string | null | undefined> {
  const { rows } = await sql<{ node: string | null }>`
    SELECT g.node FROM mqtt_share_groups g JOIN channels c ON c.key = g.channel_key WHERE c.id = ${channelId}`.execute(
    plant.api.database.db,
  )
  return rows[0]?.node
}

/** Others believe that they heard of the node then. */
const heardOf = (node: string, when: 'long ago' | 'in an hour') =>
  sql`UPDATE nodes SET seen_at = now() + make_interval(hours => ${when === 'long ago' ? -2 : 1}) WHERE id = ${node}`.execute(
    plant.api.database.db,
  )

test.for([1, 2] as const)(
  'a thousand messages with QoS %i reach a group with members on two nodes once each, although members come and go',
  { timeout: 300_000 },
  async (qos) => {
    const device = await aDevice(plant, one.port)
    const shared = `$share/workers/${device.topic}/#`
    const members: Peer[] = []
    const taken: string[][] = []
    const join = async (clientId: string, port: number) => {
      const member = await device.connect(kept(clientId, 20), port)
      taken.push(taking(member))
      members.push(member)
      await subscribe(member, shared, qos)
    }
    const all = () => taken.flat()
    await join('a', one.port)
    await join('b', other.port)
    await join('c', other.port)
    const senders = await Promise.all(
      Array.from({ length: 10 }, (_, index) => device.connect({ clientId: `s${index}` })),
    )
    const sending = Promise.all(
      senders.map(async (sender, from) => {
        for (let index = 0; index < 100; index++)
          await publish(sender, `${device.topic}/${from}`, `${from}.${index}`, { qos })
      }),
    )
    await until(() => all().length > 200, 'some were taken', DEADLINE_MS)
    // Says goodbye with everything acknowledged that it was sent, or not: the rest goes to others.
    members[0]?.send({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [shared] })
    await until(() => all().length > 500, 'others took over', DEADLINE_MS)
    await join('d', one.port)
    await sending
    await until(() => new Set(all()).size === 1000, 'all were taken', DEADLINE_MS)
    expect(all()).toHaveLength(1000)
    for (const peer of [...members, ...senders]) peer[Symbol.dispose]()
  },
)

test('a message that a member did not acknowledge goes to another one, on any node', async () => {
  const device = await aDevice(plant, one.port)
  const shared = `$share/g/${device.topic}`
  using sender = await device.connect()
  {
    using first = await device.connect(kept('first'))
    await subscribe(first, shared)
    for (const text of ['one', 'two', 'three', 'four']) await publish(sender, device.topic, text)
    expect(await receive(first)).toBe('one')
    expect(textOf(await first.next('publish'))).toBe('two')
  }
  using second = await device.connect(kept('second'), other.port)
  await subscribe(second, shared)
  expect([await receive(second), await receive(second), await receive(second)]).toEqual(['two', 'three', 'four'])
  await publish(sender, device.topic, 'five')
  expect(await receive(second)).toBe('five')
})

test('a member that was offline receives no messages that others took meanwhile', async () => {
  const device = await aDevice(plant, one.port)
  const shared = `$share/g/${device.topic}/#`
  using sender = await device.connect()
  using stays = await device.connect(kept('stays'), other.port)
  await subscribe(stays, shared)
  {
    using leaves = await device.connect(kept('leaves'))
    await subscribe(leaves, shared)
    await leave(leaves)
  }
  for (const text of ['one', 'two']) await publish(sender, device.topic, text)
  expect([await receive(stays), await receive(stays)]).toEqual(['one', 'two'])
  stays[Symbol.dispose]()
  // No member is connected: the message waits for the first one.
  await until(async () => (await servedBy(device.channelId)) === null, 'nobody serves the group', DEADLINE_MS)
  for (const text of ['three', 'four']) await publish(sender, device.topic, text)
  using back = await device.connect(kept('leaves'))
  expect(back.connack.sessionPresent).toBe(true)
  expect([await receive(back), await receive(back)]).toEqual(['three', 'four'])
})

test('a group without members is dropped, and the next member starts a new one', async () => {
  const device = await aDevice(plant, one.port)
  const shared = `$share/g/${device.topic}/#`
  using sender = await device.connect()
  {
    using last = await device.connect({ protocolVersion: 5 })
    await subscribe(last, shared)
    await publish(sender, device.topic, 'unacknowledged')
    await last.next('publish')
  }
  await until(async () => (await device.connections()) === 0, 'its session is gone', DEADLINE_MS)
  await publish(sender, device.topic, "nobody's")
  using anew = await device.connect({ protocolVersion: 5 }, other.port)
  await subscribe(anew, shared)
  await publish(sender, device.topic, 'mine')
  expect(await receive(anew)).toBe('mine')
})

test('groups of one name on two forms of a topic are one group, those of two filters are two', async () => {
  const device = await aDevice(plant, one.port)
  using sender = await device.connect()
  using member = await device.connect(kept('member', 10))
  const taken = taking(member)
  await subscribe(member, `$share/g/${device.topic}/+`)
  await subscribe(member, `$share/g/channels/${device.channelId}/messages/+`)
  await subscribe(member, `$share/g/${device.topic}/a`)
  await publish(sender, `${device.topic}/a`, 'twice')
  await publish(sender, `${device.topic}/b`, 'once')
  await until(() => taken.includes('once') && taken.length >= 3, 'all came', DEADLINE_MS)
  expect(taken.toSorted()).toEqual(['once', 'twice', 'twice'])
})

test('a suspended node closes its sessions: their wills were sent once, and the sessions resume complete', async () => {
  await using stack = new AsyncDisposableStack()
  // It gives no sign of life while the test runs.
  const still = await startNode(otherApi, { roundMs: NEVER_MS, deadAfterSeconds: 3600 })
  stack.defer(() => still.stop())
  const device = await aDevice(plant, one.port)
  using watching = await device.connect({ clientId: 'watching' })
  await subscribe(watching, `${device.topic}/#`)
  const will = { topic: `${device.topic}/will`, payload: Buffer.from('dead'), qos: 1 as const, retain: false }
  using held = await device.connect({ ...kept('held'), will }, still.port)
  await subscribe(held, `${device.topic}/#`)
  const { rows } = await sql<{ node: string }>`
    SELECT node FROM mqtt_sessions WHERE client_identifier = 'held'`.execute(plant.api.database.db)
  await heardOf(rows[0]?.node ?? '', 'long ago')
  expect(await receive(watching)).toBe('dead')

  using visitor = await device.connect({ clientId: 'visitor', protocolVersion: 5 }, still.port)
  await subscribe(visitor, `$share/visitors/${device.topic}/nothing`)
  await held.closed()
  using back = await device.connect(kept('held'))
  expect(back.connack.sessionPresent).toBe(true)
  await publish(back, device.topic, 'end')
  // The will, and nothing else, came before.
  expect(await receive(watching)).toBe('end')
  expect([await receive(back), await receive(back)]).toEqual(['dead', 'end'])
})

test('a suspended node loses its groups and closes its sessions; a message with QoS 2 that a member may have goes to no other', async () => {
  // It writes its heartbeat when a group is to be served and never again, so it is declared dead.
  await using stack = new AsyncDisposableStack()
  const still = await startNode(otherApi, { roundMs: NEVER_MS, deadAfterSeconds: 3600 })
  stack.defer(() => still.stop())
  const device = await aDevice(plant, one.port)
  const shared = `$share/g/${device.topic}/#`
  using sender = await device.connect()
  using lost = await device.connect(kept('lost'), still.port)
  await subscribe(lost, shared, 2)
  const name = await until(async () => (await servedBy(device.channelId)) ?? undefined, 'it is served', DEADLINE_MS)
  await heardOf(name, 'in an hour')
  await publish(sender, device.topic, 'sent', { qos: 2 })
  const sent = await lost.next('publish')
  await publish(sender, device.topic, 'waits', { qos: 2 })
  await heardOf(name, 'long ago')
  using next = await device.connect(kept('next'))
  await subscribe(next, shared, 2)
  expect(await receive(next)).toBe('waits')
  await publish(sender, device.topic, 'later', { qos: 2 })
  expect(await receive(next)).toBe('later')

  // A member connects, so that it writes its heartbeat.
  using visitor = await device.connect({ clientId: 'visitor', protocolVersion: 5 }, still.port)
  await subscribe(visitor, `$share/visitors/${device.topic}/#`)
  await lost.closed()
  using back = await device.connect(kept('lost'), other.port)
  expect(await back.next('publish')).toMatchObject({ messageId: sent.messageId, dup: true, qos: 2 })
})
