/** Devices that keep a window of QoS 1 messages in flight each, in a thread of their own, so that the work of the loader beside them does not delay the clock. */
import { once } from 'node:events'
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import type { Device } from '../platform.ts'
import { openClient, publishPacket } from './client.ts'

type Orders = { port: number; topic: string; devices: readonly Device[]; window: number }

export type Flow = {
  /** Publishes for this time, and until the last answer. Returns the latencies until PUBACK. */
  publish(durationMs: number): Promise<Float64Array>
  stop(): Promise<void>
}

export async function startFlow(orders: Orders): Promise<Flow> {
  const thread = new Worker(new URL(import.meta.url), { workerData: orders })
  await once(thread, 'message')
  return {
    async publish(durationMs) {
      thread.postMessage(durationMs)
      const [latencies] = (await once(thread, 'message')) as [Float64Array]
      return latencies
    },
    stop: async () => void (await thread.terminate()),
  }
}

async function serve({ port, topic, devices, window }: Orders): Promise<void> {
  let latencies: number[] = []
  let [endMs, inFlight] = [0, 0]
  const starts: (() => void)[] = []
  for (const [index, device] of devices.entries()) {
    const client = await openClient(port, `flow${index}`, device)
    const { bytes, packetIdAt } = publishPacket(topic, Buffer.from(`[{"n":"p${index}","u":"V","v":${index}}]`), 1)
    // Answers come in the order of the messages.
    const sent: number[] = []
    let packetId = 0
    const send = () => {
      sent.push(performance.now())
      inFlight++
      client.publish(bytes, packetIdAt, (packetId = (packetId % 65_535) + 1))
    }
    client.onPuback = () => {
      const now = performance.now()
      latencies.push(now - (sent.shift() as number))
      inFlight--
      if (now < endMs) send()
      else if (inFlight === 0) {
        parentPort?.postMessage(Float64Array.from(latencies))
        latencies = []
      }
    }
    starts.push(() => {
      for (let place = 0; place < window; place++) send()
    })
  }
  parentPort?.on('message', (durationMs: number) => {
    endMs = performance.now() + durationMs
    for (const start of starts) start()
  })
  parentPort?.postMessage('ready')
}

if (!isMainThread) await serve(workerData as Orders)
