/** The devices of examples/device-state: in Python with paho, in Node.js with mqtt.js, and in C with libmosquitto. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { processEnvironment } from '#core/config/index.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { buildExample, hasNoCompiler } from './c-examples.ts'
import type { Node } from './support.ts'
import { startNode } from './support.ts'

const FOLDER = join(import.meta.dirname, '..', '..', 'examples', 'device-state')

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

test.each([
  ['/usr/bin/python3', 'device.py'],
  [process.execPath, 'device.mjs'],
])('%s %s becomes what it should be, and reports it', async (program, file) => {
  await check(program, [join(FOLDER, file)])
})

test.skipIf(hasNoCompiler)(
  'device.c becomes what it should be, and reports it (needs cc, libmosquitto-dev and libcjson-dev)',
  async () => {
    using built = buildExample(join(FOLDER, 'device.c'))
    await check(built.program, [])
  },
)

async function check(program: string, args: readonly string[]): Promise<void> {
  const device = await plant.newDevice()
  const path = `/${plant.domainId}/clients/${device.id}/desired-state`
  await plant.owner.call('PATCH', path, { firmware: '1.4' })
  const running = spawn(program, args, {
    env: {
      ...processEnvironment(),
      SKEIN_MQTT_HOST: '127.0.0.1',
      SKEIN_MQTT_PORT: `${node.port}`,
      SKEIN_MQTT_URL: `mqtt://127.0.0.1:${node.port}`,
      SKEIN_DOMAIN: plant.domainId,
      SKEIN_CLIENT: device.id,
      SKEIN_SECRET: device.secret,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    const lines: unknown[] = []
    createInterface(running.stdout).on('line', (line) => lines.push(JSON.parse(line)))
    const isInSync = async () => {
      const state = (await plant.owner.call('GET', path)).json<{ delta: object; reported_at?: string }>()
      return state.reported_at !== undefined && Object.keys(state.delta).length === 0
    }
    await until(isInSync, 'the firmware is reported', 60_000)
    await plant.owner.call('PATCH', path, { led: { on: true, colour: 'red' } })
    await until(async () => lines.length >= 2 && (await isInSync()), 'the light is reported', 60_000)
    expect(lines).toEqual([
      { firmware: '1.4', led: { on: false } },
      { firmware: '1.4', led: { on: true, colour: 'red' } },
    ])
  } finally {
    running.kill()
  }
}
