/** Bridges (contract section 7.3, decision 91): other brokers that forward messages, above all Mosquitto's. */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createMetrics } from '#http/index.ts'
import { MQTT_METRICS } from '#api/adapters/mqtt/metrics.ts'
import { freePort } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { connectPeer, openPeer, publish, subscribe, textOf } from './peer.ts'
import type { Peer } from './peer.ts'
import type { Node } from './support.ts'
import { aDevice, as, startNode } from './support.ts'

const PACK = '[{"n":"t","v":1}]'
const STATUS = '$SYS/broker/connection/edge/state'

const plant = useWorld(() => startPlant())
const metrics = createMetrics([MQTT_METRICS.set])
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api, { metrics })
}, 60_000)
afterAll(async () => {
  await node.stop()
})

const ignored = async () =>
  Number(/mqtt_dropped_messages_total\{reason="ignored_topic"\} (\d+)/.exec(await metrics.registry.metrics())?.[1] ?? 0)

/** A second client of the same channel. */
async function anotherPeer(device: Awaited<ReturnType<typeof aDevice>>, more = {}) {
  const other = await plant.newDevice()
  await plant.connect(other, device.channelId)
  return await connectPeer(node.port, as(other, more))
}

/** What arrived before a message of another client, which is last. */
async function topicsUntilLast(peer: Peer, last: string): Promise<string[]> {
  const topics: string[] = []
  for (;;) {
    const { topic, messageId } = await peer.next('publish')
    if (messageId !== undefined) peer.send({ cmd: 'puback', messageId })
    topics.push(topic)
    if (topic === last) return topics
  }
}

describe.each([
  ['3.1', { protocolVersion: 3, bridgeMode: true }],
  ['3.1.1', { protocolVersion: 4, bridgeMode: true }],
] as const)('a bridge of %s', (_version, options) => {
  test('is accepted, and its messages are not sent back to it', async () => {
    const device = await aDevice(plant, node.port)
    const connecting = { ...options, clientId: 'edge', clean: false }
    using peer = await device.connect(connecting)
    expect(peer.connack.returnCode).toBe(0)
    expect(await subscribe(peer, `${device.topic}/#`)).toEqual([1])
    await publish(peer, `${device.topic}/own/one`, PACK)
    await publish(peer, `${device.topic}/own/two`, PACK, { qos: 2 })
    peer.send({ cmd: 'publish', topic: `${device.topic}/own/three`, payload: PACK, qos: 0, dup: false, retain: false })
    using other = await anotherPeer(device)
    await publish(other, `${device.topic}/theirs`, PACK)
    expect(await topicsUntilLast(peer, `${device.topic}/theirs`)).toEqual([`${device.topic}/theirs`])
    // Nor to its next connection.
    await publish(peer, `${device.topic}/own/four`, PACK)
    peer.send({ cmd: 'disconnect' })
    await peer.closed()
    using again = await device.connect(connecting)
    expect(again.connack.sessionPresent).toBe(true)
    await publish(other, `${device.topic}/later`, PACK)
    expect(await topicsUntilLast(again, `${device.topic}/later`)).toEqual([`${device.topic}/later`])
    await until(async () => (await device.stored()).length === 6, 'all messages are stored')
  })

  test('receives the retain flag as it was published, and its own retained messages not again', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ ...options, clientId: 'edge' })
    await publish(peer, `${device.topic}/own`, PACK, { retain: true })
    using other = await anotherPeer(device)
    await publish(other, `${device.topic}/before`, PACK, { retain: true })
    await subscribe(peer, `${device.topic}/#`)
    const before = await peer.next('publish')
    await publish(other, `${device.topic}/after`, PACK, { retain: true })
    await publish(other, `${device.topic}/plain`, PACK)
    const got = [before, await peer.next('publish'), await peer.next('publish')]
    expect(got.map(({ topic, retain }) => [topic.split('/').at(-1), retain])).toEqual([
      ['before', true],
      ['after', true],
      ['plain', false],
    ])
  })
})

test('a client that is no bridge receives its own messages in every version', async () => {
  for (const protocolVersion of [3, 4, 5] as const) {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion, clientId: 'plain' })
    await subscribe(peer, `${device.topic}/#`)
    await publish(peer, `${device.topic}/own`, PACK)
    expect(textOf(await peer.next('publish'))).toBe(PACK)
  }
})

