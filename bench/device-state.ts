/**
 * Desired state over open MQTT connections: from PATCH to the device against a stored message from publisher to subscriber, in turns of one
 * run; devices that come back at once, each with a difference, against the same devices without one; and the memory of a connected device
 * that subscribes to nothing. All processes and the loader share two cores.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { requireOpenFiles } from './host.ts'
import { openClient, publishPacket } from './mqtt/client.ts'
import type { BenchClient } from './mqtt/client.ts'
import {
  cpuMsByRole,
  freePort,
  memoryMiB,
  newDataDir,
  prepareDevices,
  removeDataDir,
  startPlatform,
} from './platform.ts'
import type { Device, Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'

const DEVICES = Number(process.env['BENCH_STATE_DEVICES'] ?? 10_000)
/** Clients of one domain are created by one request each, of which the largest has this many. */
const DEVICES_EACH = 1_000
const SAMPLES = Number(process.env['BENCH_STATE_SAMPLES'] ?? 500)
const WARM_UP = 50
const ROUNDS = Number(process.env['BENCH_STATE_ROUNDS'] ?? 3)
/** Connections that are opened at the same time. */
const AT_ONCE = 500
/** Requests of users at the same time. */
const REQUESTS_AT_ONCE = 16
/** Presence and the journal are written after the connections were answered. */
const SETTLE_MS = 6_000
const DEADLINE_MS = 30_000
const TARGET_LATENCY = 3
const TARGET_STORM = 1.3

type Domain = { domainId: string; channelId: string; token: string; devices: Device[] }
type Fleet = readonly (Domain & { device: Device })[]

async function prepareFleet(platform: Platform): Promise<Fleet> {
  const domains: Domain[] = []
  for (let left = DEVICES; left > 0; left -= DEVICES_EACH)
    // oxlint-disable-next-line no-await-in-loop -- one after the other, so that the platform is not what is measured
    domains.push(await prepareDevices(platform, Math.min(left, DEVICES_EACH)))
  return domains.flatMap((domain) => domain.devices.map((device) => ({ ...domain, device })))
}

const stateOf = ({ domainId, device }: Fleet[number]) => `/${domainId}/clients/${device.id}/desired-state`
const topicOf = ({ domainId }: Domain) => `c/${domainId}/state/desired`

/** Acts for each device, `atOnce` at the same time; returns the milliseconds. */
async function forEach(
  fleet: Fleet,
  act: (one: Fleet[number], index: number) => Promise<void>,
  atOnce = AT_ONCE,
): Promise<number> {
  const began = performance.now()
  let next = 0
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let at = next++; at < fleet.length; at = next++) {
        const one = fleet[at]
        // oxlint-disable-next-line no-await-in-loop -- each of these workers takes one device after the other
        if (one !== undefined) await act(one, at)
      }
    }),
  )
  return performance.now() - began
}

/** Resolves with the next message of the client. */
async function nextMessage(client: BenchClient): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = setTimeout(() => reject(new Error('no message arrived')), DEADLINE_MS)
  client.onPublish = () => resolve()
  await promise
  clearTimeout(timer)
  client.onPublish = undefined
}

async function timed(client: BenchClient, act: () => unknown): Promise<number> {
  const arrived = nextMessage(client)
  const began = performance.now()
  void act()
  await arrived
  return performance.now() - began
}

/** One after the other, so that both wait for the same devices, the same database and the same loader. */
async function measureLatency(
  platform: Platform,
  port: number,
  fleet: Fleet,
  clients: readonly BenchClient[],
): Promise<{ patches: number[]; messages: number[] }> {
  const [first, second] = fleet
  if (first === undefined || second === undefined) throw new Error('there are not enough devices')
  const topic = `m/${first.domainId}/c/${first.channelId}/bench`
  const [publisher, subscriber] = [
    await openClient(port, 'publisher', first.device),
    await openClient(port, 'subscriber', second.device),
  ]
  await subscriber.subscribe(topic, 1)
  const { bytes, packetIdAt } = publishPacket(topic, Buffer.from('[{"n":"level","v":1}]'), 1)
  const [patches, messages]: [number[], number[]] = [[], []]
  for (let at = 0; at < WARM_UP + SAMPLES; at++) {
    const index = (at * 7919) % fleet.length
    const [one, client] = [fleet[index], clients[index]]
    if (one === undefined || client === undefined) continue
    /* oxlint-disable no-await-in-loop -- one after the other is what is measured */
    const patch = await timed(client, () => platform.call('PATCH', stateOf(one), { level: at }, one.token))
    const message = await timed(subscriber, () => publisher.publish(bytes, packetIdAt, (at % 60_000) + 1))
    /* oxlint-enable no-await-in-loop */
    if (at < WARM_UP) continue
    patches.push(patch)
    messages.push(message)
  }
  publisher.end()
  subscriber.end()
  return { patches, messages }
}

