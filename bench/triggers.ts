/**
 * From a message on a channel to the result of the module that it starts, as a follower of another channel sees it: three
 * transactions and a run lie between. The floor is the way to the follower alone. And what a platform takes of which nobody asks
 * anything.
 */
import { followValues, publishValue } from './live.ts'
import { cpuMs, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'

const MESSAGES = 200
const WARM_UP_MESSAGES = 20
/** Messages come at any moment between two rounds of whoever looks by itself. */
const MAX_PAUSE_MS = 250
const DEADLINE_MS = 10_000
/** Starting has left nothing to do by then. */
const SETTLE_MS = 10_000
const REST_MS = 20_000

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

/** How long values that are published on one path take until they are seen on another, each by itself. */
async function measure(platform: Platform, from: string, to: string, authorization: string): Promise<number[]> {
  const stream = await followValues(platform, to, authorization)
  const latenciesMs: number[] = []
  for (let value = 1; value <= WARM_UP_MESSAGES + MESSAGES; value++) {
    const beganMs = performance.now()
    const status = await publishValue(platform, from, authorization, value)
    if (status !== 202) throw new Error(`a message was answered by ${status}`)
    while (!stream.came.has(value)) {
      if (performance.now() - beganMs > DEADLINE_MS) throw new Error(`nothing came of message ${value}`)
      await pause(1)
    }
    if (value > WARM_UP_MESSAGES) latenciesMs.push((stream.came.get(value) as number) - beganMs)
    await pause(Math.random() * MAX_PAUSE_MS)
  }
  stream.close()
  return latenciesMs
}

export async function benchTriggers(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    await pause(SETTLE_MS)
    const before = cpuMs(platform.pid)
    await pause(REST_MS)
    const after = cpuMs(platform.pid)
    const { domainId, channelId, token } = await prepareDevices(platform, 1)
    const { id: resultsId } = await platform.call<{ id: string }>('POST', `/${domainId}/channels`, {}, token)
    const task = {
      name: 'add',
      domain_id: domainId,
      inputs: [0],
      trigger: { channel_id: channelId },
      publish_result: { channel_id: resultsId },
    }
    const { id } = await platform.call<{ id: string }>('POST', '/tasks', task, token)
    await platform.upload(id, 'examples/add/add.wasm', token)
    const [from, to] = [channelId, resultsId].map((channel) => `/m/${domainId}/c/${channel}`) as [string, string]
    const row = (name: string, ms: readonly number[]) => ({
      name,
      figure: `p50 ${milliseconds(median(ms))}, p99 ${milliseconds(percentile(ms, 0.99))}`,
    })
    const run = await measure(platform, from, to, token)
    const alone = await measure(platform, to, to, token)
    const share = (ms: number) => `${((ms / REST_MS) * 100).toFixed(1)} %`
    printTable('A module on a channel', [
      row('from a message to the result of its run on another channel', run),
      row('  from a message to who follows its channel', alone),
      {
        name: 'at rest, of a core',
        figure: `${share(after.own - before.own)} platform and manager, ${share(after.below - before.below)} PostgreSQL and worker`,
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
