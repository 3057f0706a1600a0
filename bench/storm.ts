/**
 * Thousands of devices connect and subscribe over MQTT at once, as after the end of a node, while others publish. The process has not
 * seen any of them before. All processes and the loader share two cores.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { publishOverMqtt } from './capacity.ts'
import { processorTime } from './host.ts'
import { hasBroker, startBroker } from './mqtt/brokers.ts'
import { openClient } from './mqtt/client.ts'
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
import { median, milliseconds, perSecond, percentile, printTable } from './statistics.ts'
import { startPublishers } from './storm-publishers.ts'

const ROUNDS = Number(process.env['BENCH_STORM_ROUNDS'] ?? 2)
/** Devices come from several domains. */
const DOMAINS = 4
const DEVICES_EACH = Number(process.env['BENCH_STORM_DEVICES'] ?? 1000)
/** Connections that are opened at the same time. */
const AT_ONCE = Number(process.env['BENCH_STORM_AT_ONCE'] ?? 500)
const PUBLISHERS = 8
const CALM_MS = 3000
/** Presence and the journal are written after the connections were answered. */
const SETTLE_MS = 6000
/** High enough that nothing is refused. */
const QUOTAS = {
  SKEIN_QUOTA_MQTT_CONNECTIONS: '1000000',
  SKEIN_QUOTA_MQTT_SESSIONS: '1000000',
  SKEIN_QUOTA_MQTT_SUBSCRIPTIONS: '1000000',
  SKEIN_QUOTA_MESSAGES_PER_SECOND: '1000000',
  SKEIN_QUOTA_MESSAGE_BYTES_PER_SECOND: '1000000000',
}
const TARGET_CONNECTS = 2000
const TARGET_KIB = 16
const TARGET_P99_MS = 50

type Connecting = { id: string; device: Device | undefined; topic: string }
type Figures = {
  perSecond: number
  /** The share of the processors that was idle while the devices connected. */
  idle: number
  nodeUs: number
  postgresUs: number
  kib: number
  calmMs: number
  p99Ms: number
}

/** Connects and subscribes all of them; returns the open connections and the time that it took. */
async function storm(
  port: number,
  all: readonly Connecting[],
): Promise<{ clients: BenchClient[]; durationMs: number; idle: number }> {
  const clients: BenchClient[] = []
  const before = processorTime()
  const began = performance.now()
  let next = 0
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let one = all[next++]; one !== undefined; one = all[next++]) {
        const client = await openClient(port, one.id, one.device)
        await client.subscribe(one.topic, 1)
        clients.push(client)
      }
    }),
  )
  const durationMs = performance.now() - began
  const after = processorTime()
  const idle =
    before === undefined || after === undefined ? NaN : (after.idle - before.idle) / (after.total - before.total)
  return { clients, durationMs, idle }
}

type World = { all: Connecting[]; topic: string; publishers: Device[] }

/** Devices that the platform has not seen before, in several domains. */
async function newDevices(platform: Platform): Promise<World> {
  const all: Connecting[] = []
  let first: Pick<World, 'topic' | 'publishers'> | undefined
  for (let domain = 0; domain < DOMAINS; domain++) {
    const { domainId, channelId, devices } = await prepareDevices(platform, DEVICES_EACH)
    const topic = `m/${domainId}/c/${channelId}`
    first ??= { topic, publishers: devices.splice(0, PUBLISHERS) }
    all.push(...devices.map((device, index) => ({ id: `d${index}`, device, topic: `${topic}/commands` })))
  }
  if (first === undefined) throw new Error('there are no devices')
  await pause(SETTLE_MS)
  return { all, ...first }
}

async function measureCost(platform: Platform, port: number): Promise<Omit<Figures, 'calmMs' | 'p99Ms'>> {
  const { all } = await newDevices(platform)
  const memory = memoryMiB(platform.pid)
  const before = cpuMsByRole(platform.pid)
  const { clients, durationMs, idle } = await storm(port, all)
  await pause(SETTLE_MS)
  const after = cpuMsByRole(platform.pid)
  const spent = (role: string) => (((after[role] ?? 0) - (before[role] ?? 0)) * 1000) / all.length
  const kib = ((memoryMiB(platform.pid) - memory) * 1024) / all.length
  for (const client of clients) client.end()
  return {
    perSecond: (all.length * 1000) / durationMs,
    idle,
    nodeUs: spent('platform and manager') + spent('processes of the platform'),
    postgresUs: spent('PostgreSQL'),
    kib,
  }
}

