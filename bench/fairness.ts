/** What the `invoke` of one domain costs beside thousands of queued runs of another share, and what fair turns cost these runs. */
import { logIn, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable } from './statistics.ts'

const DURATION_MS = 8000
const WARM_UP_MS = 2000
/** Together 8,000 runs that wait or run at any time. */
const FLOOD_CALLERS = 16
const FLOOD_RUNS = 500
const TARGET_P99_MS = 100
/** Part of the throughput that the other domain may cost. */
const TARGET_LOSS = 0.1

const FLOOD = { inputs: Array.from({ length: FLOOD_RUNS }, (_, index) => [index, 22]) }
const ONE = { inputs: [20, 22] }

/** Repeats a call until the time is over; the latencies of the calls that ended in time. */
async function repeatFor(durationMs: number, call: () => Promise<unknown>): Promise<number[]> {
  const latencies: number[] = []
  const end = performance.now() + durationMs
  for (;;) {
    const began = performance.now()
    await call()
    const now = performance.now()
    if (now > end) return latencies.length === 0 ? [now - began] : latencies
    latencies.push(now - began)
  }
}

export async function benchFairness(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const { owner, domainId } = await prepareDevices(platform, 1)
    const token = await logIn(platform, owner)
    const flooding = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [1, 2] })
    await platform.upload(flooding.id, 'examples/add/add.wasm')
    const fields = { name: 'add', inputs: [1, 2], domain_id: domainId }
    const task = await platform.call<{ id: string }>('POST', '/tasks', fields, token)
    await platform.upload(task.id, 'examples/add/add.wasm', token)

    const invoke = () => platform.call('POST', `/tasks/${task.id}/invoke`, ONE, token)
    const invokeMany = () => platform.call('POST', `/tasks/${flooding.id}/invoke-many`, FLOOD)
    const flood = async (durationMs: number) => {
      const callers = Array.from({ length: FLOOD_CALLERS }, () => repeatFor(durationMs, invokeMany))
      return ((await Promise.all(callers)).flat().length * FLOOD_RUNS * 1000) / durationMs
    }
    await repeatFor(WARM_UP_MS, invoke)
    const alone = await repeatFor(DURATION_MS / 2, invoke)
    await flood(WARM_UP_MS)
    const undisturbed = await flood(DURATION_MS)
    const [beside, disturbed] = await Promise.all([repeatFor(DURATION_MS, invoke), flood(DURATION_MS)])
    const total = disturbed + (beside.length * 1000) / DURATION_MS
    const figure = (latencies: readonly number[]) =>
      `p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}`
    printTable('Fair shares of runs', [
      { name: 'an invoke of one domain, alone', figure: figure(alone) },
      {
        name: `the same beside ${(FLOOD_CALLERS * FLOOD_RUNS).toLocaleString('en')} runs of others`,
        figure: figure(beside),
        target: `p99 ${milliseconds(TARGET_P99_MS)}`,
        isReached: percentile(beside, 0.99) < TARGET_P99_MS,
      },
      { name: 'the runs of others, alone', figure: perSecond(undisturbed, 'runs') },
      {
        name: 'all runs together',
        figure: perSecond(total, 'runs'),
        target: perSecond(undisturbed * (1 - TARGET_LOSS), 'runs'),
        isReached: total >= undisturbed * (1 - TARGET_LOSS),
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
