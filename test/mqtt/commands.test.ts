/** Commands over MQTT: what a device gets and when, and what its answers do. docs/guides/commands.md */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { expectStatus } from '../api/commands-support.ts'
import type { Command } from '../api/commands-support.ts'
import { DOMAIN_ROUTE, startPlant } from '../messages/support.ts'
import type { Peer } from './peer.ts'
import { publish, subscribe } from './peer.ts'
import type { Node } from './support.ts'
import { aDevice, anotherProcess, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

async function commanded() {
  const device = await aDevice(plant, node.port)
  const path = `/${plant.domainId}/clients/${device.id}/commands`
  return {
    ...device,
    requests: `c/${plant.domainId}/commands/requests/+/+`,
    results: (id: string) => `c/${plant.domainId}/commands/results/${id}`,
    given: async (body: unknown = { name: 'reboot' }) =>
      expectStatus(201, await plant.owner.call('POST', path, body)).json<Command>(),
    view: async (id: string) => (await plant.owner.call('GET', `${path}/${id}`)).json<Command>(),
    cancel: (id: string) => plant.owner.call('POST', `${path}/${id}/cancel`),
  }
}

const acknowledge = (peer: Peer, message: { messageId?: number | undefined }) =>
  peer.send({ cmd: 'puback', messageId: message.messageId ?? 0 })

const idOf = ({ topic }: { topic: string }) => topic.split('/')[4]

describe('a device over MQTT', () => {
  test('gets a command, which is delivered with its PUBACK, and answers it', async () => {
    const device = await commanded()
    using peer = await device.connect()
    expect(await subscribe(peer, device.requests)).toEqual([1])
    const { id } = await device.given({ name: 'reboot', payload: { delay: 5 } })
    const message = await peer.next('publish')
    expect(message).toMatchObject({
      topic: `c/${plant.domainId}/commands/requests/${id}/reboot`,
      qos: 1,
      retain: false,
    })
    expect(JSON.parse(message.payload.toString())).toEqual({ delay: 5 })
    expect((await device.view(id)).status).toBe('queued')
    acknowledge(peer, message)
    await until(async () => (await device.view(id)).status === 'delivered', 'the command is delivered')
    await publish(peer, device.results(id), '{"status":"succeeded","result":{"uptime":1}}')
    // The acknowledgement follows the commit.
    expect(await device.view(id)).toMatchObject({ status: 'succeeded', result: { uptime: 1 } })
  })

  test('gets what waits with its subscription, in order, and a command without a payload is empty', async () => {
    const device = await commanded()
    const ids = [(await device.given({ name: 'a' })).id, (await device.given({ name: 'b', payload: null })).id]
    using peer = await device.connect()
    await subscribe(peer, `c/${DOMAIN_ROUTE}/commands/requests/#`)
    const messages = [await peer.next('publish'), await peer.next('publish')]
    expect(messages.map(({ topic, payload }) => [topic, payload.toString()])).toEqual([
      [`c/${DOMAIN_ROUTE}/commands/requests/${ids[0]}/a`, ''],
      [`c/${DOMAIN_ROUTE}/commands/requests/${ids[1]}/b`, 'null'],
    ])
    for (const message of messages) acknowledge(peer, message)
    await until(async () => (await device.view(ids[1] ?? '')).status === 'delivered', 'both are delivered')
  })

  test('gets a command again after a reconnection until it is answered', async () => {
    const device = await commanded()
    const { id } = await device.given()
    for (const isAcknowledged of [false, true, true]) {
      using peer = await device.connect()
      await subscribe(peer, device.requests)
      const message = await peer.next('publish')
      expect(idOf(message)).toBe(id)
      if (!isAcknowledged) continue
      acknowledge(peer, message)
      await until(async () => (await device.view(id)).status === 'delivered', 'the command is delivered')
    }
    using peer = await device.connect()
    await publish(peer, device.results(id), '{"status":"failed","reason":"jammed"}')
    expect(await device.view(id)).toMatchObject({ status: 'failed', reason: 'jammed' })
    await subscribe(peer, device.requests)
    const next = await device.given({ name: 'next' })
    expect(idOf(await peer.next('publish'))).toBe(next.id)
  })

  test('a stored session gets what was given meanwhile', async () => {
    const device = await commanded()
    const options = { clean: false, clientId: 'kept-for-commands' }
    {
      using peer = await device.connect(options)
      await subscribe(peer, device.requests)
    }
    const { id } = await device.given()
    using peer = await device.connect(options)
    expect(peer.connack.sessionPresent).toBe(true)
    expect(idOf(await peer.next('publish'))).toBe(id)
  })

  test('each of its sessions gets it, and the first answer wins', async () => {
    const device = await commanded()
    using one = await device.connect({ clientId: 'one' })
    using two = await device.connect({ clientId: 'two' })
    for (const peer of [one, two]) await subscribe(peer, device.requests)
    const { id } = await device.given()
    for (const peer of [one, two]) expect(idOf(await peer.next('publish'))).toBe(id)
    await Promise.all([
      publish(one, device.results(id), '{"status":"succeeded","result":1}'),
      publish(two, device.results(id), '{"status":"failed","result":2}'),
    ])
    const { status, result, late_answer: late } = await device.view(id)
    expect([status === 'succeeded' ? 1 : 2, status === 'succeeded' ? 'failed' : 'succeeded']).toEqual([
      result,
      late?.status,
    ])
  })

  test('a session of another process gets it', async () => {
    const device = await commanded()
    await using other = await anotherProcess(plant)
    const node = await startNode(other)
    try {
      using peer = await device.connect({}, node.port)
      await subscribe(peer, device.requests)
      const { id } = await device.given()
      expect(idOf(await peer.next('publish'))).toBe(id)
    } finally {
      await node.stop()
    }
  })

  test('does not get what was cancelled or has ended', async () => {
    const device = await commanded()
    const { id } = await device.given()
    await device.cancel(id)
    using peer = await device.connect({ protocolVersion: 5 })
    await subscribe(peer, device.requests)
    const next = await device.given()
    expect(idOf(await peer.next('publish'))).toBe(next.id)
    expect(await publish(peer, device.results(id), '{"status":"succeeded"}')).toMatchObject({ reasonCode: 0 })
    expect(await device.view(id)).toMatchObject({ status: 'cancelled', late_answer: { status: 'succeeded' } })
  })

  test('selects commands by name', async () => {
    const device = await commanded()
    using peer = await device.connect()
    await subscribe(peer, `c/${plant.domainId}/commands/requests/+/reboot`)
    await device.given({ name: 'other' })
    const { id } = await device.given({ name: 'reboot' })
    expect(idOf(await peer.next('publish'))).toBe(id)
  })
})

describe('MQTT 5', () => {
  test.each([0, 1] as const)(
    'with QoS %i, a command that is larger than the packets of the connection stays queued, and the next one comes',
    async (qos) => {
      const device = await commanded()
      using peer = await device.connect({ protocolVersion: 5, properties: { maximumPacketSize: 1000 } })
      await subscribe(peer, device.requests, qos)
      const large = await device.given({ name: 'large', payload: 'x'.repeat(2000) })
      const { id } = await device.given({ name: 'small' })
      const message = await peer.next('publish')
      expect(idOf(message)).toBe(id)
      if (qos === 1) acknowledge(peer, message)
      await until(async () => (await device.view(id)).status === 'delivered', 'the small one is delivered')
      expect((await device.view(large.id)).status).toBe('queued')
    },
  )

  test('a command has a response topic and correlation data, and either finds it', async () => {
    const device = await commanded()
    using peer = await device.connect({ protocolVersion: 5 })
    await subscribe(peer, device.requests)
    const { id } = await device.given()
    const { properties } = await peer.next('publish')
    expect(properties).toMatchObject({ responseTopic: device.results(id), contentType: 'application/json' })
    expect(Buffer.from(properties?.correlationData ?? '').toString()).toBe(id)
    expect(properties?.messageExpiryInterval).toBeGreaterThan(86_000)
    await publish(peer, properties?.responseTopic ?? '', '{"status":"succeeded"}')
    expect((await device.view(id)).status).toBe('succeeded')
  })

  test('what is not accepted is refused with its reason code', async () => {
    const [device, other] = [await commanded(), await commanded()]
    using peer = await device.connect({ protocolVersion: 5 })
    const [own, foreign] = [await device.given(), await other.given()]
    const base = `c/${plant.domainId}/commands`
    for (const [topic, payload, reasonCode] of [
      [device.results(foreign.id), '{"status":"succeeded"}', 0x90],
      [device.results('x'), '{"status":"succeeded"}', 0x90],
      [`${base}/results`, '{"status":"succeeded"}', 0x90],
      [`${base}/requests/${own.id}/reboot`, '{"status":"succeeded"}', 0x90],
      [base, '{}', 0x90],
      [device.results(own.id), '', 0x99],
      [device.results(own.id), '{', 0x99],
      [device.results(own.id), '[]', 0x99],
      [device.results(own.id), '{"status":"delivered"}', 0x99],
      [device.results(own.id), `{"status":"failed","result":${'['.repeat(1000)}${']'.repeat(1000)}}`, 0x99],
      [device.results(own.id), Buffer.from([0xff, 0xfe]), 0x99],
    ] as const)
      expect([topic, await publish(peer, topic, payload as never)]).toMatchObject([topic, { reasonCode }])
    expect((await device.view(own.id)).status).toBe('queued')
    expect((await other.view(foreign.id)).status).toBe('queued')
    const large = JSON.stringify({ status: 'succeeded', result: 'x'.repeat(65_536) })
    expect(await publish(peer, device.results(own.id), large)).toMatchObject({ reasonCode: 0x80 })
    expect(await device.view(own.id)).toMatchObject({ status: 'failed' })
    for (const filter of ['results/+', 'requests', 'requests/+', 'requests/+/+/+', 'other/+/+'])
      expect([filter, await subscribe(peer, `${base}/${filter}`)]).toEqual([filter, [0x80]])
  })
})
