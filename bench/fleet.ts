/**
 * `npm run bench -- fleet [commit…]`: 2,000 workers at one manager, each with a gRPC connection of its own: what an idle one costs, and how all
 * come back after the manager was killed, with a run each and as many that wait. With commits, their builds are measured in turns with the working
 * tree, and ratios to the first commit are printed. The workers are those of this checkout, without runners, in a few processes whose processor
 * time is not counted.
 */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { WORKING_TREE, startBuild, withBuilds } from './against/builds.ts'
import type { Build, Cleanup, RunningBuild } from './against/builds.ts'
import { SAMPLED } from './fleet/orders.ts'
import type { Order, Report } from './fleet/orders.ts'
import type { Calls } from './fleet/simulated-worker.ts'
import { formOf } from './http-caller.ts'
import { cpuMsByRole, familyOf, freePort, memoryMiBByRole } from './platform.ts'
import { median, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const ROOT = join(import.meta.dirname, '..')
const LOADERS = 2
/** Runs that all workers hold, and as many that wait for their slots. */
const RUNS_PER_WORKER = 2
const RUNS_PER_CALL = 1_000
/** Two heartbeat intervals of a fleet of this size. */
const WINDOW_MS = 30_000
/** What a start has left to do is not counted. */
const START_SETTLE_MS = 20_000
const SETTLE_MS = 5_000
const POLL_MS = 50
const STEP_DEADLINE_MS = 180_000
const ROUND_DEADLINE_MS = 15 * 60_000
const TARGET_PLACED_MS = 10_000
const HEARTBEAT_ROLES = ['platform and manager', 'PostgreSQL'] as const
const COMPLETED = 3

const USAGE = `npm run bench -- fleet [commit…] [--workers 2000] [--rounds 1]

With commits, the working tree is compared with them; "." is the working tree.
`

type Options = { commits: string[]; workers: number; rounds: number }

function parseOptions(args: readonly string[]): Options {
  const { positionals, values } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { workers: { type: 'string', default: '2000' }, rounds: { type: 'string', default: '1' } },
  })
  const [workers, rounds] = [Number(values.workers), Number(values.rounds)]
  if (!(Number.isInteger(workers) && workers >= LOADERS && workers <= 10_000))
    throw new Error(`--workers must be ${LOADERS} to 10000`)
  if (!(Number.isInteger(rounds) && rounds > 0)) throw new Error('--rounds must be a positive integer')
  const commits = positionals.includes(WORKING_TREE) ? positionals : [...positionals, WORKING_TREE]
  return { commits, workers, rounds }
}

