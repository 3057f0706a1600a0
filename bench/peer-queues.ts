/**
 * The same work in npm queues: jobs are added by the hundred, a handler calls `add` in a new instance in the process that
 * took the job, and its result is stored. These queues have neither isolation of guests from the queue, nor leases of
 * seconds, nor fences, nor runs with attempts.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Queue, Worker, createNodeRedisClient } from 'bullmq'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { createClient } from 'redis'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { newDataDir, removeDataDir } from './platform.ts'

const MODULE = new WebAssembly.Module(readFileSync(join(import.meta.dirname, '../examples/add/add.wasm')))
const JOBS_PER_CALL = 500
const CALLERS = 2
const WARM_UP_JOBS = 2_000
const CONCURRENCY = 64
const READY_DEADLINE_MS = 5_000
const REDIS_SERVER = '/usr/bin/redis-server'

type Inputs = [number, number]

function add(inputs: Inputs): number {
  const { add: called } = new WebAssembly.Instance(MODULE).exports as { add: (left: number, right: number) => number }
  return called(...inputs)
}

/**
 * Jobs per second from the first job added to the last one done; each caller adds the next batch when its own is done.
 */
async function throughput(jobs: number, addAndAwait: (count: number) => Promise<void>): Promise<number> {
  const began = performance.now()
  let left = jobs
  await Promise.all(
    Array.from({ length: CALLERS }, async () => {
      while (left > 0) {
        left -= JOBS_PER_CALL
        await addAndAwait(JOBS_PER_CALL)
      }
    }),
  )
  return (jobs / (performance.now() - began)) * 1000
}

/** Resolves callers whose jobs are all done. */
class Completion {
  readonly #open = new Map<number, { left: number; resolve: () => void }>()
  #calls = 0

  begin(count: number): { call: number; done: Promise<void> } {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#open.set(++this.#calls, { left: count, resolve })
    return { call: this.#calls, done: promise }
  }

  ended(call: number): void {
    const open = this.#open.get(call)
    if (open === undefined || --open.left > 0) return
    this.#open.delete(call)
    open.resolve()
  }
}

/**
 * Uses PostgreSQL with Skein's settings. The queue deletes rows of finished jobs, so the handler stores the result
 * itself.
 */
export async function graphileTasksPerSecond(jobs: number): Promise<number> {
  const dataDir = newDataDir()
  const server = await startEmbeddedPostgres({ dataDir, log: () => undefined })
  const pool = new pg.Pool({ ...server.connection, max: CONCURRENCY / 4 })
  const ignore = () => undefined
  pool.on('error', ignore).on('connect', (client) => void client.on('error', ignore))
  const logger = new Logger(() => ignore)
  try {
    await pool.query('CREATE TABLE results (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, result int NOT NULL)')
    const completion = new Completion()
    const runner = await run({
      pgPool: pool,
      noHandleSignals: true,
      logger,
      preset: {
        worker: {
          concurrentJobs: CONCURRENCY,
          localQueue: { size: JOBS_PER_CALL },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
      taskList: {
        add: async (payload) => {
          const { call, inputs } = payload as { call: number; inputs: Inputs }
          await pool.query({ name: 'store', text: 'INSERT INTO results (result) VALUES ($1)', values: [add(inputs)] })
          completion.ended(call)
        },
      },
    })
    const utils = await makeWorkerUtils({ pgPool: pool, logger })
    const addAndAwait = async (count: number) => {
      const { call, done } = completion.begin(count)
      const specs = Array.from({ length: count }, (_, index) => ({
        identifier: 'add',
        payload: { call, inputs: [index, 22] },
      }))
      await utils.addJobs(specs)
      await done
    }
    await throughput(WARM_UP_JOBS, addAndAwait)
    const rate = await throughput(jobs, addAndAwait)
    await runner.stop()
    await utils.release()
    return rate
  } finally {
    await pool.end()
    await server.stop()
    removeDataDir(dataDir)
  }
}

/** Uses a Redis of its own that syncs every write to disk before it answers; undefined without Redis. */
export async function bullTasksPerSecond(jobs: number): Promise<number | undefined> {
  if (!existsSync(REDIS_SERVER)) return undefined
  const folder = mkdtempSync(join(tmpdir(), 'skein-bench-redis-'))
  const socket = join(folder, 'redis.sock')
  const settings = ['--port', '0', '--unixsocket', socket, '--dir', folder, '--save', '']
  const durable = ['--appendonly', 'yes', '--appendfsync', 'always', '--maxmemory-policy', 'noeviction']
  const server = spawn(REDIS_SERVER, [...settings, ...durable], { stdio: 'ignore' })
  const ended = once(server, 'exit')
  try {
    const deadlineMs = performance.now() + READY_DEADLINE_MS
    while (!existsSync(socket)) {
      if (performance.now() > deadlineMs) throw new Error('redis-server did not start')
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    const connections: ReturnType<typeof createNodeRedisClient>[] = []
    const connection = () => {
      const adapter = createNodeRedisClient(createClient({ socket: { path: socket, tls: false } }))
      // It reports the end of its server as an error.
      adapter.on('error', () => undefined)
      connections.push(adapter)
      return adapter
    }
    const queue = new Queue<{ call: number; inputs: Inputs }, number[]>('add', { connection: connection() })
    const completion = new Completion()
    const worker = new Worker<{ call: number; inputs: Inputs }, number[]>(
      'add',
      ({ data }) => Promise.resolve([add(data.inputs)]),
      { connection: connection(), concurrency: CONCURRENCY },
    )
    worker.on('completed', ({ data }) => completion.ended(data.call))
    worker.on('error', () => undefined)
    const addAndAwait = async (count: number) => {
      const { call, done } = completion.begin(count)
      await queue.addBulk(
        Array.from({ length: count }, (_, index) => ({ name: 'add', data: { call, inputs: [index, 22] as Inputs } })),
      )
      await done
    }
    await throughput(WARM_UP_JOBS, addAndAwait)
    const rate = await throughput(jobs, addAndAwait)
    await worker.close()
    await queue.close()
    await Promise.all(connections.map((one) => one.quit()))
    return rate
  } finally {
    server.kill('SIGKILL')
    await ended
    rmSync(folder, { recursive: true, force: true })
  }
}
