// Devices that connect all at once, as after the end of a node: admission is bounded and fair between domains, and the look-ups that
// they share keep each device apart.
import { expect, test } from 'vitest'
import { newTenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { connectPeer, publish, subscribe } from './peer.ts'
import type { Connecting } from './peer.ts'
import { startNode } from './support.ts'

const SERVER_BUSY = 0x89
/** "Server unavailable", the only code of 3.1.1 that fits. */
const UNAVAILABLE = 3
const BAD_USER_NAME_OR_PASSWORD = 0x86
const NOT_AUTHORIZED = 0x87
const DEVICES = 40

const api = useWorld(() => startTestApi())

async function newDevices(count: number) {
  const tenant = await newTenant(api)
  const channel = await tenant.newChannel()
  const devices = await Promise.all(
    Array.from({ length: count }, async () => {
      const { id, credentials } = await tenant.newClient()
      await tenant.connect(id, channel.id)
      return { username: id, password: Buffer.from(credentials.secret) }
    }),
  )
  return { topic: `m/${tenant.domainId}/c/${channel.id}`, devices }
}

const codeOf = ({ connack }: { connack: { reasonCode?: number; returnCode?: number } }) =>
  connack.reasonCode ?? connack.returnCode

test('of one domain only so many wait, others get Server busy, and other domains are not delayed', async () => {
  const [crowd, other] = [await newDevices(4), await newDevices(1)]
  const held = Promise.withResolvers<void>()
  let opening = 0
  let crowdKey: number | undefined
  const node = await startNode(api, {
    openings: { share: 1, maxWaiting: 1 },
    storeOf: (store) => ({
      ...store,
      async open(session) {
        crowdKey ??= session.domainKey
        if (session.domainKey === crowdKey) {
          opening += 1
          await held.promise
        }
        return await store.open(session)
      },
    }),
  })
  const connect = (login: Connecting | undefined, protocolVersion: 4 | 5 = 5) =>
    connectPeer(node.port, { protocolVersion, ...login })
  try {
    const first = connect(crowd.devices[0])
    await until(() => opening === 1, 'the first session of the crowd is being opened')
    const waiting = [connect(crowd.devices[1]), connect(crowd.devices[1])]
    // Of the two one waits, and the other finds the queue full.
    using refused = await Promise.race(waiting)
    expect(codeOf(refused)).toBe(SERVER_BUSY)
    using older = await connect(crowd.devices[2], 4)
    expect(codeOf(older)).toBe(UNAVAILABLE)
    using elsewhere = await connect(other.devices[0])
    expect(codeOf(elsewhere)).toBe(0)
    expect(opening).toBe(1)
    held.resolve()
    using served = await first
    expect(codeOf(served)).toBe(0)
    const codes = await Promise.all(waiting.map(async (peer) => codeOf(await peer)))
    expect(codes.toSorted((one, other) => (one ?? 0) - (other ?? 0))).toEqual([0, SERVER_BUSY])
    using late = await connect(crowd.devices[3])
    expect(codeOf(late)).toBe(0)
    for (const peer of waiting) (await peer)[Symbol.dispose]()
  } finally {
    held.resolve()
    await node.stop()
  }
})

test('each of many devices that connect together is its own client, and a wrong secret among them is refused', async () => {
  const [one, two] = await Promise.all([newDevices(DEVICES), newDevices(DEVICES)])
  const node = await startNode(api)
  const connectAll = (devices: readonly Connecting[]) =>
    Promise.all(devices.map((login) => connectPeer(node.port, { protocolVersion: 5, ...login })))
  try {
    const strangers = one.devices.map(({ username }, place) => ({
      username,
      password: two.devices[place]?.password ?? Buffer.from(''),
    }))
    const [ones, twos, refused] = await Promise.all([
      connectAll(one.devices),
      connectAll(two.devices),
      connectAll(strangers),
    ])
    expect(new Set([...ones, ...twos].map(codeOf))).toEqual(new Set([0]))
    expect(new Set(refused.map(codeOf))).toEqual(new Set([BAD_USER_NAME_OR_PASSWORD]))
    // Each may subscribe in its own domain only.
    const granted = await Promise.all([
      ...ones.map((peer, place) => subscribe(peer, `${one.topic}/to/${place}`)),
      ...twos.map((peer, place) => subscribe(peer, `${one.topic}/to/${place}`)),
    ])
    expect(granted.slice(0, DEVICES).flat()).toEqual(Array.from({ length: DEVICES }, () => 1))
    expect(granted.slice(DEVICES).flat()).toEqual(Array.from({ length: DEVICES }, () => NOT_AUTHORIZED))
    const [sender] = ones
    if (sender === undefined) throw new Error('no device is connected')
    for (const place of [3, DEVICES - 1]) {
      await publish(sender, `${one.topic}/to/${place}`, `for ${place}`)
      expect((await ones[place]?.next('publish'))?.payload.toString()).toBe(`for ${place}`)
    }
    expect(ones.flatMap(({ inbox }) => inbox.filter(({ cmd }) => cmd === 'publish'))).toEqual([])
    for (const peer of [...ones, ...twos, ...refused]) peer[Symbol.dispose]()
  } finally {
    await node.stop()
  }
})

test('devices that subscribe together get the retained messages of their own filters, whole or with wildcards', async () => {
  const { topic, devices } = await newDevices(DEVICES)
  const node = await startNode(api)
  try {
    const peers = await Promise.all(devices.map((login) => connectPeer(node.port, { protocolVersion: 5, ...login })))
    const [sender] = peers
    if (sender === undefined) throw new Error('no device is connected')
    for (const place of [1, 2]) await publish(sender, `${topic}/kept/${place}/state`, `kept ${place}`, { retain: true })
    await Promise.all(
      peers.map((peer, place) => subscribe(peer, `${topic}/kept/${place}/${place % 2 === 0 ? '#' : 'state'}`)),
    )
    for (const place of [1, 2]) expect((await peers[place]?.next('publish'))?.payload.toString()).toBe(`kept ${place}`)
    expect(peers.flatMap(({ inbox }) => inbox.filter(({ cmd }) => cmd === 'publish'))).toEqual([])
    for (const peer of peers) peer[Symbol.dispose]()
  } finally {
    await node.stop()
  }
})
