/**
 * What holds between the nodes of one installation, whatever carries their hints: nodes of several machines over Redis, and processes
 * of one machine under their supervisor.
 */
import { expect, test } from 'vitest'
import type { Caller } from '../harness/api.ts'
import type { EventReader } from '../harness/event-stream.ts'
import { untilInForce } from '../harness/in-force.ts'
import { until } from '../harness/until.ts'
import { connectPeer, publish as publishMqtt, receive, subscribe } from '../mqtt/peer.ts'
import type { Connecting } from '../mqtt/peer.ts'

export type NodeIndex = 0 | 1

export type SeveralNodes = AsyncDisposable & {
  readonly domainId: string
  /** Requests of the owner of the domain, to any node. */
  readonly owner: Caller
  /** Requests to one of the nodes. */
  as(node: NodeIndex, authorization: string | undefined): Caller
  follow(node: NodeIndex, path: string, authorization: string): Promise<EventReader>
  /** Where processes share a port, it is the same for both. */
  mqttPort(node: NodeIndex): number
}

export const SENML = { 'content-type': 'application/senml+json' }
export const numbered = (number: number) => `[{"bn":"a","n":"b","v":${number}}]`
export const messagesOf = (reader: EventReader) => reader.events.filter(({ event }) => event === 'message')
export const payloads = (reader: EventReader) => messagesOf(reader).map(({ data }) => JSON.stringify(data['payload']))

/** Connections of MQTT that are opened so that both processes behind one port get some: 1 in 2^15 runs they do not. */
const CONNECTIONS = 16
const MQTT_DEADLINE_MS = 60_000

type Device = { id: string; secret: string; channelId: string }

export async function newConnectedDevice({ owner, domainId }: SeveralNodes): Promise<Device> {
  const create = async <T>(path: string, body: unknown): Promise<T> => {
    const answer = await owner('POST', `/${domainId}${path}`, body)
    expect(answer.status, answer.text).toBe(201)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const client = await create<{ id: string; credentials: { secret: string } }>('/clients', { name: 'client' })
  const channel = await create<{ id: string }>('/channels', { name: 'channel' })
  const body = { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] }
  await create('/channels/connect', body)
  return { id: client.id, secret: client.credentials.secret, channelId: channel.id }
}