/** Returns the status with which the process should exit. */
export async function benchFleet(args: readonly string[]): Promise<number> {
  let options: Options
  try {
    options = parseOptions(args)
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${USAGE}`)
    return 2
  }
  const { commits, rounds, workers } = options
  let isRight = true
  const deadlineMs = commits.length * (rounds + 1) * ROUND_DEADLINE_MS
  const status = await withBuilds({ commits, deadlineMs }, async (builds, folder, cleanup) => {
    const measured = new Map<Build, Figures[]>(builds.map((build) => [build, []]))
    for (let round = 0; round < rounds; round++)
      for (const build of builds) {
        process.stderr.write(`${build.name}, round ${round + 1}\n`)
        const dataDir = join(folder, `fleet-${round}-${builds.indexOf(build)}`)
        measured.get(build)?.push(await measure({ build, workers, dataDir, cleanup }))
      }
    const [first] = builds
    for (const [build, figures] of measured) {
      const compared = build === first || first === undefined ? undefined : measured.get(first)
      printTable(`${workers.toLocaleString('en')} workers at one manager: ${build.name}`, rowsOf(figures, compared))
      isRight &&= figures.every(({ lost, repeated }) => lost === 0 && repeated === 0)
    }
  })
  return status === 0 && !isRight ? 1 : status
}

type Figures = {
  joinedMs: number
  /** Per worker, of all processes of the build. */
  memoryKiB: number
  databaseKiB: number
  framesPerSecond: number
  bytesPerSecond: number
  /** Per worker and second, in microseconds. */
  cpuUs: Record<(typeof HEARTBEAT_ROLES)[number], number>
  /** From the moment at which the killed manager was ready again. */
  placedMs: number
  /** Processor time per worker that came back. */
  returnUs: number
  downMs: number
  drainedMs: number
  /** Runs without an end, and runs whose guest came to its end twice. */
  lost: number
  repeated: number
  /** Calls that a worker stopped because its lease had ended: the manager was away for too long. */
  givenUp: number
}

type Measured = { build: Build; workers: number; dataDir: string; cleanup: Cleanup }

async function measure({ build, workers, dataDir, cleanup }: Measured): Promise<Figures> {
  const grpcPort = await freePort()
  const environment = { SKEIN_MANAGER_GRPC_PORT: String(grpcPort), SKEIN_LOG_LEVEL: 'warn' }
  const start = () => startBuild(build, dataDir, cleanup, environment)
  const fleet = new Fleet(workers)
  cleanup.defer(() => fleet.stop())
  let platform = await start()
  const startMs = sumOfAll(cpuMsByRole(platform.pid))
  await pause(START_SETTLE_MS)
  const idle = await spent(platform.pid)
  const idleMemory = memoryMiBByRole(platform.pid)
  const token = readFileSync(join(dataDir, 'worker-token'), 'utf8').trim()
  const began = performance.now()
  await fleet.join({ address: `127.0.0.1:${grpcPort}`, token, folder: `${dataDir}-workers` })
  const joinedMs = performance.now() - began
  await pause(SETTLE_MS)
  const before = await fleet.report()
  const busy = await spent(platform.pid)
  const after = await fleet.report()
  const memory = memoryMiBByRole(platform.pid)
  const grownKiB = (isDatabase: boolean) =>
    ((sumOf(memory, isDatabase) - sumOf(idleMemory, isDatabase)) * 1024) / workers
  const sampled = Math.min(SAMPLED * LOADERS, workers) * (WINDOW_MS / 1000)
  const cpuUs = Object.fromEntries(
    HEARTBEAT_ROLES.map((role) => [
      role,
      (((busy[role] ?? 0) - (idle[role] ?? 0)) * 1000) / workers / (WINDOW_MS / 1000),
    ]),
  ) as Figures['cpuUs']
  const idleFigures = {
    joinedMs,
    memoryKiB: grownKiB(false),
    databaseKiB: grownKiB(true),
    framesPerSecond: (after.wire.frames - before.wire.frames) / sampled,
    bytesPerSecond: (after.wire.bytes - before.wire.bytes) / sampled,
    cpuUs,
  }
  const task = await startRuns(platform, workers * RUNS_PER_WORKER)
  await until('every worker has a run', async () => (await fleet.report()).calls === workers)
  killAll(platform.pid)
  const killedAt = performance.now()
  await until('the workers have noticed', async () => (await fleet.report()).connected === 0)
  await platform[Symbol.asyncDispose]()
  platform = await start()
  const readyAt = performance.now()
  await until('all workers are placed again', async () => (await fleet.report()).connected === workers)
  const placedMs = performance.now() - readyAt
  const returnUs = ((sumOfAll(cpuMsByRole(platform.pid)) - startMs) * 1000) / workers
  await fleet.open()
  const wanted = workers * RUNS_PER_WORKER
  let ended = 0
  await until(
    'all runs have ended',
    async () => {
      ended = await countRuns(platform, task)
      return ended === wanted
    },
    () => `${ended} of ${wanted}`,
  )
  const drainedMs = performance.now() - readyAt - placedMs
  const calls = await fleet.calls()
  await fleet.stop()
  await platform[Symbol.asyncDispose]()
  for (const folder of [dataDir, `${dataDir}-workers`]) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  return {
    ...idleFigures,
    placedMs,
    returnUs,
    downMs: readyAt - killedAt,
    drainedMs,
    lost: wanted - [...calls.values()].filter(({ ended: times }) => times > 0).length,
    repeated: [...calls.values()].filter(({ ended: times }) => times > 1).length,
    givenUp: [...calls.values()].reduce((sum, { begun, ended: times }) => sum + begun - times, 0),
  }
}

const sumOfAll = (byRole: Record<string, number>) => Object.values(byRole).reduce((sum, each) => sum + each, 0)
const isOfDatabase = (role: string) => role === 'PostgreSQL'
const sumOf = (byRole: Record<string, number>, isDatabase: boolean) =>
  Object.entries(byRole).reduce((sum, [role, value]) => (isOfDatabase(role) === isDatabase ? sum + value : sum), 0)

/** Processor time of a window, by role. */
async function spent(pid: number): Promise<Record<string, number>> {
  const before = cpuMsByRole(pid)
  await pause(WINDOW_MS)
  const after = cpuMsByRole(pid)
  return Object.fromEntries(Object.entries(after).map(([role, ms]) => [role, ms - (before[role] ?? 0)]))
}

/** Runs of a task that only the fleet takes. Returns its id. */
async function startRuns({ call }: RunningBuild, count: number): Promise<string> {
  const labels = { bench: 'fleet' }
  const task = await call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [20, 22], labels, timeout: '1h' })
  await call('PUT', `/tasks/${task.id}/upload`, formOf(readFileSync(join(ROOT, 'examples/add/add.wasm'))))
  for (let left = count; left > 0; left -= RUNS_PER_CALL) {
    const inputs = Array.from({ length: Math.min(left, RUNS_PER_CALL) }, () => [20, 22])
    // They go on when the call does not wait for them any longer.
    await call('POST', `/tasks/${task.id}/invoke-many`, { inputs, timeout: '1s' })
  }
  return task.id
}

async function countRuns({ call }: RunningBuild, taskId: string): Promise<number> {
  const page = await call<{ total: number }>('GET', `/runs?task_id=${taskId}&state=${COMPLETED}&limit=1`)
  return page.total
}

/** Ends the platform and its database at once, which is what happens when the machine loses its power. */
function killAll(pid: number): void {
  for (const member of familyOf(pid)) process.kill(member, 'SIGKILL')
}

async function until(what: string, holds: () => Promise<boolean>, state: () => string = () => ''): Promise<void> {
  const deadline = performance.now() + STEP_DEADLINE_MS
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not in time: ${what} ${state()}`)
    await pause(POLL_MS)
  }
}

