/**
 * MQTT: the bare profile against Mosquitto and aedes in the same run, then the product, which stores every message before
 * it acknowledges it. All processes and the loader share two cores.
 */
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { BROKERS, hasBroker, startBroker } from './mqtt/brokers.ts'
import type { BrokerName } from './mqtt/brokers.ts'
import { openClient, publishOn } from './mqtt/client.ts'
import type { BenchClient } from './mqtt/client.ts'
import { WIDE_SUBSCRIBERS, measureWide } from './mqtt/wide.ts'
import type { WideFigures } from './mqtt/wide.ts'
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, perSecond, printTable } from './statistics.ts'

const DURATION_MS = Number(process.env['BENCH_MQTT_MS'] ?? 4000)
const ROUNDS = Number(process.env['BENCH_MQTT_ROUNDS'] ?? 3)
const PAIRS = 4
/** Messages in flight per publisher. */
const WINDOW = 100
const PAYLOAD = Buffer.alloc(100, 'x')
const FAN_OUT = 100
/** Messages to a thousand subscribers each, in each round. */
const WIDE_MESSAGES = Number(process.env['BENCH_MQTT_WIDE'] ?? 150)
/** Measures only the latencies of a thousand subscribers. */
const IS_WIDE_ALONE = process.env['BENCH_MQTT_ONLY'] === 'wide'
const IDLE = Number(process.env['BENCH_MQTT_IDLE'] ?? 5000)
const STORING_DEVICES = 16
const CONNECTS = 3000
const CONNECTS_AT_ONCE = 64
const TARGET_STORED = 25_000
const TARGET_CONNECTS = 1000
const TARGET_IDLE_BYTES = 12 * 1024

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise<void>((resolve) => server.close(() => resolve()))
  return port
}

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

/** Messages delivered per second: publishers with a subscriber each, or one with many. */
async function deliveries(port: number, publishers: number, subscribersEach: number, window: number): Promise<number> {
  const clients: BenchClient[] = []
  let delivered = 0
  for (let publisher = 0; publisher < publishers; publisher++) {
    for (let index = 0; index < subscribersEach; index++) {
      const subscriber = await openClient(port, `s${publisher}-${index}-${Date.now()}`)
      subscriber.onPublish = () => delivered++
      await subscriber.subscribe(`bench/${publisher}`, 1)
      clients.push(subscriber)
    }
  }
  const running = await Promise.all(
    Array.from({ length: publishers }, async (_, publisher) => {
      const client = await openClient(port, `p${publisher}-${Date.now()}`)
      clients.push(client)
      return publishOn(client, `bench/${publisher}`, PAYLOAD, window)
    }),
  )
  await pause(500)
  const before = delivered
  const began = performance.now()
  await pause(DURATION_MS)
  const rate = ((delivered - before) * 1000) / (performance.now() - began)
  for (const one of running) one.stop()
  for (const client of clients) client.end()
  await pause(200)
  return rate
}

async function idleBytes(port: number, rssKib: () => number): Promise<number> {
  const before = rssKib()
  const clients: BenchClient[] = []
  for (let index = 0; index < IDLE; index++) clients.push(await openClient(port, `i${index}`))
  await pause(1500)
  const bytes = ((rssKib() - before) * 1024) / IDLE
  for (const client of clients) client.end()
  return bytes
}

type Figures = { pairs: number; fanOut: number; idle: number }

async function measure(name: BrokerName): Promise<Figures> {
  const port = await freePort()
  let idle: number
  {
    await using fresh = await startBroker(name, port)
    idle = await idleBytes(port, fresh.rssKib)
  }
  await using broker = await startBroker(name, port)
  return {
    pairs: await deliveries(broker.port, PAIRS, 1, WINDOW),
    fanOut: await deliveries(broker.port, 1, FAN_OUT, 10),
    idle,
  }
}

async function benchBare(): Promise<void> {
  const names = BROKERS.filter(hasBroker)
  const figures = new Map<BrokerName, Figures[]>(names.map((name) => [name, []]))
  // In turns, so that other load of the machine affects all of them.
  for (let round = 0; round < ROUNDS; round++) for (const name of names) figures.get(name)?.push(await measure(name))
  const of = (name: BrokerName, pick: (one: Figures) => number) => median((figures.get(name) ?? []).map(pick))
  const floor = (pick: (one: Figures) => number) => of('mosquitto', pick)
  printTable(`MQTT QoS 1 without storage, ${PAYLOAD.length} bytes, loader on the same cores`, [
    ...names.map((name) => ({
      name: `${name}: ${PAIRS} publishers, a subscriber each`,
      figure: perSecond(
        of(name, (one) => one.pairs),
        'messages',
      ),
      ratio: `${(of(name, (one) => one.pairs) / floor((one) => one.pairs)).toFixed(2)}x of mosquitto`,
      ...(name === 'skein'
        ? { target: '1.0x', isReached: of(name, (one) => one.pairs) >= floor((one) => one.pairs) }
        : {}),
    })),
    ...names.map((name) => ({
      name: `${name}: one publisher, ${FAN_OUT} subscribers`,
      figure: perSecond(
        of(name, (one) => one.fanOut),
        'deliveries',
      ),
      ratio: `${(of(name, (one) => one.fanOut) / floor((one) => one.fanOut)).toFixed(2)}x of mosquitto`,
      ...(name === 'skein'
        ? { target: '1.0x', isReached: of(name, (one) => one.fanOut) >= floor((one) => one.fanOut) }
        : {}),
    })),
    ...names.map((name) => ({
      name: `${name}: memory of an idle connection`,
      figure: `${(of(name, (one) => one.idle) / 1024).toFixed(1)} kB`,
      ...(name === 'skein' ? { target: '12 kB', isReached: of(name, (one) => one.idle) <= TARGET_IDLE_BYTES } : {}),
    })),
  ])
}

