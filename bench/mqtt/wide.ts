/**
 * Latency of one message to each of a thousand subscribers. The brokers run side by side with a thousand connections each
 * and receive messages in turns, so that other load of the machine and the cost of the loader affect all of them.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { median, percentile } from '../statistics.ts'
import type { BrokerName } from './brokers.ts'
import { startBroker } from './brokers.ts'
import { openClient, publishPacket } from './client.ts'

export const WIDE_SUBSCRIBERS = 1000
const PAYLOAD_BYTES = 100
/** Messages that are not counted: a server compiles its code at first. */
const WARM_UPS = 20
/** A pause after the last delivery, so that acknowledgements of one broker do not delay the next. */
const REST_MS = 30
const DELIVERY_DEADLINE_MS = 20_000

export type WideFigures = {
  name: BrokerName
  p50Ms: number
  p99Ms: number
  /** Latency to the first of a thousand. */
  firstMs: number
  /** CPU time of the broker for one delivery, acknowledgement included. */
  cpuMicros: number
}

type Side = { name: BrokerName; send(): Promise<number[]>; cpuMs(): number } & AsyncDisposable

async function openSide(name: BrokerName, port: number): Promise<Side> {
  const broker = await startBroker(name, port)
  let latencies: number[] = []
  let onLast: (() => void) | undefined
  for (let index = 0; index < WIDE_SUBSCRIBERS; index++) {
    const client = await openClient(port, `w${index}`)
    client.onPublish = (payload) => {
      if (latencies.push(performance.now() - payload.readDoubleBE()) === WIDE_SUBSCRIBERS) onLast?.()
    }
    await client.subscribe('wide', 1)
  }
  const publisher = await openClient(port, 'publisher')
  let packetId = 0
  return {
    name,
    cpuMs: broker.cpuMs,
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
    async send() {
      latencies = []
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      onLast = resolve
      const late = setTimeout(
        () => reject(new Error(`${name} delivered ${latencies.length} of ${WIDE_SUBSCRIBERS}`)),
        DELIVERY_DEADLINE_MS,
      )
      const payload = Buffer.alloc(PAYLOAD_BYTES)
      payload.writeDoubleBE(performance.now())
      const { bytes, packetIdAt } = publishPacket('wide', payload, 1)
      publisher.publish(bytes, packetIdAt, ++packetId)
      await promise
      clearTimeout(late)
      return latencies
    },
  }
}

/** One round; the order of the brokers rotates with every message. */
export async function measureWide(
  names: readonly BrokerName[],
  freePort: () => Promise<number>,
  messages: number,
): Promise<WideFigures[]> {
  await using stack = new AsyncDisposableStack()
  const sides: Side[] = []
  for (const name of names) sides.push(stack.use(await openSide(name, await freePort())))
  const taken = new Map(sides.map((side) => [side, [] as number[][]]))
  // The loader must not collect garbage while a message is in flight.
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options: { type: 'minor' | 'major'; execution: 'sync' }) => void
  let before = new Map<Side, number>()
  for (let message = 0; message < WARM_UPS + messages; message++) {
    if (message === WARM_UPS) before = new Map(sides.map((side) => [side, side.cpuMs()]))
    const turn = message % sides.length
    for (const side of [...sides.slice(turn), ...sides.slice(0, turn)]) {
      const latencies = await side.send()
      if (message >= WARM_UPS) taken.get(side)?.push(latencies)
      await new Promise((resolve) => setTimeout(resolve, REST_MS))
      collect({ type: 'minor', execution: 'sync' })
    }
  }
  return sides.map((side) => {
    const latencies = taken.get(side) ?? []
    const all = latencies.flat()
    return {
      name: side.name,
      p50Ms: median(all),
      p99Ms: percentile(all, 0.99),
      firstMs: median(latencies.map((one) => Math.min(...one))),
      cpuMicros: ((side.cpuMs() - (before.get(side) ?? 0)) * 1000) / all.length,
    }
  })
}
