/**
 * `npm run bench -- against <commit>…`: compares builds of the product on one machine. All are started, and one loader of this checkout
 * loads them in turns (A B A B A B). Printed are medians of the rounds, and ratios to the first build.
 */
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { WORKING_TREE, startBuild, withBuilds } from './against/builds.ts'
import type { Build, Cleanup, RunningBuild } from './against/builds.ts'
import { IDLE_DEVICES, measureIdleDevices } from './against/idle-devices.ts'
import { JOBS, prepareWorld } from './against/jobs.ts'
import type { Job, JobName, World } from './against/jobs.ts'
import { cpuMsByRole, memoryMiBByRole } from './platform.ts'
import { median, milliseconds, percentile } from './statistics.ts'

const ROUNDS = 3
const SECONDS = 5
/** The warm-up of a job, before its first round, in proportion to a round. */
const WARM_UP_SHARE = 1
/** After a job: what the processes do of its work afterwards is counted, too. */
const SETTLE_MS = 1000
/** After a start, before the memory without load is measured. */
const IDLE_MS = 10_000
const MEMORY_JOBS = ['invoke-64', 'http', 'mqtt'] as const
/** For everything but the jobs: installing packages, starting, preparing and stopping a build. */
const PREPARE_DEADLINE_MS = 10 * 60_000
/** A round of starts or of memory. */
const ROUND_DEADLINE_MS = 5 * 60_000

const OTHER_JOBS = {
  start: 'time until the first answer, on an empty and on an existing data folder',
  memory: `memory of all processes (PSS), without load and after ${MEMORY_JOBS.join(', ')}`,
  devices: `memory and processor time of ${IDLE_DEVICES.toLocaleString('en')} connected devices that do nothing, with and without a state`,
}

const USAGE = `npm run bench -- against <commit>… [--jobs a,b] [--rounds ${ROUNDS}] [--seconds ${SECONDS}]

Compares one commit with the working tree, or several commits with the first of them; "." is the working tree.

  --jobs     some of: ${[...Object.keys(JOBS), ...Object.keys(OTHER_JOBS)].join(', ')}
  --rounds   rounds of each job; medians are printed
  --seconds  duration of a job in a round, and of its warm-up before the first one
`

type Options = { commits: string[]; jobs: string[]; rounds: number; seconds: number }

/** Throws an error whose message is for the user. */
function parseOptions(args: readonly string[]): Options {
  const known = [...Object.keys(JOBS), ...Object.keys(OTHER_JOBS)]
  const { positionals, values } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      jobs: { type: 'string', default: known.join(',') },
      rounds: { type: 'string', default: String(ROUNDS) },
      seconds: { type: 'string', default: String(SECONDS) },
    },
  })
  if (positionals.length === 0) throw new Error('no commit to compare with')
  const jobs = values.jobs.split(',')
  const unknown = jobs.filter((name) => !known.includes(name))
  if (unknown.length > 0) throw new Error(`no job ${unknown.join(', ')}`)
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)]
  if (!(Number.isInteger(rounds) && rounds > 0)) throw new Error('--rounds must be a positive integer')
  if (!(seconds > 0 && seconds <= 60)) throw new Error('--seconds must be above 0 and at most 60')
  return { commits: positionals.length === 1 ? [...positionals, WORKING_TREE] : positionals, jobs, rounds, seconds }
}

/** A figure of one round; the key of its row comes first. */
type Sample = {
  build: number
  row: string
  unit: string
  value: number
  /** Processor time in microseconds, or memory in MiB, by role. */
  byRole: Record<string, number>
  latenciesMs: number[]
  refused: number
}