describe('the state of a bridge', () => {
  test.each([3, 4, 5] as const)(
    'as a will and as a message is accepted, counted and neither stored nor retained, protocol level %i',
    async (protocolVersion) => {
      const device = await aDevice(plant, node.port)
      const before = await ignored()
      const will = { topic: STATUS, payload: Buffer.from('0'), qos: 1 as const, retain: true }
      using peer = await device.connect({ protocolVersion, clientId: 'edge', will })
      expect(peer.connack.returnCode ?? peer.connack.reasonCode).toBe(0)
      const answer = await publish(peer, STATUS, '1', { retain: true })
      expect(answer.reasonCode ?? 0).toBe(0)
      await publish(peer, '$SYS/brokers/edge/stats', '1', { qos: 2 })
      peer.send({ cmd: 'publish', topic: STATUS, payload: '1', qos: 0, dup: false, retain: true })
      // In order with the others.
      await publish(peer, device.topic, PACK)
      expect((await ignored()) - before).toBe(4)
      peer.socket.destroy()
      await until(async () => (await device.stored()).length === 1, 'the message of the channel')
      const retained = await plant.owner.call('GET', `/${plant.domainId}/channels/${device.channelId}/retained`)
      expect(retained.json<{ total: number }>().total).toBe(0)
    },
  )

  test.each(['$SYS/broker/uptime', '$SYS/brokersx', '$other/x', '$SYS'])(
    'any other topic is refused: %s',
    async (topic) => {
      const device = await aDevice(plant, node.port)
      using peer = await device.connect({ protocolVersion: 5, clientId: 'edge' })
      expect((await publish(peer, topic, PACK)).reasonCode).toBe(0x90)
      using older = await device.connect({ bridgeMode: true, clientId: 'older' })
      older.send({ cmd: 'publish', topic, payload: PACK, qos: 1, dup: false, retain: false, messageId: 1 })
      await older.closed()
      using willing = await device.connect({ will: { topic, payload: Buffer.from(''), qos: 0, retain: false } })
      expect(willing.connack.returnCode).not.toBe(0)
    },
  )

  test.each(['#', '$SYS/#', STATUS])('cannot be subscribed to, nor can every topic: %s', async (filter) => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ bridgeMode: true, clientId: 'edge' })
    expect(await subscribe(peer, filter)).toEqual([0x80])
  })
})

describe('an unknown protocol level is refused with the code that the client knows', () => {
  const connectOf = (name: string, level: number) => {
    const body = Buffer.concat([
      Buffer.from([0, name.length]),
      Buffer.from(name),
      Buffer.from([level, 2, 0, 0, ...(level === 5 ? [0] : []), 0, 1, 97]),
    ])
    return Buffer.concat([Buffer.from([0x10, body.length]), body])
  }
  test.each([
    ['MQTT', 2, '20020001'],
    ['MQTT', 3, '20020001'],
    ['MQTT', 0x83, '20020001'],
    ['MQIsdp', 4, '20020001'],
    ['MQIsdp', 0x84, '20020001'],
    ['MQIsdp', 6, '20020001'],
    ['MQTT', 6, '2003008400'],
    ['MQTT', 0x85, '2003008400'],
  ])('%s %i', async (name, level, expected) => {
    using peer = await openPeer(node.port)
    const chunks: Buffer[] = []
    peer.socket.on('data', (chunk: Buffer) => chunks.push(chunk))
    peer.send(connectOf(name, level))
    await peer.closed()
    expect(Buffer.concat(chunks).toString('hex')).toBe(expected)
  })
})

const BROKER = ['/usr/sbin/mosquitto', '/usr/local/sbin/mosquitto'].find((path) => existsSync(path))

test.runIf(process.env['CI'] === 'true')('mosquitto is installed where tests decide', () => {
  expect(BROKER).toBeDefined()
})

describe.skipIf(BROKER === undefined)('a bridge of mosquitto (needs mosquitto)', () => {
  /** A local broker with the lines of the guide. */
  async function localBroker(device: Awaited<ReturnType<typeof aDevice>>, more: string) {
    const folder = mkdtempSync(join(tmpdir(), 'skein-bridge-'))
    const port = await freePort()
    const file = join(folder, 'mosquitto.conf')
    writeFileSync(
      file,
      `listener ${port} 127.0.0.1
allow_anonymous true
persistence false
connection skein
address 127.0.0.1:${node.port}
remote_username ${device.id}
remote_password ${device.secret}
topic # both 1 "" ${device.topic}/
${more}
`,
    )
    const child = spawn(BROKER as string, ['-c', file], { stdio: 'ignore' })
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
    await until(async () => (await device.connections()) === 1, 'the bridge has subscribed')
    return {
      port,
      async [Symbol.asyncDispose]() {
        child.kill('SIGKILL')
        await ended
        rmSync(folder, { recursive: true })
      },
    }
  }

  test.each([
    ['as it is by default', ''],
    ['of 3.1', 'bridge_protocol_version mqttv31'],
    ['of 3.1.1', 'bridge_protocol_version mqttv311'],
    ['of 5.0', 'bridge_protocol_version mqttv50'],
  ])('%s carries messages in both directions once', async (_name, more) => {
    const device = await aDevice(plant, node.port)
    await using broker = await localBroker(device, more)
    using local = await connectPeer(broker.port, { clientId: 'local' })
    await subscribe(local, '#')
    using remote = await anotherPeer(device)
    await subscribe(remote, `${device.topic}/#`)
    await publish(local, 'up', PACK)
    expect((await remote.next('publish')).topic).toBe(`${device.topic}/up`)
    await publish(remote, `${device.topic}/down`, PACK)
    expect(await topicsUntilLast(local, 'down')).toEqual(['up', 'down'])
    await publish(local, 'up/again', PACK, { retain: true })
    await publish(remote, `${device.topic}/end`, PACK)
    expect(await topicsUntilLast(local, 'end')).toEqual(['up/again', 'end'])
    expect((await device.stored()).map(({ subtopic }) => subtopic)).toEqual(
      expect.arrayContaining(['up', 'down', 'up.again', 'end']),
    )
    expect(await device.stored()).toHaveLength(4)
  })
})
