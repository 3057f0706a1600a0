/** Paths of a device itself over CoAP, `c/<domain>/<noun>/…`: methods, block-wise bodies and observation. */
import type { ParsedPacket } from 'coap-packet'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CoapServer } from '#api/adapters/coap/index.ts'
import type { DeviceNoun, DeviceSink } from '#api/devices/index.ts'
import { noSuchTopic } from '#api/devices/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { openPeer, optionOf } from './coap-peer.ts'
import type { Ask, CoapPeer } from './coap-peer.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())
let server: CoapServer

/** What each device wrote last, and who observes it. */
const written = new Map<string, string>()
const sinks = new Set<DeviceSink>()
const acknowledged: string[] = []

const MIRROR: DeviceNoun = {
  noun: 'mirror',
  publish: () => Promise.reject(noSuchTopic()),
  checkFilter() {
    throw noSuchTopic()
  },
  subscribe: () => ({ close: () => undefined }),
  async request(device, { method, levels, queries, message }) {
    await Promise.resolve()
    if (levels.length > 0) throw noSuchTopic()
    if (method === 'get')
      return { payload: Buffer.from(written.get(device.clientId) ?? 'nothing'), contentType: 'text/plain' }
    if (method === 'post') throw new ServiceError('method_not_allowed', 'a mirror has no POST')
    const text = method === 'delete' ? '' : `${message.contentType} ${queries.join('&')} ${message.payload.toString()}`
    written.set(device.clientId, text)
    for (const sink of sinks) if (sink.device.clientId === device.clientId) show(sink, text)
    return undefined
  },
  observe(sink) {
    sinks.add(sink)
    return { close: () => void sinks.delete(sink) }
  },
}

function show(sink: DeviceSink, text: string): void {
  const onAcknowledged = () => void acknowledged.push(text)
  sink.send({ levels: [], payload: Buffer.from(text), contentType: 'text/plain', onAcknowledged })
}

beforeAll(async () => {
  const { devices, messages } = plant.api.api
  devices.topics.register(MIRROR)
  server = await CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: devices.gate,
    topics: devices.topics,
    messages,
    maxBodyBytes: 64 * 1024,
    ackTimeoutMs: 100,
    logger,
  })
}, 60_000)
afterAll(async () => {
  await server.stop()
})

const uint = (name: string, value: number) => ({ name, value: value === 0 ? Buffer.alloc(0) : Buffer.from([value]) })

async function aDevice() {
  const device = await plant.newDevice()
  const at = (rest = '', query = '', domain = plant.domainId) =>
    `/c/${domain}/mirror${rest}?auth=${device.secret}${query}`
  return { ...device, at }
}

async function codeOf(peer: CoapPeer, request: Ask): Promise<string> {
  return (await peer.request(request)).code
}

test('a device writes and reads with every method that the noun has', async () => {
  const device = await aDevice()
  using peer = await openPeer(server.port)
  const read = async () => (await peer.request({ path: device.at() })).payload.toString()
  expect(await read()).toBe('nothing')
  expect(await codeOf(peer, { code: 'PUT', path: device.at('', '&a=1'), payload: 'x' })).toBe('2.04')
  expect(await read()).toBe('undefined a=1 x')
  // 0.06 PATCH and 0.07 iPATCH, with the number of a merge patch.
  for (const code of ['0.06', '0.07'] as const) {
    const options = [uint('Content-Format', 52)]
    expect(await codeOf(peer, { code, path: device.at(), options, payload: code })).toBe('2.04')
    expect(await read()).toBe(`application/merge-patch+json  ${code}`)
  }
  expect(await codeOf(peer, { code: 'DELETE', path: device.at() })).toBe('2.02')
  expect(await codeOf(peer, { code: 'POST', path: device.at() })).toBe('4.05')
  expect(await codeOf(peer, { code: '0.05', path: device.at() })).toBe('4.05')
})

test('what does not exist is 4.04, and a domain of others is as an unknown one', async () => {
  const device = await aDevice()
  const other = (await plant.owner.call('POST', '/domains', { name: 'other' })).json<{ id: string }>().id
  using peer = await openPeer(server.port)
  expect(await codeOf(peer, { path: device.at('/more') })).toBe('4.04')
  expect(await codeOf(peer, { path: `/c/${plant.domainId}/unknown?auth=${device.secret}` })).toBe('4.04')
  expect(await codeOf(peer, { path: `/c/${plant.domainId}?auth=${device.secret}` })).toBe('4.04')
  for (const domain of [other, 'no-such-domain'])
    expect(await codeOf(peer, { path: device.at('', '', domain) })).toBe('4.01')
  expect(await codeOf(peer, { path: `/c/${plant.domainId}/mirror` })).toBe('4.01')
  expect(await codeOf(peer, { path: device.at('', '&auth=another') })).toBe('4.01')
})

test('a large body comes and goes in blocks', async () => {
  const device = await aDevice()
  using peer = await openPeer(server.port)
  await peer.prove(device.at())
  const text = 'block'.repeat(300)
  // 1024 bytes a block: exponent 6.
  const first = [uint('Block1', 0x0e)]
  expect(await codeOf(peer, { code: 'PUT', path: device.at(), options: first, payload: text.slice(0, 1024) })).toBe(
    '2.31',
  )
  const second = [uint('Block1', 0x16)]
  expect(await codeOf(peer, { code: 'PUT', path: device.at(), options: second, payload: text.slice(1024) })).toBe(
    '2.04',
  )
  const one = await peer.request({ path: device.at() })
  const two = await peer.request({ path: device.at(), options: [uint('Block2', 0x16)] })
  expect(one.payload.toString() + two.payload.toString()).toBe(`undefined  ${text}`)
})

test('an observer receives the newest, and the next only after its acknowledgement', async () => {
  const device = await aDevice()
  using peer = await openPeer(server.port)
  await peer.prove(device.at())
  const { token } = peer.ask({ path: device.at(), options: [uint('Observe', 0)] })
  const [answer] = await peer.answers(token, 1)
  expect(optionOf(answer, 'Observe')).toBeDefined()
  for (const payload of ['one', 'two', 'three']) await peer.request({ code: 'PUT', path: device.at(), payload })
  const [, notified] = await peer.answers(token, 2)
  expect(notified?.payload.toString()).toBe('undefined  one')
  peer.acknowledge(notified as ParsedPacket)
  const answers = async () => await peer.answers(token, 1)
  await until(async () => (await answers()).at(-1)?.payload.toString() === 'undefined  three', 'the newest is notified')
  const newest = (await answers()).at(-1) as ParsedPacket
  const texts = (await answers()).map(({ payload }) => payload.toString())
  expect(texts).not.toContain('undefined  two')
  peer.acknowledge(newest)
  peer.ask({ path: device.at(), options: [uint('Observe', 1)], token })
  await until(() => ![...sinks].some((sink) => sink.device.clientId === device.id), 'the observation ends')
  expect(acknowledged).toContain('undefined  three')
})

test('an observer whose device is disabled receives nothing more', async () => {
  const device = await aDevice()
  using peer = await openPeer(server.port)
  await peer.prove(device.at())
  const { token } = peer.ask({ path: device.at(), options: [uint('Observe', 0)] })
  await peer.answers(token, 1)
  await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)
  for (const sink of sinks) if (sink.device.clientId === device.id) show(sink, 'secret')
  const [, refused] = await peer.answers(token, 2)
  expect(refused?.code).toBe('4.01')
  expect(refused?.payload.toString()).not.toContain('secret')
  expect([...sinks].some((sink) => sink.device.clientId === device.id)).toBe(false)
})
