/**
 * Devices that publish with QoS 1 at a low rate, in a thread of their own: the loader of `storm.ts` opens thousands of connections
 * meanwhile, and would read the answers late.
 */
import { once } from 'node:events'
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import { openClient, publishPacket } from './mqtt/client.ts'
import type { Device } from './platform.ts'

const PUBLISH_INTERVAL_MS = 50

type Orders = { port: number; topic: string; devices: readonly Device[] }

export type Publishers = {
  /** The latencies until PUBACK since the last call. */
  take(): Promise<number[]>
  stop(): Promise<void>
}

export async function startPublishers(port: number, topic: string, devices: readonly Device[]): Promise<Publishers> {
  const thread = new Worker(new URL(import.meta.url), { workerData: { port, topic, devices } satisfies Orders })
  const ask = async () => {
    thread.postMessage('take')
    const [latencies] = (await once(thread, 'message')) as [number[]]
    return latencies
  }
  await once(thread, 'message')
  return {
    take: ask,
    stop: async () => void (await thread.terminate()),
  }
}

async function publish({ port, topic, devices }: Orders): Promise<void> {
  let latencies: number[] = []
  for (const [index, device] of devices.entries()) {
    const client = await openClient(port, `publisher${index}`, device)
    const { bytes, packetIdAt } = publishPacket(topic, Buffer.from(`[{"n":"p${index}","v":1}]`), 1)
    const sent: number[] = []
    client.onPuback = () => latencies.push(performance.now() - (sent.shift() as number))
    let packetId = 0
    setInterval(() => {
      sent.push(performance.now())
      client.publish(bytes, packetIdAt, (packetId = (packetId % 65_535) + 1))
    }, PUBLISH_INTERVAL_MS)
  }
  parentPort?.on('message', () => {
    parentPort?.postMessage(latencies)
    latencies = []
  })
  parentPort?.postMessage('ready')
}

if (!isMainThread) await publish(workerData as Orders)
