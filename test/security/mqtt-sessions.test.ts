/** MQTT sessions of one client (SKEIN_MQTT_SESSIONS_PER_CLIENT): bounded on all nodes together, listed and ended by the owner. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import type { Plant } from '../messages/support.ts'
import { startPlant } from '../messages/support.ts'
import type { Connecting, Peer } from '../mqtt/peer.ts'
import { publish, receive, subscribe } from '../mqtt/peer.ts'
import type { Node } from '../mqtt/support.ts'
import { aDevice, anotherProcess, startNode } from '../mqtt/support.ts'

const MAX_SESSIONS = 3
const QUOTA_EXCEEDED = 0x97
const SERVER_UNAVAILABLE = 3

let plant: Plant
let otherApi: TestApi
let node: Node
let other: Node
beforeAll(async () => {
  plant = await startPlant()
  otherApi = await anotherProcess(plant)
  const bound = { maxSessionsPerClient: MAX_SESSIONS }
  ;[node, other] = [await startNode(plant.api, bound), await startNode(otherApi, bound)]
})
afterAll(async () => {
  await other.stop()
  await node.stop()
  await otherApi[Symbol.asyncDispose]()
  await plant[Symbol.asyncDispose]()
})

const KEPT: Record<4 | 5, Connecting> = {
  4: { protocolVersion: 4, clean: false },
  5: { protocolVersion: 5, clean: false, properties: { sessionExpiryInterval: 1000 } },
}
const codeOf = ({ connack }: { connack: { returnCode?: number; reasonCode?: number } }) =>
  connack.reasonCode ?? connack.returnCode

async function goneFrom(peer: Peer): Promise<void> {
  peer.send({ cmd: 'disconnect' })
  await peer.closed()
}

type Device = Awaited<ReturnType<typeof aDevice>>
type Listed = { client_identifier: string; connected: boolean }
const pathOf = (device: Device) => `/${plant.domainId}/clients/${device.id}/sessions`
/** The total and the rows are read one after the other: of a session that ends meanwhile, the list is read again. */
const sessionsOf = (device: Device) =>
  until(async () => {
    const { total, sessions } = (await plant.owner.call('GET', pathOf(device))).json<{
      total: number
      sessions: Listed[]
    }>()
    return sessions.length === total ? sessions : undefined
  }, 'as many sessions as their total')
const identifiersOf = async (device: Device) => (await sessionsOf(device)).map((one) => one.client_identifier)
const end = (device: Device, identifier?: string, call = plant.owner.call) =>
  call(
    'DELETE',
    `${pathOf(device)}${identifier === undefined ? '' : `?client_identifier=${encodeURIComponent(identifier)}`}`,
  )

describe.each([4, 5] as const)('protocol level %i', (version) => {
  const refused = version === 5 ? QUOTA_EXCEEDED : SERVER_UNAVAILABLE

  test('stored sessions are counted, the next CONNECT is refused, and none is ended to make room', async () => {
    const device = await aDevice(plant, node.port)
    for (const clientId of ['a', 'b', 'c']) {
      const peer = await device.connect({ ...KEPT[version], clientId })
      await goneFrom(peer)
    }
    for (const more of [
      { ...KEPT[version], clientId: 'd' },
      { protocolVersion: version, clean: true, clientId: 'd' },
    ]) {
      using late = await device.connect(more)
      expect(codeOf(late)).toBe(refused)
      await late.closed()
    }
    expect(await identifiersOf(device)).toEqual(['a', 'b', 'c'])
    // A client with a session resumes it as before.
    using back = await device.connect({ ...KEPT[version], clientId: 'b' })
    expect([codeOf(back), back.connack.sessionPresent]).toEqual([0, true])
  })

  test('connections without a stored session are counted while they last', async () => {
    const device = await aDevice(plant, node.port)
    const connectClean = (clientId: string) => device.connect({ protocolVersion: version, clean: true, clientId })
    using first = await connectClean('a')
    using _second = await connectClean('b')
    using _third = await connectClean('c')
    using late = await connectClean('d')
    expect(codeOf(late)).toBe(refused)
    await goneFrom(first)
    await until(async () => (await identifiersOf(device)).length === 2, 'its place is free')
    using again = await connectClean('d')
    expect(codeOf(again)).toBe(0)
  })
})

