/**
 * What connected devices cost that neither send nor receive: the memory of all processes, and the processor time that they take. Then the same devices
 * with a document of their state, as far as the build has such documents.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { requireOpenFiles } from '../host.ts'
import { openClient } from '../mqtt/client.ts'
import type { BenchClient } from '../mqtt/client.ts'
import { cpuMsByRole, memoryMiBByRole, prepareDevices } from '../platform.ts'
import type { Device } from '../platform.ts'
import type { RunningBuild } from './builds.ts'

export const IDLE_DEVICES = Number(process.env['BENCH_IDLE_DEVICES'] ?? 10_000)
/** The largest request that creates devices has as many. */
const DEVICES_EACH = 1_000
const CONNECTED_AT_ONCE = 200
const REQUESTS_AT_ONCE = 16
/** Presence and the journal are written after the connections were answered, and the heap is collected some time after that. */
const SETTLE_MS = 30_000
const IDLE_MS = 20_000
const DOCUMENT = { firmware: '1.4', config: { interval: 60, level: 3 } }

type Fleet = { domainId: string; token: string; device: Device }[]
export type IdleFigure = { row: string; unit: string; byRole: Record<string, number> }

/** Acts for each of the fleet, `atOnce` at the same time. */
async function forEach(
  fleet: Fleet,
  atOnce: number,
  act: (one: Fleet[number], index: number) => Promise<unknown>,
): Promise<void> {
  const left = fleet.entries()
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (const [index, one] of left) await act(one, index)
    }),
  )
}

const minus = (after: Readonly<Record<string, number>>, before: Readonly<Record<string, number>>, scale: number) =>
  Object.fromEntries(Object.entries(after).map(([role, value]) => [role, (value - (before[role] ?? 0)) * scale]))

export async function measureIdleDevices({ call, pid, mqttPort }: RunningBuild): Promise<IdleFigure[]> {
  requireOpenFiles(IDLE_DEVICES)
  const fleet: Fleet = []
  while (fleet.length < IDLE_DEVICES) {
    const count = Math.min(IDLE_DEVICES - fleet.length, DEVICES_EACH)
    const { devices, ...domain } = await prepareDevices({ call }, count)
    fleet.push(...devices.map((device) => ({ ...domain, device })))
  }
  const clients: BenchClient[] = []
  const connect = async () => {
    await forEach(fleet, CONNECTED_AT_ONCE, async ({ device }, index) => {
      clients.push(await openClient(mqttPort, `d${index}`, device))
    })
  }
  // The first connection of a device loads what is kept of it. The second one is what is compared, as a whole: the heap keeps what the first one took.
  await connect()
  for (const client of clients.splice(0)) client.end()
  await pause(SETTLE_MS)
  const figures: IdleFigure[] = []
  const measure = async (what: string) => {
    await connect()
    await pause(SETTLE_MS)
    const [processors, beganMs] = [cpuMsByRole(pid), performance.now()]
    await pause(IDLE_MS)
    const seconds = (performance.now() - beganMs) / 1000
    const spent = minus(cpuMsByRole(pid), processors, 1 / seconds)
    const memory = memoryMiBByRole(pid)
    for (const client of clients.splice(0)) client.end()
    await pause(SETTLE_MS)
    figures.push(
      { row: `memory, with ${fleet.length} devices that do nothing${what}`, unit: 'MiB', byRole: memory },
      {
        row: `processor time per second, with ${fleet.length} devices that do nothing${what}`,
        unit: 'ms',
        byRole: spent,
      },
    )
  }
  await measure('')
  await forEach(fleet, REQUESTS_AT_ONCE, async ({ domainId, token, device }) => {
    const state = `/${domainId}/clients/${device.id}/desired-state`
    // A build without documents answers 404 or 405, and is what the others are compared with.
    await call('PATCH', state, DOCUMENT, token).catch((error: unknown) => {
      if (!(error instanceof Error && /: 40[45] /.test(error.message))) throw error
    })
  })
  await pause(SETTLE_MS)
  await measure(', each with a document of its state')
  return figures
}
