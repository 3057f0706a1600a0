/** MQTT over TLS (contract sections 7.3 and 9.3): a certificate stands for its client, a revoked one for nobody. */
import mqtt from 'mqtt'
import type { IClientOptions, MqttClient } from 'mqtt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Node } from './support.ts'
import { REVOKED_WITHIN_MS, aDevice, startNode } from './support.ts'

type Pair = { cert: string; key: string; serial: string }

const plant = useWorld(() => startPlant())
let node: Node
let ca: string
const open: MqttClient[] = []

beforeAll(async () => {
  const { certificates } = plant.api.api.provisioning
  ca = certificates.authority.certificate
  node = await startNode(plant.api, {
    tls: { port: 0, files: certificates.ensureTls(undefined), clientOf: certificates.clientOf },
  })
}, 60_000)
afterAll(async () => {
  for (const client of open) client.end(true)
  await node.stop()
})

async function issue(clientId: string): Promise<Pair> {
  const body = { client_id: clientId, ttl: '1h' }
  const answer = await plant.owner.call('POST', `/${plant.domainId}/certs`, body)
  const { certificate, key, serial_number: serial } = answer.json<Record<string, string>>()
  return { cert: certificate as string, key: key as string, serial: serial as string }
}

async function connect(options: IClientOptions): Promise<MqttClient> {
  const client = await mqtt.connectAsync(`mqtts://localhost:${node.server.tlsPort}`, {
    ca,
    reconnectPeriod: 0,
    ...options,
  })
  open.push(client)
  return client
}

const pairOf = ({ cert, key }: Pair) => ({ cert, key })

/** How CONNECT was answered. */
const refusalOf = (options: IClientOptions) =>
  connect(options).then(
    () => 'accepted',
    (error: Error & { code?: number }) => error.code ?? error.message,
  )

describe('over TLS', () => {
  test('a certificate authenticates its client without a password, for its own messages', async () => {
    const device = await aDevice(plant, node.port)
    const client = await connect(pairOf(await issue(device.id)))
    await client.publishAsync(`${device.topic}/a`, '[{"n":"t","v":1}]', { qos: 2 })
    expect(await device.stored()).toMatchObject([{ publisher: device.id, protocol: 'mqtt', value: 1 }])
  })

  test('a secret is accepted as without TLS, and a connection with neither certificate nor secret is refused', async () => {
    const device = await aDevice(plant, node.port)
    const client = await connect({ username: device.id, password: device.secret, protocolVersion: 5 })
    await client.publishAsync(device.topic, 'raw', { qos: 1 })
    expect(await device.stored('raw')).toHaveLength(1)
    expect(await refusalOf({})).toBe(4)
    expect(await refusalOf({ protocolVersion: 5 })).toBe(0x86)
  })

  test('a wrong secret is refused despite a certificate', async () => {
    const device = await aDevice(plant, node.port)
    const pair = await issue(device.id)
    expect(await refusalOf({ ...pairOf(pair), username: device.id, password: 'wrong' })).toBe(4)
  })

  test('a revoked certificate is refused within a second and its open session ends, while another one continues', async () => {
    const device = await aDevice(plant, node.port)
    const [gone, kept] = [await issue(device.id), await issue(device.id)]
    const lost = await connect({ ...pairOf(gone), clientId: 'lost', protocolVersion: 5 })
    const other = await connect({ ...pairOf(kept), clientId: 'other' })
    let reasonCode: number | undefined
    let isClosed = false
    lost.on('disconnect', (packet) => (reasonCode = packet.reasonCode))
    lost.on('close', () => (isClosed = true))
    const answer = await plant.owner.call('DELETE', `/${plant.domainId}/certs/${gone.serial}`)
    expect(answer.status).toBe(200)
    await until(() => isClosed, 'the session of the revoked certificate is closed', REVOKED_WITHIN_MS)
    expect(reasonCode).toBe(0x87)
    expect(await refusalOf(pairOf(gone))).toBe(4)
    await other.publishAsync(device.topic, 'still here', { qos: 1 })
    expect(await device.stored('raw')).toHaveLength(1)
  })

  test('a disabled client loses the session that its certificate opened', async () => {
    const device = await aDevice(plant, node.port)
    const pair = await issue(device.id)
    const client = await connect(pairOf(pair))
    let isClosed = false
    client.on('close', () => (isClosed = true))
    await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)
    await until(() => isClosed, 'the session is closed', REVOKED_WITHIN_MS)
    expect(await refusalOf(pairOf(pair))).toBe(4)
  })
})