test('concurrent connections at two nodes are accepted up to the limit', async () => {
  const device = await aDevice(plant, node.port)
  const peers = await Promise.all(
    Array.from({ length: 8 * MAX_SESSIONS }, (_, index) =>
      device.connect({ ...KEPT[5], clientId: `s${index}` }, index % 2 === 0 ? node.port : other.port),
    ),
  )
  try {
    expect(peers.filter((peer) => codeOf(peer) === 0)).toHaveLength(MAX_SESSIONS)
    expect(peers.filter((peer) => codeOf(peer) === QUOTA_EXCEEDED)).toHaveLength(7 * MAX_SESSIONS)
    expect(await identifiersOf(device)).toHaveLength(MAX_SESSIONS)
  } finally {
    for (const peer of peers) peer[Symbol.dispose]()
  }
})

test('another client has a limit of its own', async () => {
  const [full, free] = [await aDevice(plant, node.port), await aDevice(plant, node.port)]
  for (const clientId of ['a', 'b', 'c']) await goneFrom(await full.connect({ ...KEPT[5], clientId }))
  using peer = await free.connect({ ...KEPT[5], clientId: 'a' })
  expect(codeOf(peer)).toBe(0)
})

test('the owner ends one session or all of them, with and without a connection, on every node', async () => {
  const device = await aDevice(plant, node.port)
  using here = await device.connect({ ...KEPT[5], clientId: 'here/a b' })
  using there = await device.connect({ ...KEPT[5], clientId: 'there' }, other.port)
  await goneFrom(await device.connect({ ...KEPT[5], clientId: 'stored' }))
  expect((await end(device, 'unknown')).status).toBe(404)
  expect((await end(device, 'here/a b')).status).toBe(204)
  await here.closed()
  expect(await identifiersOf(device)).toEqual(['stored', 'there'])
  expect((await end(device, 'here/a b')).status).toBe(404)
  // There is room at once for a new session.
  using again = await device.connect({ ...KEPT[5], clientId: 'here/a b' })
  expect([codeOf(again), again.connack.sessionPresent]).toEqual([0, false])
  expect((await end(device)).status).toBe(204)
  await Promise.all([again.closed(), there.closed()])
  expect(await identifiersOf(device)).toEqual([])
  expect((await end(device)).status).toBe(204)
})

test('an ended session sends its will, and its waiting messages are dropped', async () => {
  const device = await aDevice(plant, node.port)
  using watcher = await device.connect({ clientId: 'watcher' })
  await subscribe(watcher, `${device.topic}/will`)
  using peer = await device.connect({
    ...KEPT[5],
    clientId: 'willing',
    will: { topic: `${device.topic}/will`, payload: Buffer.from('ended') as never, qos: 1, retain: false },
  })
  await subscribe(peer, `${device.topic}/data`)
  expect((await end(device, 'willing')).status).toBe(204)
  expect(await receive(watcher)).toBe('ended')
  await publish(watcher, `${device.topic}/data`, 'missed')
  using back = await device.connect({ ...KEPT[5], clientId: 'willing' })
  expect(back.connack.sessionPresent).toBe(false)
})

test('ending requires update on the client, and is recorded in its journal', async () => {
  const device = await aDevice(plant, node.port)
  await goneFrom(await device.connect({ ...KEPT[5], clientId: 'kept' }))
  const stranger = await plant.api.newUser()
  expect((await end(device, 'kept', stranger.call)).status).toBe(403)
  expect((await end(device, 'kept', plant.api.anonymous)).status).toBe(401)
  expect(await identifiersOf(device)).toEqual(['kept'])
  expect((await end(device, 'kept')).status).toBe(204)
  const journal = await plant.owner.call(
    'GET',
    `/${plant.domainId}/journal/client/${device.id}?with_attributes=true&operation=client.end_sessions`,
  )
  expect(journal.json()).toMatchObject({
    total: 1,
    journals: [{ attributes: { id: device.id, client_identifiers: ['kept'], total: 1 } }],
  })
})
