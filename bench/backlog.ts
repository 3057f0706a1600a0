/**
 * A named consumer and a trigger that are far behind. Messages are published over MQTT while the consumer is not read and the trigger waits for its
 * rate: what they cost while they wait is the memory of the platform after a tenth of them and after all. Then both catch up while the devices go
 * on to publish as fast as they are acknowledged, in turns with publishing alone.
 *
 * `BENCH_BACKLOG_MESSAGES` wait at least.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { createCaller } from './http-caller.ts'
import { startFlow } from './mqtt/flow.ts'
import type { Flow } from './mqtt/flow.ts'
import {
  cpuMsByRole,
  freePort,
  memoryMiBByRole,
  newDataDir,
  prepareDevices,
  removeDataDir,
  startPlatform,
} from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable } from './statistics.ts'

const MESSAGES = Number(process.env['BENCH_BACKLOG_MESSAGES'] ?? 2_000_000)
const DEVICES = 100
/** Messages in flight of each device. */
const WINDOW = 5
const FILL_MS = 5_000
const ROUNDS = 3
const ROUND_MS = 8_000
/** PostgreSQL collects statistics of new tables once a minute; messages of days, which wait in production, have them. */
const SETTLE_MS = 75_000
/** After the last message, before memory is measured. */
const REST_MS = 10_000
const CALLERS = 2
const LIMIT = 1_000
const BATCH = 500
/** The memory of the platform with all messages, to that with a tenth of them. */
const MAX_GROWTH = 1.1
const MAX_P99_RATIO = 2
const ROLE = 'platform and manager'

type World = { platform: Platform; flow: Flow; call: <T>(method: string, path: string, body?: unknown) => Promise<T> }
type Measured = { perSecond: number; p99Ms: number; taken: number; us: Record<string, number> }
/** Catches up until it is over. Returns how many messages it took. */
type CatchUp = (isOver: () => boolean) => Promise<number>

/** Publishes until as many wait. Returns the rates of the rounds. */
async function fill(flow: Flow, messages: number): Promise<number[]> {
  const rates: number[] = []
  for (let waiting = 0; waiting < messages;) {
    const began = performance.now()
    const { length } = await flow.publish(FILL_MS)
    rates.push((length * 1000) / (performance.now() - began))
    waiting += length
  }
  return rates
}

/** Publishes, and catches up beside it. */
async function measure({ platform, flow }: World, catchUp?: CatchUp): Promise<Measured> {
  let isOver = false
  const before = cpuMsByRole(platform.pid)
  const began = performance.now()
  const taking = catchUp?.(() => isOver)
  const latencies = await flow.publish(ROUND_MS)
  isOver = true
  const taken = (await taking) ?? 0
  const ms = performance.now() - began
  const after = cpuMsByRole(platform.pid)
  return {
    perSecond: (latencies.length * 1000) / ROUND_MS,
    p99Ms: percentile([...latencies], 0.99),
    taken: (taken * 1000) / ms,
    us: Object.fromEntries(Object.entries(after).map(([role, spent]) => [role, (spent - (before[role] ?? 0)) / ms])),
  }
}

/** Takes and acknowledges pages. */
const pulling =
  ({ call }: World, path: string): CatchUp =>
  async (isOver) => {
    let count = 0
    const caller = async () => {
      while (!isOver()) {
        const { messages } = await call<{ messages: { position: string }[] }>('GET', `${path}/messages?limit=${LIMIT}`)
        if (messages.length === 0) throw new Error('the consumer has caught up: more messages must wait')
        await call('POST', `${path}/ack`, { positions: messages.map(({ position }) => position) })
        count += messages.length
      }
    }
    await Promise.all(Array.from({ length: CALLERS }, caller))
    return count
  }

/** Lets the trigger run as fast as it can. */
const running =
  ({ call }: World, taskId: string, channelId: string): CatchUp =>
  async (isOver) => {
    const matched = async () =>
      (await call<{ trigger_status: { matched: number } }>('GET', `/tasks/${taskId}`)).trigger_status.matched
    await call('PUT', `/tasks/${taskId}`, { trigger: { channel_id: channelId, batch: BATCH } })
    const before = await matched()
    while (!isOver()) await pause(100)
    const count = (await matched()) - before
    await call('PUT', `/tasks/${taskId}`, { trigger: held(channelId) })
    return count
  }

