/**
 * Kills processes while users say what devices should be, two of them at once, and devices report it over MQTT and HTTP: nothing that was acknowledged
 * is lost or undone, and every device is what it should be in the end. SKEIN_TEST_KILLS sets the number of kills.
 */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { strike } from '../harness/strikes.ts'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation } from '../harness/whole.ts'
import { DeviceFleet } from './device-fleet.ts'
import { setUpDomain } from './losses.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
/** Changes that are acknowledged, and commands that are answered, between two kills, at least. */
const [CHANGES_BETWEEN, COMMANDS_BETWEEN] = [100, 20] as const
const DEADLINE_MS = 120_000

let installation: Installation
let mqttPort: number
beforeEach(async () => {
  ;[mqttPort] = (await freePorts(1)) as [number]
  installation = await createInstallation({ SKEIN_MQTT_PORT: String(mqttPort) })
})
afterEach(() => installation[Symbol.dispose]())

test('what is desired is kept, and reaches each device', { timeout: DEADLINE_MS * 3 + KILLS * 60_000 }, async () => {
  let whole = await startWhole(installation)
  await using stack = new AsyncDisposableStack()
  stack.defer(async () => await whole[Symbol.asyncDispose]())
  const node = {
    mqttPort,
    get call() {
      return whole.call
    },
  }
  const fleet = await DeviceFleet.begin([node], await setUpDomain(whole.call))
  stack.defer(() => fleet.end())
  for (let turn = 0; turn < KILLS; turn++) {
    const { changes, commands } = fleet.counts
    await until(
      () => fleet.counts.changes >= changes + CHANGES_BETWEEN && fleet.counts.commands >= commands + COMMANDS_BETWEEN,
      () => `changes between two kills: ${JSON.stringify(fleet.counts)}`,
      DEADLINE_MS,
    )
    whole = await strike(installation, whole, turn)
    expect(await fleet.compare(), `after kill ${turn + 1}`).toEqual([])
  }
})
