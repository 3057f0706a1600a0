/**
 * The time from a message on a channel to the result of the module that it triggers, seen by a follower of another
 * channel: three transactions and a run. The floor is the delivery to a follower alone. Also measured: the CPU time of a
 * platform without requests.
 */
import { followValues, publishValue } from './live.ts'
import { cpuMs, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'

const MESSAGES = 200
const WARM_UP_MESSAGES = 20
/** Messages are sent at any moment between two rounds of polling. */
const MAX_PAUSE_MS = 250
const DEADLINE_MS = 10_000
/** The work of starting is done by then. */
const SETTLE_MS = 10_000
const REST_MS = 20_000

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

/** How long each value that is published on one path takes until it is seen on another. */
async function measure(platform: Platform, from: string, to: string, authorization: string): Promise<number[]> {
  const stream = await followValues(platform, to, authorization)
  const latenciesMs: number[] = []
  for (let value = 1; value <= WARM_UP_MESSAGES + MESSAGES; value++) {
    const beganMs = performance.now()
    const status = await publishValue(platform, from, authorization, value)
    if (status !== 202) throw new Error(`publishing a message returned ${status}`)
    while (!stream.came.has(value)) {
      if (performance.now() - beganMs > DEADLINE_MS) throw new Error(`message ${value} had no result`)
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
      row('  from a message to a follower of its channel', alone),
      {
        name: 'at rest, of a core',
        figure: `${share(after.own - before.own)} platform and manager, ${share(after.below - before.below)} PostgreSQL and worker`,
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