/** Returns the status with which the process should exit at once: the load of an interrupted job may still wait. */
export async function benchAgainst(args: readonly string[]): Promise<number> {
  let options: Options
  try {
    options = parseOptions(args)
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${USAGE}`)
    return 2
  }
  const { commits } = options
  return await withBuilds({ commits, deadlineMs: deadlineMs(options) }, (builds, folder, cleanup) =>
    compare(options, { builds, folder, cleanup }),
  )
}

function deadlineMs({ commits, jobs, rounds, seconds }: Options): number {
  const jobMs = 2 * (rounds + WARM_UP_SHARE) * (seconds * 1000 + SETTLE_MS)
  return commits.length * (PREPARE_DEADLINE_MS + rounds * ROUND_DEADLINE_MS + jobs.length * jobMs)
}

type Compared = { builds: readonly Build[]; folder: string; cleanup: Cleanup }

async function compare(options: Options, { builds, folder, cleanup }: Compared): Promise<void> {
  const { jobs, rounds, seconds } = options
  const samples: Sample[] = []
  const subjects = builds.map((build, index) => new Subject({ build, index, folder, cleanup, samples }))
  const inTurns = async (what: string, measure: (subject: Subject) => Promise<void>) => {
    process.stderr.write(`${what}\n`)
    for (let round = 0; round < rounds; round++) for (const subject of subjects) await measure(subject)
  }
  // Builds that run at the same time share pages of files, which would count less for each.
  if (jobs.includes('start')) await inTurns('start', (subject) => subject.measureStarts())
  if (jobs.includes('memory')) await inTurns('memory', (subject) => subject.measureMemory(seconds * 1000))
  if (jobs.includes('devices')) await inTurns('devices', (subject) => subject.measureDevices())
  const loading = (Object.keys(JOBS) as JobName[]).filter((name) => jobs.includes(name))
  if (loading.length > 0) for (const subject of subjects) await subject.start()
  for (const name of loading) {
    for (const subject of subjects) await subject.warmUp(name, seconds * 1000 * WARM_UP_SHARE)
    await inTurns(name, (subject) => subject.measure(name, seconds * 1000))
  }
  printSamples(builds, samples)
}

type SubjectDeps = { build: Build; index: number; folder: string; cleanup: Cleanup; samples: Sample[] }
type Running = { platform: RunningBuild; world: World }

/** A build with its data folder. */
class Subject {
  readonly #deps: SubjectDeps
  readonly #dataDir: string
  readonly #prepared = new Set<Job['prepare']>()
  #running: Running | undefined
  #starts = 0

  constructor(deps: SubjectDeps) {
    this.#deps = deps
    this.#dataDir = join(deps.folder, `data-${deps.index}`)
  }

  /** For the jobs, until the comparison ends. */
  async start(): Promise<void> {
    const { build, cleanup } = this.#deps
    const platform = await startBuild(build, this.#dataDir, cleanup)
    this.#running = { platform, world: await prepareWorld(platform) }
  }

  async warmUp(name: JobName, durationMs: number): Promise<void> {
    const { platform, world } = this.#started()
    const { prepare, run }: Job = JOBS[name]
    if (prepare !== undefined && !this.#prepared.has(prepare)) await prepare(platform)
    this.#prepared.add(prepare)
    await run(platform, world, durationMs)
    await pause(SETTLE_MS)
  }

  async measure(name: JobName, durationMs: number): Promise<void> {
    const { platform, world } = this.#started()
    const { unit, run }: Job = JOBS[name]
    const before = cpuMsByRole(platform.pid)
    const { count, perSecond, latenciesMs, refused } = await run(platform, world, durationMs)
    await pause(SETTLE_MS)
    const after = cpuMsByRole(platform.pid)
    const byRole = Object.fromEntries(
      Object.entries(after).map(([role, ms]) => [role, ((ms - (before[role] ?? 0)) * 1000) / count]),
    )
    this.#add({ row: name, unit, value: perSecond, byRole, latenciesMs, refused })
  }

  /**
   * Alone. The first start of a build fills its compile cache and is not counted. The folders stay until the comparison ends: for five
   * seconds, ext4 does not use what was deleted, and searches longer for each new file.
   */
  async measureStarts(): Promise<void> {
    const { build, cleanup, folder, index } = this.#deps
    for (let isCounted = this.#starts > 0; ; isCounted = true) {
      const dataDir = join(folder, `start-${index}-${this.#starts++}`)
      for (const kind of ['an empty', 'an existing']) {
        await using running = await startBuild(build, dataDir, cleanup)
        const byRole = cpuMsByRole(running.pid)
        if (!isCounted) continue
        this.#add({ row: `start on ${kind} folder`, unit: 'ms', value: running.readyMs })
        this.#add({ row: `start on ${kind} folder, processor time`, unit: 'ms', value: sumOf(byRole), byRole })
      }
      if (isCounted) return
    }
  }

  /** Alone. */
  async measureMemory(durationMs: number): Promise<void> {
    const { build, cleanup, folder, index } = this.#deps
    const dataDir = join(folder, `memory-${index}-${this.#starts++}`)
    {
      await using platform = await startBuild(build, dataDir, cleanup)
      await pause(IDLE_MS)
      this.#addMemory('memory without load', platform.pid)
      const world = await prepareWorld(platform)
      for (const name of MEMORY_JOBS) await JOBS[name].run(platform, world, durationMs)
      this.#addMemory(`memory after ${MEMORY_JOBS.join(', ')}`, platform.pid)
    }
    rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
  }

  /** Alone. */
  async measureDevices(): Promise<void> {
    const { build, cleanup, folder, index } = this.#deps
    const dataDir = join(folder, `devices-${index}-${this.#starts++}`)
    {
      await using platform = await startBuild(build, dataDir, cleanup)
      for (const { row, unit, byRole } of await measureIdleDevices(platform))
        this.#add({ row, unit, value: sumOf(byRole), byRole })
    }
    rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
  }

  #started(): Running {
    if (this.#running === undefined) throw new Error(`${this.#deps.build.name} is not started`)
    return this.#running
  }

  #addMemory(row: string, pid: number): void {
    const byRole = memoryMiBByRole(pid)
    this.#add({ row, unit: 'MiB', value: sumOf(byRole), byRole })
  }

  #add(sample: Pick<Sample, 'row' | 'unit' | 'value'> & Partial<Sample>): void {
    this.#deps.samples.push({ build: this.#deps.index, byRole: {}, latenciesMs: [], refused: 0, ...sample })
  }
}

