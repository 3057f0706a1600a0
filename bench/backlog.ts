/**
 * A named consumer and a trigger that are far behind. Messages are published over MQTT while the consumer is not read and the trigger waits for its
 * rate: what they cost while they wait is the memory of a platform that was just started, with none, a tenth and all of them. Then both catch up while the
 * devices publish as fast as they are acknowledged, in turns with publishing alone.
 *
 * `BENCH_BACKLOG_MESSAGES` wait at least.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { createCaller } from './http-caller.ts'
import { startFlow } from './mqtt/flow.ts'
import type { Flow } from './mqtt/flow.ts'
import { freePort, memoryMiBByRole, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Device, Platform } from './platform.ts'
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
/** After a start, before memory is measured. */
const REST_MS = 15_000
const CALLERS = 2
const LIMIT = 1_000
const BATCH = 500
/** The memory of the platform with all messages, to that with a tenth of them. */
const MAX_GROWTH = 1.1
/** The p99 of the ingest beside it. */
const MAX_SLOWER = 2
const ROLE = 'platform and manager'

type World = { flow: Flow; call: <T>(method: string, path: string, body?: unknown) => Promise<T> }
type Measured = { perSecond: number; p99Ms: number; taken: number }
type Kind = 'alone' | 'consumer' | 'trigger'
/** Catches up until it is over. Returns how many messages it took since it had begun. */
type CatchUp = (isOver: () => boolean, begun: () => void) => Promise<number>

/** Publishes until as many more wait. */
async function fill(flow: Flow, messages: number): Promise<void> {
  for (let waiting = 0; waiting < messages;) waiting += (await flow.publish(FILL_MS)).length
}

/** Publishes, and catches up beside it. */
async function measure({ flow }: World, catchUp?: CatchUp): Promise<Measured> {
  let isOver = false
  const begun = Promise.withResolvers<void>()
  const taking = catchUp?.(() => isOver, begun.resolve)
  if (taking !== undefined) await Promise.race([begun.promise, taking])
  const began = performance.now()
  const latencies = await flow.publish(ROUND_MS)
  isOver = true
  const taken = (await taking) ?? 0
  const ms = performance.now() - began
  return {
    perSecond: (latencies.length * 1000) / ROUND_MS,
    p99Ms: percentile([...latencies], 0.99),
    taken: (taken * 1000) / ms,
  }
}

/** Takes and acknowledges pages. */
const pulling =
  ({ call }: World, path: string): CatchUp =>
  async (isOver, begun) => {
    let count = 0
    begun()
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

/** Lets the trigger run as fast as it can, from its first messages on: triggers that wait for their rate are looked at once in a while. */
const running =
  ({ call }: World, taskId: string, channelId: string): CatchUp =>
  async (isOver, begun) => {
    const matched = async () =>
      (await call<{ trigger_status: { matched: number } }>('GET', `/tasks/${taskId}`)).trigger_status.matched
    await call('PUT', `/tasks/${taskId}`, { trigger: { channel_id: channelId, batch: BATCH } })
    const waiting = await matched()
    while ((await matched()) === waiting) await pause(20)
    const before = await matched()
    begun()
    while (!isOver()) await pause(100)
    const count = (await matched()) - before
    await call('PUT', `/tasks/${taskId}`, { trigger: held(channelId) })
    return count
  }

const held = (channelId: string) => ({ channel_id: channelId, batch: BATCH, rate_limit: '1/24h', excess: 'wait' })

type Prepared = { domainId: string; channelId: string; token: string; devices: Device[]; taskId: string }

async function prepare(platform: Platform): Promise<Prepared> {
  const { domainId, channelId, token, devices } = await prepareDevices(platform, DEVICES)
  const consumer = { name: 'behind', channels: [channelId], order: 'none', max_in_flight: 10_000 }
  await platform.call('POST', `/${domainId}/consumers`, consumer, token)
  const task = { name: 'hello', domain_id: domainId, trigger: held(channelId) }
  const { id } = await platform.call<{ id: string }>('POST', '/tasks', task, token)
  await platform.upload(id, 'examples/hello/hello.wasm', token)
  return { domainId, channelId, token, devices, taskId: id }
}

/** The memory of a platform that was just started, with what waits by then; then publishes more, if wanted. */
async function grow(dataDir: string, world: Prepared | undefined, messages: number) {
  const mqttPort = await freePort()
  await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(mqttPort) })
  const prepared = world ?? (await prepare(platform))
  await pause(REST_MS)
  const memory = memoryMiBByRole(platform.pid)
  if (messages > 0) {
    const { devices, domainId, channelId } = prepared
    const flow = await startFlow({ port: mqttPort, topic: `m/${domainId}/c/${channelId}`, devices, window: WINDOW })
    await fill(flow, messages)
    await flow.stop()
  }
  return { prepared, memory }
}

