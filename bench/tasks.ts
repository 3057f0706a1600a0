/** Tasks of `add` end to end: HTTP, queue, assignment over gRPC, runner, result; every state change is durable. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import pg from 'pg'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { load, prepareRequest } from './http-load.ts'
import { bullTasksPerSecond, graphileTasksPerSecond } from './peer-queues.ts'
import { cpuMsByRole, memoryMiB, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat, windowedP99 } from './statistics.ts'
import type { Row } from './statistics.ts'

const DURATION_MS = 4000
const REPEATS = 3
const TARGET_TASKS_PER_SECOND = 5000
/** Inputs in one bulk call, and the number of bulk callers. */
const MANY = 500
const MANY_CALLERS = 2
const CALLERS = [256, 64, 1] as const
/** Invocations of a warm module, one after the other. */
const TARGET_INVOKE_MS = 5
/** Invocations per second while the waiting time of each run is measured. */
const STEADY_RATE = 1000
const STEADY_CONNECTIONS = 50
const STEADY_WINDOWS = 5
const TARGET_WAIT_MS = 20
const RUN_PAGES = 20
const RUN_PAGE = 100
const BARE_COMMITS = 2000
const PEER_JOBS = 10_000

const JSON_TYPE = { 'Content-Type': 'application/json' }
const ONE = { inputs: [20, 22] }
const SEVERAL = { inputs: Array.from({ length: MANY }, (_, index) => [index, 22]) }

type Shape = { path: string; body: unknown; connections: number; tasks: number }
type Measured = { rate: number; latenciesMs: number[] }

/** Tasks per second, and the latency of each call. */
async function measure(port: number, { path, body, connections, tasks }: Shape): Promise<Measured> {
  const requests = [prepareRequest('POST', path, JSON_TYPE, JSON.stringify(body))]
  const result = await load({ port, requests, connections, durationMs: DURATION_MS, status: 200 })
  return { rate: result.perSecond * tasks, latenciesMs: result.latenciesMs }
}

/** The row of one shape, with the CPU time that all processes but the loader spend on a task. */
async function measurePlatform(platform: Platform, name: string, shape: Shape): Promise<Row & { rate: number }> {
  const results = await repeat(1, REPEATS, async () => {
    const before = cpuMsByRole(platform.pid)
    const measured = await measure(platform.port, shape)
    const after = cpuMsByRole(platform.pid)
    return { ...measured, before, after, tasks: measured.latenciesMs.length * shape.tasks }
  })
  const rate = median(results.map((result) => result.rate))
  const latencies = results.flatMap((result) => result.latenciesMs)
  const ofCall = shape.tasks === 1 ? '' : ' for all of a call'
  return {
    name,
    rate,
    figure: `${perSecond(rate, 'tasks')}, p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}${ofCall}`,
    ratio: cpuOfATask(results),
    ...(shape.connections === 1
      ? { target: `p50 ${milliseconds(TARGET_INVOKE_MS)}`, isReached: median(latencies) < TARGET_INVOKE_MS }
      : {}),
  }
}

type CpuOfShape = { before: Record<string, number>; after: Record<string, number>; tasks: number }

/** CPU time per task in each kind of process, in microseconds, without the loader. */
function cpuOfATask(results: readonly CpuOfShape[]): string {
  const roles = [...new Set(results.flatMap(({ after }) => Object.keys(after)))]
  const usedUs = roles.map((role) =>
    median(results.map(({ before, after, tasks }) => (((after[role] ?? 0) - (before[role] ?? 0)) * 1000) / tasks)),
  )
  const total = usedUs.reduce((sum, used) => sum + used, 0)
  const parts = roles.map((role, index) => `${Math.round(usedUs[index] ?? 0)} ${role}`)
  return `${Math.round(total)} us of CPU each: ${parts.join(', ')}`
}

/** From the request of a run to its first instruction, by the timestamps of the run. */
async function measureWaits(platform: Platform, taskId: string): Promise<Row[]> {
  const windows = await repeat(0, STEADY_WINDOWS, async () => {
    const { latenciesMs } = await load({
      port: platform.port,
      requests: [prepareRequest('POST', `/tasks/${taskId}/invoke`, JSON_TYPE, JSON.stringify(ONE))],
      connections: STEADY_CONNECTIONS,
      durationMs: DURATION_MS,
      status: 200,
      perSecond: STEADY_RATE / STEADY_CONNECTIONS,
    })
    return { latenciesMs, waitsMs: await newestWaits(platform, taskId) }
  })
  const waits = windows.map(({ waitsMs }) => waitsMs)
  const latencies = windows.map(({ latenciesMs }) => latenciesMs)
  const figure = (values: readonly (readonly number[])[]) =>
    `p50 ${milliseconds(median(values.flat()))}, p99 ${windowedP99(values).text}`
  return [
    {
      name: `until a run begins, at ${STEADY_RATE.toLocaleString('en')}/s`,
      figure: figure(waits),
      target: `p99 ${milliseconds(TARGET_WAIT_MS)}`,
      isReached: windowedP99(waits).value < TARGET_WAIT_MS,
    },
    { name: '  from the request to the result', figure: figure(latencies) },
  ]
}

