/**
 * MQTT: the bare profile against Mosquitto and aedes in the same run, then the product, which stores every message before it
 * acknowledges it. All processes and the loader share two cores.
 */
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { BROKERS, hasBroker, startBroker } from './mqtt/brokers.ts'
import type { BrokerName } from './mqtt/brokers.ts'
import { openClient, publishPacket } from './mqtt/client.ts'
import type { BenchClient } from './mqtt/client.ts'
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable } from './statistics.ts'

const DURATION_MS = Number(process.env['BENCH_MQTT_MS'] ?? 4000)
const ROUNDS = Number(process.env['BENCH_MQTT_ROUNDS'] ?? 3)
const PAIRS = 4
/** Messages that each publisher has under way. */
const WINDOW = 100
const PAYLOAD = Buffer.alloc(100, 'x')
const FAN_OUT = 100
const WIDE_FAN_OUT = 1000
const WIDE_INTERVAL_MS = 50
/** Messages to all of them that do not count: a server that has just begun compiles what it runs. */
const WIDE_WARM_UPS = 20
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

/** Keeps a window of QoS 1 messages under way until told to stop; returns how many were acknowledged. */
function publishOn(client: BenchClient, topic: string, payload: Buffer, window: number): { stop(): number } {
  const { bytes, packetIdAt } = publishPacket(topic, payload, 1)
  let packetId = 0
  let acknowledged = 0
  let isOver = false
  const send = () => client.publish(bytes, packetIdAt, (packetId = (packetId % 65_535) + 1))
  client.onPuback = () => {
    acknowledged++
    if (!isOver) send()
  }
  client.socket.cork()
  for (let index = 0; index < window; index++) send()
  client.socket.uncork()
  return {
    stop() {
      isOver = true
      return acknowledged
    },
  }
}

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

/** Messages delivered in a second: publishers with a subscriber each, or one with many. */
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

/** Time from a publish until each of a thousand subscribers has it. */
async function wideLatencies(port: number): Promise<number[]> {
  let latencies: number[] = []
  const clients = await Promise.all(
    Array.from({ length: WIDE_FAN_OUT }, async (_, index) => {
      const client = await openClient(port, `w${index}-${Date.now()}`)
      client.onPublish = (payload) => latencies.push(performance.now() - payload.readDoubleBE())
      await client.subscribe('wide', 1)
      return client
    }),
  )
  const publisher = await openClient(port, `wp-${Date.now()}`)
  for (let sent = 1; sent <= WIDE_WARM_UPS + DURATION_MS / WIDE_INTERVAL_MS; sent++) {
    if (sent === WIDE_WARM_UPS + 1) latencies = []
    const payload = Buffer.alloc(100)
    payload.writeDoubleBE(performance.now())
    const { bytes, packetIdAt } = publishPacket('wide', payload, 1)
    publisher.publish(bytes, packetIdAt, sent)
    await pause(WIDE_INTERVAL_MS)
  }
  await pause(300)
  for (const client of [...clients, publisher]) client.end()
  return latencies
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

type Figures = { pairs: number; fanOut: number; p99: number; p50: number; idle: number }

async function measure(name: BrokerName): Promise<Figures> {
  const port = await freePort()
  let idle: number
  {
    await using fresh = await startBroker(name, port)
    idle = await idleBytes(port, fresh.rssKib)
  }
  await using broker = await startBroker(name, port)
  const latencies = await wideLatencies(broker.port)
  return {
    pairs: await deliveries(port, PAIRS, 1, WINDOW),
    fanOut: await deliveries(port, 1, FAN_OUT, 10),
    p99: percentile(latencies, 0.99),
    p50: median(latencies),
    idle,
  }
}

async function benchBare(): Promise<void> {
  const names = BROKERS.filter(hasBroker)
  const figures = new Map<BrokerName, Figures[]>(names.map((name) => [name, []]))
  // In turns, so that what else the machine does falls on all of them.
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
      name: `${name}: one to ${WIDE_FAN_OUT} subscribers`,
      figure: `p50 ${milliseconds(of(name, (one) => one.p50))}, p99 ${milliseconds(of(name, (one) => one.p99))}`,
      ...(name === 'skein'
        ? { target: "mosquitto's p99", isReached: of(name, (one) => one.p99) <= floor((one) => one.p99) }
        : {}),
    })),
    ...names.map((name) => ({
      name: `${name}: memory of an idle connection`,
      figure: `${(of(name, (one) => one.idle) / 1024).toFixed(1)} kB`,
      ...(name === 'skein' ? { target: '12 kB', isReached: of(name, (one) => one.idle) <= TARGET_IDLE_BYTES } : {}),
    })),
  ])
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
  await benchBare()
  await benchStored()
}
