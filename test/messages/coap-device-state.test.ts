/** The state of a device over CoAP: GET, PATCH and iPATCH, and observation of what is desired. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CoapServer } from '#api/adapters/coap/index.ts'
import { packToJson } from '#api/messages/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { openPeer, optionOf } from './coap-peer.ts'
import { startPlant } from './support.ts'
import type { Device } from './support.ts'

type State = { desired: object; reported: object; delta: object; version: number }

const plant = useWorld(() => startPlant())
let server: CoapServer

beforeAll(async () => {
  const { devices, messages } = plant.api.api
  server = await CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: devices.gate,
    topics: devices.topics,
    messages,
    maxBodyBytes: 256 * 1024,
    ackTimeoutMs: 100,
    logger,
  })
}, 60_000)
afterAll(async () => {
  await server.stop()
})

const at = ({ secret }: Device, name = '') => `/c/${plant.domainId}/state${name && `/${name}`}?auth=${secret}`
const format = (number: number) => ({ name: 'Content-Format', value: Buffer.from([number]) })

async function desire(device: Device, body: object, name = '') {
  const path = `/${plant.domainId}/clients/${device.id}/desired-state${name && `/${name}`}`
  return (await plant.owner.call('PATCH', path, body)).json<State>()
}

test('a device reads its state, and reports with PATCH and iPATCH', async () => {
  const device = await plant.newDevice()
  await desire(device, { a: 1, b: 2 })
  using peer = await openPeer(server.port)
  await peer.prove(at(device))
  const read = async (name = '') =>
    JSON.parse((await peer.request({ path: at(device, name) })).payload.toString()) as State
  expect(await read()).toMatchObject({ desired: { a: 1, b: 2 }, delta: { a: 1, b: 2 } })
  const one = await peer.request({ code: '0.06', path: at(device), options: [format(52)], payload: '{"a":1}' })
  const two = await peer.request({ code: '0.07', path: at(device), options: [format(50)], payload: '{"b":2}' })
  expect([one.code, two.code]).toEqual(['2.04', '2.04'])
  expect(await read()).toMatchObject({ reported: { a: 1, b: 2 }, delta: {} })
  await peer.request({ code: '0.07', path: at(device, 'config'), payload: '{"rate":5}' })
  expect(await read('config')).toMatchObject({ name: 'config', reported: { rate: 5 } })
})

test('a device reads a flat difference as SenML, and is not observed then', async () => {
  const device = await plant.newDevice()
  await desire(device, { firmware: '1.4', level: 3 })
  using peer = await openPeer(server.port)
  await peer.prove(at(device))
  const read = async (number: number, more: { name: string; value: Buffer }[] = []) =>
    await peer.request({ path: at(device), options: [{ name: 'Accept', value: Buffer.from([number]) }, ...more] })
  const pack = [
    { n: 'level', v: 3 },
    { n: 'firmware', vs: '1.4' },
  ]
  const json = await read(110, [{ name: 'Observe', value: Buffer.alloc(0) }])
  expect([json.code, optionOf(json, 'Observe')]).toEqual(['2.05', undefined])
  expect(JSON.parse(json.payload.toString())).toEqual(pack)
  expect(JSON.parse(String(packToJson((await read(112)).payload)))).toEqual(pack)
  expect(JSON.parse((await read(50)).payload.toString())).toMatchObject({ delta: { firmware: '1.4', level: 3 } })
  await desire(device, { led: { on: true } })
  expect((await read(112)).code).toBe('4.06')
})

test.each([
  ['POST', '', [], '{}', '4.05'],
  ['0.07', '', [], '[]', '4.00'],
  ['0.07', '', [], 'x', '4.00'],
  ['0.07', '', [format(110)], '{}', '4.15'],
  ['0.07', '', [], '{"__proto__":{"a":1}}', '4.00'],
  ['0.07', '$x', [], '{}', '4.00'],
  ['0.07', 'a/b', [], '{}', '4.04'],
] as const)('%s of %j with %j and %s is %s', async (code, name, options, payload, answer) => {
  const device = await plant.newDevice()
  using peer = await openPeer(server.port)
  expect((await peer.request({ code, path: at(device, name), options: [...options], payload })).code).toBe(answer)
})

test('an observer receives the state when what is desired changes, from any node, and the newest alone', async () => {
  const device = await plant.newDevice()
  await desire(device, { a: 1 })
  using peer = await openPeer(server.port)
  await peer.prove(at(device))
  const { token } = peer.ask({ path: at(device), options: [{ name: 'Observe', value: Buffer.alloc(0) }] })
  const [first] = await peer.answers(token, 1)
  expect(optionOf(first, 'Observe')).toBeDefined()
  expect(JSON.parse(first?.payload.toString() ?? '')).toMatchObject({ delta: { a: 1 } })
  const newest = async () => {
    const last = (await peer.answers(token, 1)).at(-1)
    if (last !== undefined && last !== first) peer.acknowledge(last)
    return JSON.parse(last?.payload.toString() ?? '{}') as State
  }
  for (let value = 2; value <= 10; value++) await desire(device, { a: value })
  const { version } = await desire(device, { a: 11 })
  await until(async () => (await newest()).version === version, 'the newest state is received')
  // It was acknowledged: nothing more comes until the next change.
  const count = (await peer.answers(token, 1)).length
  expect(count).toBeLessThan(11)
  const last = await desire(device, { a: null })
  await until(async () => (await newest()).version === last.version, 'the state without a difference is received')
})