type Storm = { durationMs: number; cpuMs: number }

const cpuMsOf = ({ pid }: Platform) => Object.values(cpuMsByRole(pid)).reduce((sum, used) => sum + used, 0)

/** All devices connect and subscribe; with a difference, each also receives it. */
async function storm(platform: Platform, port: number, fleet: Fleet, hasDelta: boolean): Promise<Storm> {
  const clients: BenchClient[] = []
  const before = cpuMsOf(platform)
  const durationMs = await forEach(fleet, async (one, index) => {
    const client = await openClient(port, `d${index}`, one.device)
    clients.push(client)
    const arrived = hasDelta ? nextMessage(client) : undefined
    await client.subscribe(topicOf(one), 1)
    await arrived
  })
  const cpuMs = cpuMsOf(platform) - before
  for (const client of clients) client.end()
  await pause(SETTLE_MS)
  return { durationMs, cpuMs }
}

async function benchConnected(platform: Platform, port: number, fleet: Fleet): Promise<void> {
  const kib = async (act: () => Promise<unknown>) => {
    const before = memoryMiB(platform.pid)
    await act()
    await pause(SETTLE_MS)
    return ((memoryMiB(platform.pid) - before) * 1024) / fleet.length
  }
  const clients: BenchClient[] = []
  const idle = await kib(() =>
    forEach(fleet, async ({ device }, index) => {
      clients[index] = await openClient(port, `d${index}`, device)
    }),
  )
  const subscribed = await kib(() =>
    forEach(fleet, async (one, index) => await clients[index]?.subscribe(topicOf(one), 1)),
  )
  const { patches, messages } = await measureLatency(platform, port, fleet, clients)
  for (const client of clients) client.end()
  const ratioOf = (share: number) => percentile(patches, share) / percentile(messages, share)
  printTable(`Desired state of ${fleet.length.toLocaleString('en')} connected devices`, [
    ...([0.5, 0.99] as const).map((share) => ({
      name: `PATCH to the device, p${share * 100}`,
      figure: milliseconds(percentile(patches, share)),
      ratio: `${ratioOf(share).toFixed(2)}x of a stored message to a subscriber (${milliseconds(percentile(messages, share))})`,
      target: `${TARGET_LATENCY}x`,
      isReached: ratioOf(share) <= TARGET_LATENCY,
    })),
    { name: 'memory of a connected device', figure: `${idle.toFixed(1)} KiB` },
    { name: 'memory of its subscription', figure: `${subscribed.toFixed(1)} KiB` },
  ])
}

async function benchStorms(platform: Platform, port: number, fleet: Fleet): Promise<void> {
  const storms: Record<'without' | 'with', Storm[]> = { without: [], with: [] }
  const desire = async (body: object) => {
    await forEach(
      fleet,
      async (one) => void (await platform.call('PATCH', stateOf(one), body, one.token)),
      REQUESTS_AT_ONCE,
    )
    await pause(SETTLE_MS)
  }
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    /* oxlint-disable no-await-in-loop -- in turns, so that both find the same machine */
    await desire({ firmware: null, level: null })
    const without = await storm(platform, port, fleet, false)
    await desire({ firmware: `1.${round}` })
    const withDelta = await storm(platform, port, fleet, true)
    /* oxlint-enable no-await-in-loop */
    if (round === 0) continue
    storms.without.push(without)
    storms.with.push(withDelta)
  }
  const of = (kind: keyof typeof storms, figure: keyof Storm) => median(storms[kind].map((one) => one[figure]))
  const rowOf = (name: string, figure: keyof Storm, show: (value: number) => string) => {
    const ratio = of('with', figure) / of('without', figure)
    return {
      name,
      figure: show(of('with', figure)),
      ratio: `${ratio.toFixed(2)}x of that without a difference`,
      target: `${TARGET_STORM}x`,
      isReached: ratio <= TARGET_STORM,
    }
  }
  const title = `${fleet.length.toLocaleString('en')} devices connect at once, ${AT_ONCE} at the same time`
  printTable(`${title}, subscribe and receive a difference`, [
    rowOf('time', 'durationMs', (value) => `${(value / 1000).toFixed(2)} s`),
    // The time depends on what else runs on the machine, this does not.
    rowOf('processor time of one', 'cpuMs', (value) => `${((value * 1000) / fleet.length).toFixed(0)} us`),
  ])
}

export async function benchDeviceState(): Promise<void> {
  requireOpenFiles(DEVICES)
  const dataDir = newDataDir()
  try {
    const port = await freePort()
    await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(port) })
    const fleet = await prepareFleet(platform)
    await pause(SETTLE_MS)
    if (process.env['BENCH_STATE_STORMS_ONLY'] !== 'true') await benchConnected(platform, port, fleet)
    await pause(SETTLE_MS)
    await benchStorms(platform, port, fleet)
  } finally {
    removeDataDir(dataDir)
  }
}