async function benchWide(): Promise<void> {
  const names = BROKERS.filter(hasBroker)
  const rounds: WideFigures[][] = []
  for (let round = 0; round < ROUNDS; round++) rounds.push(await measureWide(names, freePort, WIDE_MESSAGES))
  const of = (name: BrokerName, pick: (one: WideFigures) => number) =>
    median(rounds.flatMap((figures) => figures.filter((one) => one.name === name).map(pick)))
  const p99Of = (name: BrokerName) => of(name, ({ p99Ms }) => p99Ms)
  const won = rounds.filter((figures) => {
    const [skein, floor] = ['skein', 'mosquitto'].map((name) => figures.find((one) => one.name === name)?.p99Ms ?? NaN)
    return (skein ?? NaN) <= (floor ?? NaN)
  })
  printTable(
    `MQTT QoS 1 from one publisher to ${WIDE_SUBSCRIBERS} subscribers, ${ROUNDS} rounds of ${WIDE_MESSAGES} messages to each broker in turns`,
    names.map((name) => ({
      name,
      figure: [
        `first ${milliseconds(of(name, ({ firstMs }) => firstMs))}`,
        `p50 ${milliseconds(of(name, ({ p50Ms }) => p50Ms))}`,
        `p99 ${milliseconds(p99Of(name))}`,
        `${of(name, ({ cpuMicros }) => cpuMicros).toFixed(1)} us of processor time each`,
      ].join(', '),
      ratio: `${(p99Of(name) / p99Of('mosquitto')).toFixed(2)}x of mosquitto's p99`,
      ...(name === 'skein'
        ? {
            target: `mosquitto's p99 (no more in ${won.length} of ${ROUNDS} rounds)`,
            isReached: p99Of(name) <= p99Of('mosquitto'),
          }
        : {}),
    })),
  )
}

async function benchStored(): Promise<void> {
  const dataDir = newDataDir()
  try {
    const port = await freePort()
    await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(port) })
    const { domainId, channelId, devices } = await prepareDevices(platform, STORING_DEVICES)
    const rates: number[] = []
    for (let round = 0; round <= ROUNDS; round++) {
      const clients = await Promise.all(devices.map((device, index) => openClient(port, `d${index}`, device)))
      const running = clients.map((client, index) =>
        publishOn(
          client,
          `m/${domainId}/c/${channelId}`,
          Buffer.from(`[{"n":"d${index}","u":"V","v":${index}}]`),
          WINDOW * 4,
        ),
      )
      const began = performance.now()
      await pause(DURATION_MS)
      const stored = running.reduce((sum, one) => sum + one.stop(), 0)
      if (round > 0) rates.push((stored * 1000) / (performance.now() - began))
      for (const client of clients) client.end()
    }
    const stored = median(rates)
    const began = performance.now()
    let next = 0
    await Promise.all(
      Array.from({ length: CONNECTS_AT_ONCE }, async () => {
        for (let index = next++; index < CONNECTS; index = next++) {
          const client = await openClient(port, `c${index}`, devices[index % devices.length])
          client.end()
        }
      }),
    )
    const connects = (CONNECTS * 1000) / (performance.now() - began)
    printTable('MQTT of the product', [
      {
        name: `QoS 1, one record each, ${STORING_DEVICES} devices, acknowledged after the commit`,
        figure: perSecond(stored, 'messages'),
        target: perSecond(TARGET_STORED, 'messages'),
        isReached: stored >= TARGET_STORED,
      },
      {
        name: 'connections opened, with authentication and a session',
        figure: perSecond(connects, 'connects'),
        target: perSecond(TARGET_CONNECTS, 'connects'),
        isReached: connects >= TARGET_CONNECTS,
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}

export async function benchMqtt(): Promise<void> {
  if (!IS_WIDE_ALONE) await benchBare()
  await benchWide()
  if (IS_WIDE_ALONE) return
  await benchStored()
}