const held = (channelId: string) => ({ channel_id: channelId, batch: BATCH, rate_limit: '1/24h', excess: 'wait' })

export async function benchBacklog(): Promise<void> {
  const dataDir = newDataDir()
  try {
    const mqttPort = await freePort()
    await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(mqttPort) })
    const { domainId, channelId, token, devices } = await prepareDevices(platform, DEVICES)
    const caller = createCaller(platform.port)
    const call: World['call'] = (method, path, body) => caller(method, path, body, token)
    const consumer = { name: 'behind', channels: [channelId], order: 'none', max_in_flight: 10_000 }
    await call('POST', `/${domainId}/consumers`, consumer)
    const task = { name: 'hello', domain_id: domainId, trigger: held(channelId) }
    const { id } = await call<{ id: string }>('POST', '/tasks', task)
    await platform.upload(id, 'examples/hello/hello.wasm', token)
    const flow = await startFlow({ port: mqttPort, topic: `m/${domainId}/c/${channelId}`, devices, window: WINDOW })
    const world = { platform, flow, call }
    const memory = async () => {
      await pause(REST_MS)
      return memoryMiBByRole(platform.pid)
    }
    await fill(flow, MESSAGES / 10)
    const few = await memory()
    await fill(flow, (MESSAGES * 9) / 10)
    const many = await memory()
    await pause(SETTLE_MS)
    const catchUps = {
      alone: undefined,
      consumer: pulling(world, `/${domainId}/consumers/behind`),
      trigger: running(world, id, channelId),
    }
    const found = Map.groupBy<string, { name: string } & Measured>([], ({ name }) => name)
    for (let round = 0; round < ROUNDS; round++)
      for (const [name, catchUp] of Object.entries(catchUps)) {
        const measured = { name, ...(await measure(world, catchUp)) }
        found.set(name, [...(found.get(name) ?? []), measured])
      }
    await flow.stop()
    const of = (name: string, read: (one: Measured) => number) => median((found.get(name) ?? []).map(read))
    const described = (name: string) =>
      `${perSecond(
        of(name, (one) => one.perSecond),
        'messages',
      )}, p99 ${milliseconds(of(name, (one) => one.p99Ms))}`
    const beside = (name: string) => {
      const taken = of(name, (one) => one.taken)
      const ratio = of(name, (one) => one.p99Ms) / of('alone', (one) => one.p99Ms)
      return [
        {
          name: `ingest beside a ${name} that catches up`,
          figure: described(name),
          ratio: `p99 ${ratio.toFixed(2)} times`,
          target: `${MAX_P99_RATIO} times`,
          isReached: ratio <= MAX_P99_RATIO,
        },
        {
          name: `  the ${name}`,
          figure: perSecond(taken, 'messages'),
          ratio: `${(taken / of(name, (one) => one.perSecond)).toFixed(2)} times the ingest beside it`,
          target: '1 time',
          isReached: taken >= of(name, (one) => one.perSecond),
        },
      ]
    }
    const [least, most] = [few[ROLE] ?? NaN, many[ROLE] ?? NaN]
    printTable('Messages that wait', [
      {
        name: `memory of the platform, ${MESSAGES.toLocaleString('en')} waiting messages`,
        figure: `${Math.round(most)} MiB; ${Math.round(least)} MiB with a tenth of them`,
        target: `${MAX_GROWTH} times`,
        isReached: most <= MAX_GROWTH * least,
      },
      {
        name: '  of PostgreSQL',
        figure: `${Math.round(many['PostgreSQL'] ?? NaN)} MiB; ${Math.round(few['PostgreSQL'] ?? NaN)} MiB`,
      },
      { name: 'MQTT ingest alone', figure: described('alone') },
      ...beside('consumer'),
      ...beside('trigger'),
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
