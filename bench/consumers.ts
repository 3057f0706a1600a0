/**
 * Taking messages by a named consumer in batches of 500, and acknowledging them. The floor is what publishing each of them over HTTP costs in
 * the same run. The messages of many devices wait when it begins.
 */
import { load, prepareRequest } from './http-load.ts'
import { cpuMs, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { printTable } from './statistics.ts'

const PUBLISH_MS = 10_000
const CONNECTIONS = 64
const LIMIT = 500
const CALLERS = 2
const PACK = '[{"bn":"room:","n":"temperature","u":"Cel","v":21.5}]'

type Page = { messages: { position: string }[] }

/** Takes and acknowledges everything. Returns the number of messages. */
async function takeAll(platform: Platform, path: string, authorization: string): Promise<number> {
  let count = 0
  async function caller(): Promise<void> {
    for (;;) {
      const { messages } = await platform.call<Page>('GET', `${path}/messages?limit=${LIMIT}`, undefined, authorization)
      if (messages.length === 0) return
      const positions = messages.map(({ position }) => position)
      await platform.call('POST', `${path}/ack`, { positions }, authorization)
      count += messages.length
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  return count
}

async function measured<T>(platform: Platform, work: () => Promise<T>) {
  const [before, beganMs] = [cpuMs(platform.pid), performance.now()]
  const result = await work()
  const [after, endedMs] = [cpuMs(platform.pid), performance.now()]
  return { result, cpu: after.own - before.own + after.below - before.below, ms: endedMs - beganMs }
}

export async function benchConsumers(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const { domainId, channelId, token, devices } = await prepareDevices(platform, CONNECTIONS)
    const requests = devices.map(({ secret }) =>
      prepareRequest(
        'POST',
        `/m/${domainId}/c/${channelId}`,
        { Authorization: `Client ${secret}`, 'Content-Type': 'application/senml+json' },
        PACK,
      ),
    )
    const publishing = { port: platform.port, requests, connections: CONNECTIONS, durationMs: PUBLISH_MS, status: 202 }
    const published = await measured(platform, () => load(publishing))
    const perPublished = published.cpu / published.result.answered
    const rows = []
    for (const order of ['client', 'none']) {
      const consumer = { name: `by-${order}`, channels: [channelId], from: 'earliest', order, max_in_flight: 10_000 }
      await platform.call('POST', `/${domainId}/consumers`, consumer, token)
      const path = `/${domainId}/consumers/${consumer.name}`
      const taken = await measured(platform, () => takeAll(platform, path, token))
      const perTaken = taken.cpu / taken.result
      rows.push({
        name: `take and acknowledge ${taken.result} messages, order ${order}`,
        figure: `${Math.round((taken.result / taken.ms) * 1000)} per second, ${Math.round(perTaken * 1000)} µs CPU each, ${(perTaken / perPublished).toFixed(2)} × publishing one`,
      })
    }
    printTable('A named consumer', [
      {
        name: `publish ${published.result.answered} messages`,
        figure: `${Math.round(perPublished * 1000)} µs CPU each`,
      },
      ...rows,
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