async function catchUp(dataDir: string, { domainId, channelId, token, devices, taskId }: Prepared) {
  const mqttPort = await freePort()
  await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(mqttPort) })
  const caller = createCaller(platform.port)
  const call: World['call'] = (method, path, body) => caller(method, path, body, token)
  const flow = await startFlow({ port: mqttPort, topic: `m/${domainId}/c/${channelId}`, devices, window: WINDOW })
  const world = { flow, call }
  await pause(SETTLE_MS)
  const found: Record<Kind, Measured[]> = { alone: [], consumer: [], trigger: [] }
  for (let round = 0; round < ROUNDS; round++) {
    found.alone.push(await measure(world))
    found.consumer.push(await measure(world, pulling(world, `/${domainId}/consumers/behind`)))
    found.trigger.push(await measure(world, running(world, taskId, channelId)))
  }
  await flow.stop()
  return found
}

export async function benchBacklog(): Promise<void> {
  const dataDir = newDataDir()
  try {
    const { prepared, memory: none } = await grow(dataDir, undefined, MESSAGES / 10)
    const { memory: few } = await grow(dataDir, prepared, (MESSAGES * 9) / 10)
    const { memory: many } = await grow(dataDir, prepared, 0)
    const found = await catchUp(dataDir, prepared)
    const of = (kind: Kind, read: (one: Measured) => number) => median(found[kind].map(read))
    const rateOf = (kind: Kind) => of(kind, (one) => one.perSecond)
    const p99Of = (kind: Kind) => of(kind, (one) => one.p99Ms)
    const ingest = (kind: Kind) => `${perSecond(rateOf(kind), 'messages')}, p99 ${milliseconds(p99Of(kind))}`
    const beside = (kind: Kind) => {
      const taken = of(kind, (one) => one.taken)
      const slower = p99Of(kind) / p99Of('alone')
      return [
        {
          name: `  beside a ${kind} that catches up`,
          figure: ingest(kind),
          ratio: `p99 ${slower.toFixed(2)} times`,
          target: `${MAX_SLOWER} times`,
          isReached: slower <= MAX_SLOWER,
        },
        {
          name: `  what the ${kind} takes`,
          figure: perSecond(taken, 'messages'),
          ratio: `${(taken / rateOf(kind)).toFixed(2)} times the ingest`,
          target: '1 time',
          isReached: taken >= rateOf(kind),
        },
      ]
    }
    const [least, most] = [few[ROLE] ?? NaN, many[ROLE] ?? NaN]
    const all = (memory: Record<string, number>) =>
      `${Math.round(memory[ROLE] ?? NaN)} MiB, PostgreSQL ${Math.round(memory['PostgreSQL'] ?? NaN)} MiB`
    printTable('Messages that wait', [
      { name: 'memory of the platform, no message waits', figure: all(none) },
      { name: `  ${(MESSAGES / 10).toLocaleString('en')} wait`, figure: all(few) },
      {
        name: `  ${MESSAGES.toLocaleString('en')} wait`,
        figure: all(many),
        target: `${MAX_GROWTH} times`,
        isReached: most <= MAX_GROWTH * least,
      },
      { name: 'MQTT ingest alone', figure: ingest('alone') },
      ...beside('consumer'),
      ...beside('trigger'),
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