/** The processes with the simulated workers. */
class Fleet {
  readonly #loaders: ChildProcess[]
  readonly #workers: number

  constructor(workers: number) {
    this.#workers = workers
    this.#loaders = Array.from({ length: LOADERS }, () => fork(join(import.meta.dirname, 'fleet/loader.ts')))
  }

  async join(options: { address: string; token: string; folder: string }): Promise<void> {
    await Promise.all(
      this.#loaders.map((loader, index) => {
        const count = Math.floor(this.#workers / LOADERS) + (index < this.#workers % LOADERS ? 1 : 0)
        return ask(loader, { do: 'join', ...options, count, name: `fleet-${index}` })
      }),
    )
  }

  async report(): Promise<Report> {
    const reports = await Promise.all(this.#loaders.map((loader) => ask<Report>(loader, { do: 'report' })))
    const sum = (read: (report: Report) => number) => reports.reduce((total, report) => total + read(report), 0)
    return {
      connected: sum(({ connected }) => connected),
      calls: sum(({ calls }) => calls),
      wire: { frames: sum(({ wire }) => wire.frames), bytes: sum(({ wire }) => wire.bytes) },
    }
  }

  async open(): Promise<void> {
    await Promise.all(this.#loaders.map((loader) => ask(loader, { do: 'open' })))
  }

  /** The calls of each run, at any worker. */
  async calls(): Promise<Map<string, Calls>> {
    const sums = new Map<string, Calls>()
    for (const loader of this.#loaders)
      for (const [run, { begun, ended }] of await ask<[string, Calls][]>(loader, { do: 'calls' })) {
        const sum = sums.getOrInsertComputed(run, () => ({ begun: 0, ended: 0 }))
        sum.begun += begun
        sum.ended += ended
      }
    return sums
  }

  async stop(): Promise<void> {
    for (const loader of this.#loaders) {
      if (loader.exitCode !== null || loader.signalCode !== null) continue
      const exited = once(loader, 'exit')
      loader.kill('SIGKILL')
      await exited
    }
  }
}

async function ask<T>(loader: ChildProcess, order: Order): Promise<T> {
  const listening = new AbortController()
  const { signal } = listening
  const answer = Promise.race([
    once(loader, 'message', { signal }),
    once(loader, 'exit', { signal }).then(() => [{ error: 'a loader ended' }]),
  ])
  loader.send(order)
  const [{ value, error }] = (await answer.finally(() => listening.abort())) as [{ value?: T; error?: string }]
  if (error !== undefined) throw new Error(error)
  return value as T
}

function rowsOf(figures: readonly Figures[], compared: readonly Figures[] | undefined): Row[] {
  const row = (name: string, unit: string, read: (each: Figures) => number, target?: number): Row => {
    const value = median(figures.map(read))
    const before = compared === undefined ? 0 : median(compared.map(read))
    const ratio = before === 0 ? undefined : `${(value / before).toFixed(2)} of the first build`
    return {
      name,
      figure: `${value.toFixed(value < 100 ? 1 : 0)} ${unit}`,
      ...(ratio === undefined ? {} : { ratio }),
      ...(target === undefined ? {} : { target: `${target} ${unit}`, isReached: value <= target }),
    }
  }
  return [
    row('frames of HTTP/2 per idle worker and second', 'frames', (each) => each.framesPerSecond),
    row('bytes per idle worker and second', 'bytes', (each) => each.bytesPerSecond),
    row('memory per idle worker', 'KiB', (each) => each.memoryKiB),
    row('memory per idle worker in PostgreSQL', 'KiB', (each) => each.databaseKiB),
    ...HEARTBEAT_ROLES.map((role) =>
      row(`processor time per worker and second, ${role}`, 'us', (each) => each.cpuUs[role]),
    ),
    row('until all had joined', 'ms', (each) => each.joinedMs),
    row('kill of the manager and its database until it answers again', 'ms', (each) => each.downMs),
    row('from then until all workers are placed again', 'ms', (each) => each.placedMs, TARGET_PLACED_MS),
    row('processor time of the return, per worker', 'us', (each) => each.returnUs),
    row('from then until all runs have ended', 'ms', (each) => each.drainedMs),
    row('runs lost', 'runs', (each) => each.lost, 0),
    row('runs executed twice', 'runs', (each) => each.repeated, 0),
    row('calls that were stopped at the end of a lease', 'calls', (each) => each.givenUp),
  ]
}
