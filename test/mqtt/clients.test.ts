/** The clients that devices have (contract section 7.3): Mosquitto's, Debian's paho for Python, mqtt.js, over TCP and WebSocket. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import mqtt from 'mqtt'
import { WebSocket } from 'ws'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createMqttUpgrades } from '#api/adapters/mqtt/index.ts'
import { createHttpApp, createMetrics, listen } from '#core/http/index.ts'
import type { Listeners } from '#core/http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Node } from './support.ts'
import { aDevice, startNode } from './support.ts'

const run = promisify(execFile)
const PACK = '[{"n":"t","v":1}]'
const PAHO = `
import sys, paho.mqtt.client as mqtt
port, user, password, topic, version = sys.argv[1:]
args = {'protocol': int(version)}
client = mqtt.Client(**args) if not hasattr(mqtt, 'CallbackAPIVersion') else mqtt.Client(mqtt.CallbackAPIVersion.VERSION1, **args)
client.username_pw_set(user, password)
client.on_connect = lambda c, *rest: c.subscribe(topic + '/#', 2)
client.on_subscribe = lambda c, *rest: c.publish(topic + '/paho', 'from paho', 2)
def received(c, data, message):
    print(message.topic, message.payload.decode(), message.qos)
    c.disconnect()
client.on_message = received
client.connect('127.0.0.1', int(port))
client.loop_forever()
`

const plant = useWorld(() => startPlant())
let node: Node
let listeners: Listeners

beforeAll(async () => {
  node = await startNode(plant.api)
  const app = createHttpApp({
    logger,
    health: {
      build: plant.api.infrastructure.build,
      metrics: createMetrics(),
      readiness: plant.api.infrastructure.readiness,
      serviceOf: () => 'test',
    },
    maxBodyBytes: 1024 * 1024,
    corsOrigins: [],
    trustProxy: [],
    authenticate: plant.api.api.authenticate,
  })
  const upgrades = createMqttUpgrades((stream, address) => node.server.accept(stream, address), 64 * 1024)
  app.server.on('upgrade', (request, socket, head) => {
    if (!upgrades.take(request, socket, head)) socket.destroy()
  })
  listeners = await listen(app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
  })
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
  await node.stop()
})

describe.each(['mqttv31', 'mqttv311', 'mqttv5'])('mosquitto_pub and mosquitto_sub, %s', (version) => {
  test.each([0, 1, 2])('exchange messages with QoS %i', async (qos) => {
    const device = await aDevice(plant, node.port)
    const access = ['-V', version, '-p', `${node.port}`, '-u', device.id, '-P', device.secret, '-q', `${qos}`]
    const subscribed = run('mosquitto_sub', [...access, '-t', `${device.topic}/+`, '-C', '1', '-W', '60', '-v'])
    await until(async () => (await device.connections()) > 0, 'the subscriber is connected')
    await run('mosquitto_pub', [...access, '-t', `${device.topic}/a`, '-m', PACK, '--repeat', '1'])
    expect((await subscribed).stdout).toBe(`${device.topic}/a ${PACK}\n`)
    await until(async () => (await device.stored()).length === 1, 'it is stored')
  })
})

test.each([4, 5])('paho for Python, protocol level %i, subscribes and publishes with QoS 2', async (version) => {
  const device = await aDevice(plant, node.port)
  const args = ['-c', PAHO, `${node.port}`, device.id, device.secret, device.topic, `${version}`]
  const { stdout } = await run('/usr/bin/python3', args, { timeout: 60_000 })
  expect(stdout).toBe(`${device.topic}/paho from paho 2\n`)
})

describe.each([
  ['TCP', () => `mqtt://127.0.0.1:${node.port}`],
  ['WebSocket', () => `ws://127.0.0.1:${listeners.ports[0]}/mqtt`],
])('mqtt.js over %s', (_what, urlOf) => {
  test.each([4, 5] as const)('protocol level %i', async (protocolVersion) => {
    const device = await aDevice(plant, node.port)
    const client = await mqtt.connectAsync(urlOf(), {
      username: device.id,
      password: device.secret,
      protocolVersion,
      reconnectPeriod: 0,
    })
    try {
      const received = new Promise<string>((resolve) =>
        client.once('message', (topic, body) => resolve(`${topic} ${body.toString()}`)),
      )
      await client.subscribeAsync(`${device.topic}/#`, { qos: 2 })
      // Larger than one frame of the socket.
      const body = JSON.stringify([{ n: 'text', vs: 'x'.repeat(20_000) }])
      await client.publishAsync(`${device.topic}/big`, body, { qos: 2 })
      expect(await received).toBe(`${device.topic}/big ${body}`)
    } finally {
      await client.endAsync(true)
    }
  })
})

test('a text frame is not MQTT: the WebSocket is closed with 1003', async () => {
  const socket = new WebSocket(`ws://127.0.0.1:${listeners.ports[0]}/mqtt`, 'mqtt')
  await new Promise((resolve) => socket.once('open', resolve))
  const closed = new Promise<number>((resolve) => socket.once('close', resolve))
  socket.send('hello')
  expect(await closed).toBe(1003)
})