/** `nodes` are those of the test file, started before its tests. */
export function behaveAsNodes(nodes: () => SeveralNodes): void {
  const newDevice = () => newConnectedDevice(nodes())
  const pathOf = ({ channelId }: Device) => `/m/${nodes().domainId}/c/${channelId}`
  const publish = async (node: NodeIndex, device: Device, body: string) =>
    (await nodes().as(node, `Client ${device.secret}`)('POST', pathOf(device), body, SENML)).status
  const follow = (node: NodeIndex, device: Device) => nodes().follow(node, pathOf(device), `Client ${device.secret}`)
  const untilRefused = (node: NodeIndex, device: Device, status: number) =>
    untilInForce(() => publish(node, device, numbered(2)), { from: 202, to: status }, 'the node refuses')
  const connect = (node: NodeIndex, { id, secret }: Device, more: Connecting = {}) =>
    connectPeer(nodes().mqttPort(node), { username: id, password: Buffer.from(secret), ...more })

  test('messages of one node reach the followers of the other once, in order and unchanged', async () => {
    const device = await newDevice()
    await using reader = await follow(1, device)
    // The first node knows the followers of other nodes after their hint; until then the changelog is enough.
    const bodies = Array.from({ length: 100 }, (_, number) => numbered(number))
    for (const body of bodies) expect(await publish(0, device, body)).toBe(202)
    await until(() => messagesOf(reader).length >= bodies.length, 'every message arrives')
    const values = messagesOf(reader).map(({ data }) => (data['payload'] as { v: number }[])[0]?.v)
    expect(values).toEqual(bodies.map((_, number) => number))
    // A message that came by a hint has the bytes of its publisher, not what the store makes of them.
    await until(async () => {
      await publish(0, device, numbered(-1))
      return payloads(reader).includes(numbered(-1))
    }, 'a message arrives by a hint')
  })

  test('a message that is too large for a hint arrives as well', async () => {
    const device = await newDevice()
    await using reader = await follow(1, device)
    const text = 'x'.repeat(60_000)
    expect(await publish(0, device, `[{"n":"large","vs":"${text}"}]`)).toBe(202)
    expect(await publish(0, device, numbered(1))).toBe(202)
    await until(() => messagesOf(reader).length === 2, 'both arrive')
    expect(payloads(reader)[0]).toContain(text)
  })

  test('a message that one node acknowledged is in every read of both', async () => {
    const device = await newDevice()
    for (let number = 0; number < 20; number++)
      expect(await publish(number % 2 === 0 ? 0 : 1, device, numbered(number))).toBe(202)
    for (const node of [0, 1] as const) {
      const read = await nodes().as(node, `Client ${device.secret}`)('GET', pathOf(device))
      expect(read.json<{ total: number }>().total).toBe(20)
    }
  })

  test('a removed connection is invalid on both nodes within a second, open streams included', async () => {
    const device = await newDevice()
    await using reader = await follow(1, device)
    for (const node of [0, 1] as const) expect(await publish(node, device, numbered(1))).toBe(202)
    const body = { client_ids: [device.id], channel_ids: [device.channelId] }
    const taken = await nodes().owner('POST', `/${nodes().domainId}/channels/disconnect`, body)
    expect(taken.status).toBe(204)
    for (const node of [0, 1] as const) await untilRefused(node, device, 403)
    await until(reader.isEnded, 'the second node has ended the stream')
    expect(reader.events.at(-1)?.data).toMatchObject({ reason: 'forbidden' })
  })

  test('a client that is disabled at one node is refused by the other within a second', async () => {
    const device = await newDevice()
    for (const node of [0, 1] as const) expect(await publish(node, device, numbered(1))).toBe(202)
    const disabled = await nodes().owner('POST', `/${nodes().domainId}/clients/${device.id}/disable`)
    expect(disabled.status).toBe(200)
    for (const node of [0, 1] as const) await untilRefused(node, device, 401)
  })

  test('wrong passwords count together: two nodes admit no more attempts than one', async () => {
    const attempt = async (node: NodeIndex, identity: string) =>
      (await nodes().as(node, undefined)('POST', '/users/tokens/issue', { identity, secret: 'wrong' })).status
    const statuses: number[] = []
    for (let count = 0; count < 14; count++)
      statuses.push(await attempt(count % 2 === 0 ? 0 : 1, 'nobody-of-this-name'))
    // 10 attempts of one address for one account, and those that come back in half a minute.
    expect(statuses.filter((status) => status === 401).length).toBeLessThanOrEqual(11)
    expect(statuses.at(-1)).toBe(429)
    expect(statuses.slice(0, 9)).toEqual(Array.from({ length: 9 }, () => 401))
  })

  test('a session moves to the node that its client connects to, with its undelivered messages', async () => {
    const device = await newDevice()
    const topic = pathOf(device).slice(1)
    const kept: Connecting = {
      clientId: 'roaming',
      clean: false,
      protocolVersion: 5,
      properties: { sessionExpiryInterval: 1000 },
    }
    using sender = await connect(0, device)
    let last = await connect(0, device, kept)
    expect(await subscribe(last, `${topic}/#`, 1)).toEqual([1])
    for (let count = 0; count < CONNECTIONS; count++) {
      const before = last
      last = await connect(count % 2 === 0 ? 1 : 0, device, kept)
      expect(last.connack.sessionPresent).toBe(true)
      await before.closed()
      before[Symbol.dispose]()
      await publishMqtt(sender, topic, `message ${count}`)
      // An acknowledgement that the earlier connection took with it makes its message come again.
      while ((await receive(last, MQTT_DEADLINE_MS)) !== `message ${count}`);
    }
    last[Symbol.dispose]()
  })

  test('the members of a share group receive each message once, on any nodes', async () => {
    const device = await newDevice()
    const topic = pathOf(device).slice(1)
    using sender = await connect(0, device)
    const members = await Promise.all(
      Array.from({ length: CONNECTIONS }, (_, index) =>
        connect(index % 2 === 0 ? 0 : 1, device, { clientId: `member-${index}`, protocolVersion: 5 }),
      ),
    )
    for (const member of members) expect(await subscribe(member, `$share/all/${topic}/#`, 1)).toEqual([1])
    const received: string[] = []
    const receiving = members.map(async (member) => {
      for (;;) {
        const text = await receive(member, MQTT_DEADLINE_MS).catch(() => undefined)
        if (text === undefined) return
        received.push(text)
      }
    })
    const sent = Array.from({ length: 60 }, (_, index) => `shared ${index}`)
    for (const text of sent) await publishMqtt(sender, topic, text)
    await until(() => received.length >= sent.length, 'every message arrives', MQTT_DEADLINE_MS)
    for (const member of members) member[Symbol.dispose]()
    await Promise.all(receiving)
    expect(received.toSorted()).toEqual(sent.toSorted())
  })

  test('a retained message is sent to new subscribers at both nodes', async () => {
    const device = await newDevice()
    const topic = pathOf(device).slice(1)
    using sender = await connect(0, device)
    await publishMqtt(sender, topic, 'kept', { retain: true })
    for (let count = 0; count < CONNECTIONS; count++) {
      using late = await connect(count % 2 === 0 ? 1 : 0, device, { clientId: `late-${count}` })
      await subscribe(late, topic, 1)
      expect(await receive(late, MQTT_DEADLINE_MS)).toBe('kept')
    }
  })
}
