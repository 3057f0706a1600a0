/** Behind a load balancer: the PROXY protocol, version 2, from SKEIN_TRUST_PROXY alone; by hand and by HAProxy itself. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect as connectTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import mqtt from 'mqtt'
import type { MqttClient } from 'mqtt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { as, aDevice, startNode } from './support.ts'
import type { Node } from './support.ts'
import { openPeer } from './peer.ts'
import type { Peer } from './peer.ts'

const HAPROXY = '/usr/sbin/haproxy'
const DEVICE_ADDRESS = '198.51.100.7'
const SIGNATURE = '0d0a0d0a000d0a515549540a'
const header = (rest: string) => Buffer.from(SIGNATURE + rest, 'hex')
/** 198.51.100.7:49152 to 192.0.2.1:8883, with an extension of two bytes. */
const ANNOUNCED = header('211100' + '11' + 'c6336407c0000201c00022b3' + '040002ffff')
const LOCAL = header('20000000')

const plant = useWorld(() => startPlant())
let trusting: Node
let direct: Node
let ca: string

beforeAll(async () => {
  const { certificates } = plant.api.api.provisioning
  ca = certificates.authority.certificate
  const tls = { port: 0, files: certificates.ensureTls(undefined), clientOf: certificates.clientOf }
  trusting = await startNode(plant.api, { tls, trustProxy: ['127.0.0.1'] })
  direct = await startNode(plant.api, { tls, trustProxy: ['192.0.2.0/24'] })
}, 60_000)
afterAll(async () => {
  await trusting.stop()
  await direct.stop()
})

type Device = Awaited<ReturnType<typeof aDevice>>

/** Where the sessions of the device came from. */
async function addressesOf(device: Device): Promise<string[]> {
  const path = `/${plant.domainId}/clients/${device.id}/sessions`
  const { sessions } = (await plant.owner.call('GET', path)).json<{ sessions: { address: string }[] }>()
  return sessions.map(({ address }) => address)
}

const CONNECT = { cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clean: true, keepalive: 0, clientId: '' }

async function connectWith(device: Device, chunks: readonly Buffer[], node = trusting): Promise<Peer> {
  const peer = await openPeer(node.port)
  for (const chunk of chunks) {
    peer.send(chunk)
    // One segment each.
    await new Promise((resolve) => setImmediate(resolve))
  }
  peer.send({ ...CONNECT, ...as(device) } as Parameters<Peer['send']>[0])
  return peer
}

describe('a connection of a trusted load balancer', () => {
  test.each([
    ['in one piece', [ANNOUNCED]],
    ['byte by byte', [...ANNOUNCED].map((byte) => Buffer.from([byte]))],
  ])('comes from the device that its header names: %s', async (_how, chunks) => {
    const device = await aDevice(plant, trusting.port)
    using peer = await connectWith(device, chunks)
    expect((await peer.next('connack')).returnCode).toBe(0)
    expect(await addressesOf(device)).toEqual([DEVICE_ADDRESS])
  })

  test.each([
    ['for itself', [LOCAL]],
    ['without a header', []],
  ])('comes from the load balancer: %s', async (_how, chunks) => {
    const device = await aDevice(plant, trusting.port)
    using peer = await connectWith(device, chunks)
    expect((await peer.next('connack')).returnCode).toBe(0)
    expect(await addressesOf(device)).toEqual(['127.0.0.1'])
  })

  test.each([
    ['of another version', header('11110000')],
    ['that is too short for its addresses', header('21110004c6336407')],
    ['that is too long', header('2111ffff')],
    ['of version 1', Buffer.from('PROXY TCP4 198.51.100.7 192.0.2.1 49152 8883\r\n')],
  ])('is closed with a header %s', async (_what, bytes) => {
    const device = await aDevice(plant, trusting.port)
    using peer = await connectWith(device, [bytes])
    await peer.closed()
    expect(peer.inbox).toEqual([])
    expect(await addressesOf(device)).toEqual([])
  })

  test('is closed when the header does not arrive', async () => {
    using silent = await openPeer(trusting.port)
    using slow = await openPeer(trusting.port)
    slow.send(ANNOUNCED.subarray(0, 20))
    await Promise.all([silent.closed(), slow.closed()])
  })

  test('ends with its node while the header is awaited', async () => {
    const node = await startNode(plant.api, { trustProxy: ['loopback'] })
    using peer = await openPeer(node.port)
    peer.send(ANNOUNCED.subarray(0, 3))
    await node.stop()
    await peer.closed()
  })

  test('may be TLS after the header', async () => {
    const device = await aDevice(plant, trusting.port)
    const socket = connectTcp({ port: trusting.server.tlsPort as number, host: '127.0.0.1' })
    socket.write(ANNOUNCED)
    const secure = connectTls({ socket, servername: 'localhost', ca })
    await using opened = new MqttOver(() => secure, device)
    await opened.connected
    expect(await addressesOf(device)).toEqual([DEVICE_ADDRESS])
    await opened.client.publishAsync(device.topic, 'x'.repeat(100_000), { qos: 2 })
    expect(await device.stored('raw')).toHaveLength(1)
  })

  test('is closed when what follows the header is not TLS', async () => {
    const socket = connectTcp({ port: trusting.server.tlsPort as number, host: '127.0.0.1' })
    const closed = new Promise((resolve) => socket.once('close', resolve))
    socket.on('error', () => undefined).resume()
    socket.write(Buffer.concat([ANNOUNCED, Buffer.from('GET / HTTP/1.1\r\n\r\n')]))
    await closed
  })
})

