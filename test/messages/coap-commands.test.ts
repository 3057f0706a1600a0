/** Commands over CoAP: read, observed and answered by the device. docs/guides/commands.md */
import type { ParsedPacket } from 'coap-packet'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CoapServer } from '#api/adapters/coap/index.ts'
import { expectStatus } from '../api/commands-support.ts'
import type { Command } from '../api/commands-support.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { openPeer, optionOf } from './coap-peer.ts'
import { startPlant } from './support.ts'

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
    maxBodyBytes: 128 * 1024,
    ackTimeoutMs: 100,
    logger,
  })
}, 60_000)
afterAll(async () => {
  await server.stop()
})

const uint = (name: string, value: number) => ({ name, value: value === 0 ? Buffer.alloc(0) : Buffer.from([value]) })
const JSON_FORMAT = uint('Content-Format', 50)

async function commanded() {
  const device = await plant.newDevice()
  const path = `/${plant.domainId}/clients/${device.id}/commands`
  return {
    at: (rest = '', query = '') => `/c/${plant.domainId}/commands${rest}?auth=${device.secret}${query}`,
    given: async (body: unknown = { name: 'reboot' }) =>
      expectStatus(201, await plant.owner.call('POST', path, body)).json<Command>(),
    view: async (id: string) => (await plant.owner.call('GET', `${path}/${id}`)).json<Command>(),
  }
}

const idsIn = (packet: ParsedPacket | undefined) =>
  (JSON.parse(packet?.payload.toString() ?? '') as { commands: { id: string }[] }).commands.map(({ id }) => id)

test('a device reads its commands and answers one', async () => {
  const device = await commanded()
  using peer = await openPeer(server.port)
  await peer.prove(device.at())
  expect(idsIn(await peer.request({ path: device.at() }))).toEqual([])
  const { id } = await device.given({ name: 'reboot', payload: { delay: 1 } })
  const answer = await peer.request({ path: device.at() })
  expect(JSON.parse(answer.payload.toString())).toMatchObject({
    commands: [{ id, name: 'reboot', payload: { delay: 1 } }],
  })
  expect((await device.view(id)).status).toBe('delivered')
  const payload = JSON.stringify({ status: 'succeeded', result: { uptime: 1 } })
  const answered = await peer.request({
    code: 'POST',
    path: device.at(`/results/${id}`),
    options: [JSON_FORMAT],
    payload,
  })
  expect(answered.code).toBe('2.04')
  expect(await device.view(id)).toMatchObject({ status: 'succeeded', result: { uptime: 1 } })
})

test('an observer is notified of a new command, which is delivered with its acknowledgement', async () => {
  const device = await commanded()
  using peer = await openPeer(server.port)
  await peer.prove(device.at())
  const { token } = peer.ask({ path: device.at(), options: [uint('Observe', 0)] })
  const [first] = await peer.answers(token, 1)
  expect(optionOf(first, 'Observe')).toBeDefined()
  const { id } = await device.given()
  const [, notified] = await peer.answers(token, 2)
  expect(idsIn(notified)).toEqual([id])
  expect((await device.view(id)).status).toBe('queued')
  peer.acknowledge(notified as ParsedPacket)
  await until(async () => (await device.view(id)).status === 'delivered', 'the command is delivered')
})

test('an observer gets what is open once, and the whole list with a new command', async () => {
  const device = await commanded()
  using peer = await openPeer(server.port)
  await peer.prove(device.at())
  const { id: first } = await device.given()
  const { token } = peer.ask({ path: device.at(), options: [uint('Observe', 0)] })
  const [answer] = await peer.answers(token, 1)
  expect(idsIn(answer)).toEqual([first])
  await until(async () => (await device.view(first)).status === 'delivered', 'the command is delivered')
  const { id: second } = await device.given()
  const [, notified] = await peer.answers(token, 2)
  expect(idsIn(notified)).toEqual([first, second])
})

test('what is not accepted is refused with its code', async () => {
  const [device, other] = [await commanded(), await commanded()]
  using peer = await openPeer(server.port)
  const [own, foreign] = [await device.given(), await other.given()]
  const post = async (rest: string, payload: string) =>
    (await peer.request({ code: 'POST', path: device.at(rest), options: [JSON_FORMAT], payload })).code
  expect(await post(`/results/${foreign.id}`, '{"status":"succeeded"}')).toBe('4.04')
  expect(await post('/results/x', '{"status":"succeeded"}')).toBe('4.04')
  expect(await post('/results', '{"status":"succeeded"}')).toBe('4.04')
  expect(await post('', '{}')).toBe('4.05')
  expect(await post(`/results/${own.id}`, '{"status":"queued"}')).toBe('4.00')
  expect((await peer.request({ path: device.at('', '&wait=10s') })).code).toBe('4.00')
  expect((await peer.request({ path: device.at(`/results/${own.id}`) })).code).toBe('4.05')
  for (const command of [await device.view(own.id), await other.view(foreign.id)]) expect(command.status).toBe('queued')
})