/** How long each of the newest runs waited for its start. */
async function newestWaits(platform: Platform, taskId: string): Promise<number[]> {
  const waits: number[] = []
  for (let page = 0; page < RUN_PAGES; page++) {
    const { runs } = await platform.call<{ runs: { created_at: string; running_at: string | null }[] }>(
      'GET',
      `/tasks/${taskId}/runs?limit=${RUN_PAGE}&offset=${page * RUN_PAGE}`,
    )
    for (const { created_at: created, running_at: running } of runs)
      if (running !== null) waits.push(Math.max(0, Date.parse(running) - Date.parse(created)))
  }
  return waits
}

/** One durable row after the other, from Node, over the same socket: the lower bound of a start. */
async function measureCommits(): Promise<Row> {
  const dataDir = newDataDir()
  const server = await startEmbeddedPostgres({ dataDir, log: () => undefined })
  const client = new pg.Client(server.connection)
  try {
    await client.connect()
    await client.query('CREATE TABLE bare (value int)')
    const latencies: number[] = []
    for (let commit = 0; commit < BARE_COMMITS; commit++) {
      const began = performance.now()
      await client.query({ name: 'insert', text: 'INSERT INTO bare VALUES ($1)', values: [commit] })
      latencies.push(performance.now() - began)
    }
    return { name: '  one bare commit, with the machine idle', figure: percentiles(latencies) }
  } finally {
    await client.end()
    await server.stop()
    removeDataDir(dataDir)
  }
}

const percentiles = (values: readonly number[]) =>
  `p50 ${milliseconds(median(values))}, p99 ${milliseconds(percentile(values, 0.99))}`

/** The smallest program with the same guarantee, called in the same two ways. */
async function measureTrial(): Promise<{ one: number; many: number }> {
  const dataDir = newDataDir()
  const child = fork(join(import.meta.dirname, 'trial-tasks.ts'), [dataDir])
  try {
    const [port] = (await once(child, 'message')) as [number]
    const rateOf = async (shape: Omit<Shape, 'path'>) => {
      const results = await repeat(1, REPEATS, () => measure(port, { ...shape, path: '/' }))
      return median(results.map(({ rate }) => rate))
    }
    return {
      one: await rateOf({ body: { inputs: [ONE.inputs] }, connections: CALLERS[0], tasks: 1 }),
      many: await rateOf({ body: SEVERAL, connections: MANY_CALLERS, tasks: MANY }),
    }
  } finally {
    const ended = once(child, 'exit')
    child.disconnect()
    await ended
    removeDataDir(dataDir)
  }
}

async function measurePeers(rate: number): Promise<Row[]> {
  const graphile = await graphileTasksPerSecond(PEER_JOBS)
  const bull = await bullTasksPerSecond(PEER_JOBS)
  return [
    {
      name: 'graphile-worker, on the same PostgreSQL',
      figure: perSecond(graphile, 'tasks'),
      ratio: `Skein does ${(rate / graphile).toFixed(1)} times it; no isolation, no fence, no history of runs`,
    },
    bull === undefined
      ? { name: 'BullMQ', figure: 'not measured: redis-server is not installed' }
      : {
          name: 'BullMQ, on a Redis that forces each write',
          figure: perSecond(bull, 'tasks'),
          ratio: `Skein does ${(rate / bull).toFixed(1)} times it; no isolation, no fence`,
        },
  ]
}

export async function benchTasks(): Promise<void> {
  const dataDir = newDataDir()
  const rows: Row[] = []
  let one = NaN
  let many = NaN
  try {
    await using platform = await startPlatform(dataDir)
    const task = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [1, 2] })
    await platform.upload(task.id, 'examples/add/add.wasm')
    // The busiest case first, so that the measurement does not include the warm-up of the service.
    for (const connections of CALLERS) {
      const shape = { path: `/tasks/${task.id}/invoke`, body: ONE, connections, tasks: 1 }
      const row = await measurePlatform(platform, `${connections} at once, a request each`, shape)
      if (connections === CALLERS[0]) one = row.rate
      rows.push(row)
    }
    const several = { path: `/tasks/${task.id}/invoke-many`, body: SEVERAL, connections: MANY_CALLERS, tasks: MANY }
    const row = await measurePlatform(platform, `${MANY_CALLERS} callers, ${MANY} inputs in a call`, several)
    many = row.rate
    const target = perSecond(TARGET_TASKS_PER_SECOND, 'tasks')
    rows.push({ ...row, target, isReached: many >= TARGET_TASKS_PER_SECOND })
    rows.push(...(await measureWaits(platform, task.id)))
    rows.push({ name: 'memory afterwards, all processes', figure: `${Math.round(memoryMiB(platform.pid))} MiB` })
  } finally {
    removeDataDir(dataDir)
  }
  rows.push(await measureCommits())
  const trial = await measureTrial()
  rows.push({
    name: 'the smallest program with the same guarantee: node:http, a stream, a thread, two commits',
    figure: `${perSecond(trial.many, 'tasks')} many in a call, ${perSecond(trial.one, 'tasks')} a request each`,
    ratio: `Skein does ${(many / trial.many).toFixed(2)} and ${(one / trial.one).toFixed(2)} of it`,
  })
  rows.push(...(await measurePeers(many)))
  printTable('Tasks of add, started over HTTP, loader on the same cores', rows)
}