describe('a connection of any other address', () => {
  test('cannot say that it is another', async () => {
    const device = await aDevice(plant, direct.port)
    using peer = await connectWith(device, [ANNOUNCED], direct)
    await peer.closed()
    expect(await addressesOf(device)).toEqual([])
  })

  test('is accepted without a header, over TLS too', async () => {
    const device = await aDevice(plant, direct.port)
    const client = await mqtt.connectAsync(`mqtts://localhost:${direct.server.tlsPort}`, {
      username: device.id,
      password: device.secret,
      reconnectPeriod: 0,
      ca,
    })
    expect(await addressesOf(device)).toEqual(['127.0.0.1'])
    await client.endAsync()
  })
})

/** mqtt.js over a stream that is already open. */
class MqttOver implements AsyncDisposable {
  readonly client: MqttClient
  readonly connected: Promise<unknown>

  constructor(streamOf: () => ReturnType<typeof connectTls>, { id, secret }: Device) {
    this.client = new mqtt.MqttClient(streamOf, { username: id, password: secret, reconnectPeriod: 0 })
    this.connected = new Promise((resolve, reject) => this.client.once('connect', resolve).once('error', reject))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.endAsync(true)
  }
}

const isInstalled = existsSync(HAPROXY)

test.runIf(process.env['CI'] === 'true')('HAProxy is installed where tests decide', () => {
  expect(isInstalled).toBe(true)
})

describe.skipIf(!isInstalled)('HAProxy with send-proxy-v2', () => {
  let folder: string
  let haproxy: ChildProcess
  let output = ''
  let ports: number[]

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'skein-haproxy-'))
    ports = await freePorts(2)
    const server = `check inter 100ms send-proxy-v2 check-send-proxy`
    writeFileSync(
      join(folder, 'haproxy.cfg'),
      `global
  log stdout format raw local0
defaults
  mode tcp
  timeout connect 5s
  timeout client 1m
  timeout server 1m
listen mqtt
  bind 127.0.0.1:${ports[0]}
  server node 127.0.0.1:${trusting.port} ${server}
listen mqtts
  bind 127.0.0.1:${ports[1]}
  server node 127.0.0.1:${trusting.server.tlsPort} ${server}
`,
    )
    haproxy = spawn(HAPROXY, ['-db', '-f', join(folder, 'haproxy.cfg')], { stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [haproxy.stdout, haproxy.stderr])
      stream?.on('data', (chunk: Buffer) => (output += chunk.toString()))
    await until(async () => {
      if (haproxy.exitCode !== null) throw new Error(`HAProxy ended: ${output}`)
      const socket = connectTcp({ port: ports[0] as number, host: '127.0.0.1' })
      const isOpen = await new Promise<boolean>((resolve) =>
        socket.once('connect', () => resolve(true)).once('error', () => resolve(false)),
      )
      socket.destroy()
      return isOpen
    }, 'HAProxy listens')
  })
  afterAll(async () => {
    const ended = new Promise((resolve) => haproxy.once('exit', resolve))
    haproxy.kill('SIGKILL')
    await ended
    rmSync(folder, { recursive: true })
  })

  test.each([
    ['MQTT', 0],
    ['MQTT over TLS', 1],
  ])('%s: the node sees the address of the device, and messages pass', async (_what, index) => {
    const device = await aDevice(plant, trusting.port)
    // The whole of 127.0.0.0/8 is this machine: the device has an address that is not that of HAProxy.
    const socket = connectTcp({ port: ports[index] as number, host: '127.0.0.1', localAddress: '127.0.0.5' })
    const stream = index === 0 ? socket : connectTls({ socket, servername: 'localhost', ca })
    await using opened = new MqttOver(() => stream as ReturnType<typeof connectTls>, device)
    await opened.connected
    expect(await addressesOf(device)).toEqual(['127.0.0.5'])
    await opened.client.publishAsync(device.topic, 'raw', { qos: 1 })
    expect(await device.stored('raw')).toHaveLength(1)
  })

  test('its health checks are accepted', () => {
    expect(output).not.toContain('is DOWN')
  })
})
