/** The devices of examples/commands, as programs of their own. */
import { spawn } from 'node:child_process'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { expectStatus } from '../api/commands-support.ts'
import type { Command } from '../api/commands-support.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { buildExample, hasNoCompiler } from './c-examples.ts'
import type { Node } from './support.ts'
import { startNode } from './support.ts'

const FOLDER = join(import.meta.dirname, '..', '..', 'examples', 'commands')

const plant = useWorld(() => startPlant())
let node: Node
beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

async function check(program: string, args: readonly string[], environment: Record<string, string>): Promise<void> {
  const device = await plant.newDevice()
  const path = `/${plant.domainId}/clients/${device.id}/commands`
  const give = async (body: unknown, query = '?wait=30s') =>
    expectStatus(201, await plant.owner.call('POST', `${path}${query}`, body)).json<Command>()
  const early = await give({ name: 'reboot' }, '')
  const running = spawn(program, args, {
    env: {
      PATH: process.env['PATH'] ?? '',
      SKEIN_DOMAIN: plant.domainId,
      SKEIN_CLIENT: device.id,
      SKEIN_SECRET: device.secret,
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [running.stdout, running.stderr]) stream.on('data', (chunk: Buffer) => (output += String(chunk)))
  try {
    await until(
      async () => (await plant.owner.call('GET', `${path}/${early.id}`)).json<Command>().status === 'succeeded',
      () => `the device answers: ${output}`,
    )
    expect(await give({ name: 'add', payload: { a: 40, b: 2 } })).toMatchObject({ status: 'succeeded', result: 42 })
    expect(await give({ name: 'fly' })).toMatchObject({ status: 'rejected', reason: 'this device knows no fly' })
    expect(await give({ name: 'add' })).toMatchObject({ status: 'failed' })
  } finally {
    running.kill('SIGKILL')
    await new Promise((resolve) => running.once('close', resolve))
  }
}

test('the device in Python carries out commands over MQTT', () =>
  check('/usr/bin/python3', [join(FOLDER, 'device.py')], {
    SKEIN_MQTT_HOST: '127.0.0.1',
    SKEIN_MQTT_PORT: String(node.port),
  }))

test.skipIf(hasNoCompiler)(
  'the device in C carries out commands over MQTT (needs cc, libmosquitto-dev and libcjson-dev)',
  async () => {
    using built = buildExample(join(FOLDER, 'device.c'))
    await check(built.program, [], { SKEIN_MQTT_HOST: '127.0.0.1', SKEIN_MQTT_PORT: String(node.port) })
  },
)

test('the device in JavaScript carries out commands over HTTP', async () => {
  await plant.api.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = plant.api.app.server.address() as AddressInfo
  await check(process.execPath, [join(FOLDER, 'device.mjs')], { SKEIN_URL: `http://127.0.0.1:${port}` })
})
