/** Tasks of `add` end to end: HTTP, queue, assignment over gRPC, runner, result; every state change durable. */
import { load, prepareRequest } from './http-load.ts'
import { cpuMs, memoryMiB, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat } from './statistics.ts'
import type { Row } from './statistics.ts'

const DURATION_MS = 5000
const REPEATS = 3
const TARGET_TASKS_PER_SECOND = 5000
/** Of a warm module, one invocation after the other. */
const TARGET_INVOKE_MS = 5
/** Invocations a second while it is measured how long each waits until it runs. */
const STEADY_RATE = 1000
const STEADY_CONNECTIONS = 50
const TARGET_WAIT_MS = 20
const RUN_PAGES = 20
const RUN_PAGE = 100

/** From the request that a run is made for to its first instruction, by the clocks that the run shows. */
async function measureWaits(platform: Platform, taskId: string, request: Buffer): Promise<Row> {
  const perConnection = STEADY_RATE / STEADY_CONNECTIONS
  const connections = STEADY_CONNECTIONS
  await load({
    port: platform.port,
    requests: [request],
    connections,
    durationMs: DURATION_MS,
    status: 200,
    perSecond: perConnection,
  })
  const waits: number[] = []
  for (let page = 0; page < RUN_PAGES; page++) {
    const { runs } = await platform.call<{ runs: { created_at: string; running_at: string | null }[] }>(
      'GET',
      `/tasks/${taskId}/runs?limit=${RUN_PAGE}&offset=${page * RUN_PAGE}`,
    )
    for (const { created_at: created, running_at: running } of runs)
      if (running !== null) waits.push(Math.max(0, Date.parse(running) - Date.parse(created)))
  }
  const p99 = percentile(waits, 0.99)
  return {
    name: `until a run begins, at ${STEADY_RATE.toLocaleString('en')}/s`,
    figure: `p50 ${milliseconds(median(waits))}, p99 ${milliseconds(p99)}`,
    target: `p99 ${milliseconds(TARGET_WAIT_MS)}`,
    isReached: p99 < TARGET_WAIT_MS,
  }
}

export async function benchTasks(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const task = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [1, 2] })
    await platform.upload(task.id, 'examples/add/add.wasm')
    const request = prepareRequest(
      'POST',
      `/tasks/${task.id}/invoke`,
      { 'Content-Type': 'application/json' },
      JSON.stringify({ inputs: [20, 22] }),
    )
    const rows: Row[] = []
    for (const connections of [1, 64, 256]) {
      const results = await repeat(1, REPEATS, async () => {
        const before = cpuMs(platform.pid)
        const result = await load({
          port: platform.port,
          requests: [request],
          connections,
          durationMs: DURATION_MS,
          status: 200,
        })
        const after = cpuMs(platform.pid)
        const usedUs = (after.own + after.below - before.own - before.below) * 1000
        return {
          ...result,
          ownUs: ((after.own - before.own) * 1000) / result.answered,
          usedUs: usedUs / result.answered,
        }
      })
      const rate = median(results.map((result) => result.perSecond))
      const latencies = results.flatMap((result) => result.latenciesMs)
      const alone = median(latencies)
      rows.push({
        name: `${connections} at once`,
        figure: `${perSecond(rate, 'tasks')}, p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}`,
        ratio: `${Math.round(median(results.map(({ usedUs }) => usedUs)))} us of CPU each, ${Math.round(median(results.map(({ ownUs }) => ownUs)))} us of it in platform and manager`,
        ...(connections === 256
          ? { target: perSecond(TARGET_TASKS_PER_SECOND, 'tasks'), isReached: rate >= TARGET_TASKS_PER_SECOND }
          : {}),
        ...(connections === 1
          ? { target: `p50 ${milliseconds(TARGET_INVOKE_MS)}`, isReached: alone < TARGET_INVOKE_MS }
          : {}),
      })
    }
    rows.push(await measureWaits(platform, task.id, request))
    rows.push({ name: 'memory afterwards, all processes', figure: `${Math.round(memoryMiB(platform.pid))} MiB` })
    printTable('Tasks of add, invoked over HTTP, loader on the same cores', rows)
  } finally {
    removeDataDir(dataDir)
  }
}
