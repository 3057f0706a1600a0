/** Tasks of `add` end to end: HTTP, queue, assignment over gRPC, runner, result; every state change durable. */
import { load, prepareRequest } from './http-load.ts'
import { memoryMiB, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat } from './statistics.ts'
import type { Row } from './statistics.ts'

const DURATION_MS = 5000
const REPEATS = 3
const TARGET_TASKS_PER_SECOND = 2000

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
      const results = await repeat(1, REPEATS, () =>
        load({ port: platform.port, requests: [request], connections, durationMs: DURATION_MS, status: 200 }),
      )
      const rate = median(results.map((result) => result.perSecond))
      const latencies = results.flatMap((result) => result.latenciesMs)
      rows.push({
        name: `${connections} at once`,
        figure: `${perSecond(rate, 'tasks')}, p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}`,
        ...(connections === 256
          ? { target: perSecond(TARGET_TASKS_PER_SECOND, 'tasks'), isReached: rate >= TARGET_TASKS_PER_SECOND }
          : {}),
      })
    }
    rows.push({ name: 'memory afterwards, all processes', figure: `${Math.round(memoryMiB(platform.pid))} MiB` })
    printTable('Tasks of add, invoked over HTTP, loader on the same cores', rows)
  } finally {
    removeDataDir(dataDir)
  }
}