const sumOf = (byRole: Readonly<Record<string, number>>) => Object.values(byRole).reduce((sum, each) => sum + each, 0)

/** Roles with less than this share of a row's sum are left out. */
const SHOWN_SHARE = 0.005
const isLoad = (row: string): row is JobName => row in JOBS

/** A block for each row, a line for each build. */
function printSamples(builds: readonly Build[], samples: readonly Sample[]): void {
  const width = Math.max(...builds.map(({ name }) => name.length))
  for (const row of new Set(samples.map((sample) => sample.row))) {
    process.stdout.write(`\n${isLoad(row) ? `${row}: ${JOBS[row].what}` : row}\n`)
    const ofBuild = (index: number) => summaryOf(samples.filter((one) => one.row === row && one.build === index))
    const first = ofBuild(0)
    for (const [index, { name }] of builds.entries())
      process.stdout.write(`  ${name.padEnd(width)}  ${describe(ofBuild(index), first)}\n`)
  }
}

type Summary = Omit<Sample, 'build'> & { cost: number; range: Range; costRange: Range }
type Range = [number, number]

function summaryOf(samples: readonly Sample[]): Summary | undefined {
  const [any] = samples
  if (any === undefined) return undefined
  const values = samples.map(({ value }) => value)
  const costs = samples.map(({ byRole }) => sumOf(byRole))
  const roles = [...new Set(samples.flatMap(({ byRole }) => Object.keys(byRole)))]
  return {
    ...any,
    value: median(values),
    range: rangeOf(values),
    cost: median(costs),
    costRange: rangeOf(costs),
    byRole: Object.fromEntries(roles.map((role) => [role, median(samples.map(({ byRole }) => byRole[role] ?? 0))])),
    latenciesMs: samples.flatMap(({ latenciesMs }) => latenciesMs),
    refused: samples.reduce((sum, { refused }) => sum + refused, 0),
  }
}

const rangeOf = (values: readonly number[]): Range => [Math.min(...values), Math.max(...values)]
const showRange = (range: Range) => `[${range.map(short).join(' - ')}]`

function describe(summary: Summary | undefined, first: Summary | undefined): string {
  if (summary === undefined || first === undefined) return 'not measured'
  const { row, unit, value, range, cost, costRange, byRole, latenciesMs, refused } = summary
  const ratio = (mine: number, other: number) => `${(mine / other).toFixed(2)}x`
  const roles = Object.entries(byRole)
    .filter(([, each]) => each > cost * SHOWN_SHARE)
    .sort(([, left], [, right]) => right - left)
    .map(([role, each]) => `${role} ${short(each)}`)
  if (!isLoad(row)) {
    const parts = roles.length === 0 ? '' : `: ${roles.join(', ')}`
    return `${short(value)} ${unit} ${showRange(range)} ${ratio(value, first.value)}${parts}`
  }
  return [
    `${short(value)} ${unit}s/s ${showRange(range)} ${ratio(value, first.value)}`,
    `${short(cost)} us CPU each ${showRange(costRange)} ${ratio(cost, first.cost)}: ${roles.join(', ')}`,
    ...(latenciesMs.length === 0
      ? []
      : [`p50 ${milliseconds(median(latenciesMs))}, p99 ${milliseconds(percentile(latenciesMs, 0.99))}`]),
    ...(refused === 0 ? [] : [`${refused} REFUSED`]),
  ].join('; ')
}

const short = (value: number) =>
  value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(value >= 10 ? 1 : 2)