/** What devices that publish notice of it. */
async function measureOthers(platform: Platform, port: number): Promise<Pick<Figures, 'calmMs' | 'p99Ms'>> {
  const { all, topic, publishers } = await newDevices(platform)
  const others = await startPublishers(port, `${topic}/readings`, publishers)
  await pause(CALM_MS)
  await others.take()
  await pause(CALM_MS)
  const calmMs = percentile(await others.take(), 0.99)
  const { clients } = await storm(port, all)
  const p99Ms = percentile(await others.take(), 0.99)
  await others.stop()
  for (const client of clients) client.end()
  return { calmMs, p99Ms }
}

/** Processor time of all processes per message, until it is in all projections. */
async function measureMessages(platform: Platform, port: number): Promise<number> {
  const world = await prepareDevices(platform, PUBLISHERS * 8)
  await publishOverMqtt(port, world)
  await pause(SETTLE_MS)
  const total = () => Object.values(cpuMsByRole(platform.pid)).reduce((sum, used) => sum + used, 0)
  const before = total()
  const messages = await publishOverMqtt(port, world)
  await pause(SETTLE_MS)
  return ((total() - before) * 1000) / messages
}

async function measureMosquitto(): Promise<{ perSecond: number; us: number } | undefined> {
  if (!hasBroker('mosquitto')) return undefined
  const port = await freePort()
  await using broker = await startBroker('mosquitto', port)
  const all = Array.from({ length: DOMAINS * DEVICES_EACH }, (_, index) => ({
    id: `d${index}`,
    device: undefined,
    topic: `bench/${index % DOMAINS}/commands`,
  }))
  const before = broker.cpuMs()
  const { clients, durationMs } = await storm(port, all)
  const us = ((broker.cpuMs() - before) * 1000) / all.length
  for (const client of clients) client.end()
  return { perSecond: (all.length * 1000) / durationMs, us }
}

export async function benchStorm(): Promise<void> {
  const floor = await measureMosquitto()
  const rounds: Record<'none' | 'set', Figures[]> = { none: [], set: [] }
  const messageUs = { none: NaN, set: NaN }
  for (const quotas of ['none', 'set'] as const) {
    const dataDir = newDataDir()
    try {
      const port = await freePort()
      const environment = { SKEIN_MQTT_PORT: String(port), ...(quotas === 'set' ? QUOTAS : {}) }
      await using platform = await startPlatform(dataDir, environment)
      for (let round = 0; round < ROUNDS; round++)
        rounds[quotas].push({ ...(await measureCost(platform, port)), ...(await measureOthers(platform, port)) })
      messageUs[quotas] = await measureMessages(platform, port)
    } finally {
      removeDataDir(dataDir)
    }
  }
  const of = (quotas: keyof typeof rounds, pick: (one: Figures) => number) => median(rounds[quotas].map(pick))
  const cost = (quotas: keyof typeof rounds) => of(quotas, ({ nodeUs, postgresUs }) => nodeUs + postgresUs)
  const connects = of('none', (one) => one.perSecond)
  const kib = of('none', (one) => one.kib)
  const p99Ms = of('none', (one) => one.p99Ms)
  printTable(`${DOMAINS * DEVICES_EACH} devices connect and subscribe over MQTT, ${AT_ONCE} at once`, [
    {
      name: 'connect and subscribe',
      figure: perSecond(connects, 'connects'),
      ...(floor === undefined
        ? {}
        : { ratio: `${(connects / floor.perSecond).toFixed(2)}x of mosquitto without storage` }),
      target: perSecond(TARGET_CONNECTS, 'connects'),
      isReached: connects >= TARGET_CONNECTS,
    },
    { name: 'processors idle meanwhile', figure: `${(of('none', (one) => one.idle) * 100).toFixed(0)} %` },
    ...(['none', 'set'] as const).map((quotas) => ({
      name: `processor time of one, ${quotas === 'none' ? 'no quota' : 'with quotas'}`,
      figure: `${Math.round(cost(quotas))} us: ${Math.round(of(quotas, (one) => one.nodeUs))} Node, ${Math.round(of(quotas, (one) => one.postgresUs))} PostgreSQL`,
      ...(floor === undefined ? {} : { ratio: `${(cost(quotas) / floor.us).toFixed(1)}x of mosquitto` }),
    })),
    ...(['none', 'set'] as const).map((quotas) => ({
      name: `processor time of a message with QoS 1, ${quotas === 'none' ? 'no quota' : 'with quotas'}`,
      figure: `${messageUs[quotas].toFixed(1)} us`,
    })),
    {
      name: 'memory of one',
      figure: `${kib.toFixed(1)} KiB`,
      target: `${TARGET_KIB} KiB`,
      isReached: kib <= TARGET_KIB,
    },
    {
      name: 'p99 until PUBACK of others meanwhile',
      figure: milliseconds(p99Ms),
      ratio: `${milliseconds(of('none', (one) => one.calmMs))} before`,
      target: milliseconds(TARGET_P99_MS),
      isReached: p99Ms <= TARGET_P99_MS,
    },
  ])
}
