/** CONNECT (contract section 7.3; MQTT 3.1.1 and 5.0 section 3.1): who is let in, and as whom. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { connectPeer, openPeer } from './peer.ts'
import type { Node } from './support.ts'
import { REVOKED_WITHIN_MS, aDevice, as, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

describe.each([3, 4, 5] as const)('protocol level %i', (protocolVersion) => {
  test('client id and secret are accepted', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion, clientId: 'one' })
    expect(peer.connack.returnCode ?? peer.connack.reasonCode).toBe(0)
    expect(peer.connack.sessionPresent).toBe(false)
  })

  test.each([
    ['a wrong secret', (id: string) => ({ username: id, password: Buffer.from('wrong secret of a client') })],
    ['no credentials', () => ({})],
    ['no password', (id: string) => ({ username: id })],
    ['another client id', (_id: string, secret: string) => ({ username: newId(), password: Buffer.from(secret) })],
    ['a user name that is no id', (_id: string, secret: string) => ({ username: 'x', password: Buffer.from(secret) })],
  ])('%s is refused with bad user name or password, and the socket is closed', async (_what, credentials) => {
    const device = await plant.newConnectedDevice()
    using peer = await connectPeer(node.port, {
      protocolVersion,
      clientId: 'c',
      ...credentials(device.id, device.secret),
    })
    const code = protocolVersion === 5 ? peer.connack.reasonCode : peer.connack.returnCode
    expect(code).toBe(protocolVersion === 5 ? 0x86 : 4)
    await peer.closed()
  })

  test('a zero-length user name leaves the identification to the secret', async () => {
    const device = await plant.newConnectedDevice()
    using peer = await connectPeer(node.port, as(device, { protocolVersion, clientId: 'c', username: '' }))
    expect(peer.connack.returnCode ?? peer.connack.reasonCode).toBe(0)
  })
})

test('an empty identifier is replaced by the server in 5.0, and requires a clean session in earlier versions', async () => {
  const device = await aDevice(plant, node.port)
  using newer = await device.connect({ protocolVersion: 5, clientId: '' })
  expect(newer.connack.properties?.assignedClientIdentifier).toMatch(/^[0-9a-f-]{36}$/)
  using clean = await device.connect({ clientId: '' })
  expect(clean.connack.returnCode).toBe(0)
  using kept = await openPeer(node.port)
  kept.send(Buffer.from([0x10, 12, 0, 4, 77, 81, 84, 84, 4, 0, 0, 0, 0, 0]))
  expect((await kept.next('connack')).returnCode).toBe(2)
  await kept.closed()
})

test('an unknown version is answered with "unacceptable protocol version" in its own format', async () => {
  using peer = await openPeer(node.port)
  peer.send(Buffer.from([0x10, 12, 0, 4, 77, 81, 84, 84, 9, 2, 0, 0, 0, 0]))
  await peer.closed()
  using older = await openPeer(node.port)
  older.send(Buffer.from([0x10, 14, 0, 6, 77, 81, 73, 115, 100, 112, 2, 2, 0, 0, 0, 0]))
  expect((await older.next('connack')).returnCode).toBe(1)
  await older.closed()
})

test('a second CONNECT, and anything before the first, closes the connection [MQTT-3.1.0-1, MQTT-3.1.0-2]', async () => {
  const device = await aDevice(plant, node.port)
  using twice = await device.connect({ clientId: 'twice' })
  twice.send({ cmd: 'connect', clientId: 'twice', protocolId: 'MQTT', protocolVersion: 4 })
  await twice.closed()
  using early = await openPeer(node.port)
  early.send({ cmd: 'pingreq' })
  await early.closed()
})

test('an authentication method is refused, and AUTH without one is a protocol error', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5, properties: { authenticationMethod: 'SCRAM' } })
  expect(peer.connack.reasonCode).toBe(0x8c)
  await peer.closed()
  using other = await device.connect({ protocolVersion: 5 })
  other.send({ cmd: 'auth', reasonCode: 0x18, properties: { authenticationMethod: 'x' } })
  expect((await other.next('disconnect')).reasonCode).toBe(0x82)
})

test('the same client and identifier takes over the session; another client with the same identifier does not', async () => {
  const [one, other] = [await aDevice(plant, node.port), await aDevice(plant, node.port)]
  using first = await one.connect({ clientId: 'same', protocolVersion: 5 })
  using stranger = await other.connect({ clientId: 'same', protocolVersion: 5 })
  using second = await one.connect({ clientId: 'same', protocolVersion: 5 })
  expect((await first.next('disconnect')).reasonCode).toBe(0x8e)
  await first.closed()
  expect(second.connack.reasonCode).toBe(0)
  stranger.send({ cmd: 'pingreq' })
  await stranger.next('pingresp')
})

test('a peer that is silent for one and a half keep alives is closed [MQTT-3.1.2-22]', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ keepalive: 1, protocolVersion: 5 })
  expect((await peer.next('disconnect')).reasonCode).toBe(0x8d)
  await peer.closed()
})

test('CONNACK lists the features of the server in 5.0', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({
    protocolVersion: 5,
    clientId: 'offer',
    properties: { sessionExpiryInterval: 0xffff_ffff },
  })
  const { receiveMaximum, topicAliasMaximum, maximumPacketSize, sessionExpiryInterval } = peer.connack.properties ?? {}
  expect({ receiveMaximum, topicAliasMaximum }).toEqual({ receiveMaximum: 1000, topicAliasMaximum: 100 })
  expect(maximumPacketSize).toBeGreaterThan(0)
  expect(sessionExpiryInterval).toBe(7 * 86_400)
})

test.each([
  ['is disabled', async (id: string) => await plant.owner.call('POST', `/${plant.domainId}/clients/${id}/disable`)],
  ['is deleted', async (id: string) => await plant.owner.call('DELETE', `/${plant.domainId}/clients/${id}`)],
  [
    'is given another secret',
    async (id: string) =>
      await plant.owner.call('PATCH', `/${plant.domainId}/clients/${id}/secret`, { secret: `another-${newId()}` }),
  ],
])('a client that %s loses its connection', async (_what, change) => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5, clientId: 'gone', clean: false })
  const response = await change(device.id)
  expect(response.status).toBeLessThan(300)
  const { reasonCode } = await peer.next('disconnect', REVOKED_WITHIN_MS)
  expect(reasonCode).toBe(0x87)
  await peer.closed()
})

test('a disabled client loses its stored sessions, too', async () => {
  const device = await aDevice(plant, node.port)
  const sessions = async () =>
    (await plant.owner.call('GET', `/${plant.domainId}/clients/${device.id}/sessions`)).json<{
      total: number
      sessions: { connected: boolean }[]
    }>()
  using peer = await device.connect({ clientId: 'left', clean: false })
  peer.send({ cmd: 'disconnect' })
  await until(async () => (await sessions()).sessions[0]?.connected === false, 'the session is kept')
  await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)
  await until(async () => (await sessions()).total === 0, 'the session is gone', REVOKED_WITHIN_MS)
})
