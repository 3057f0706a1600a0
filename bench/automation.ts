/**
 * `npm run bench -- automation [row…]`: what the automation of one domain costs another. Each row floods triggers, schedules, workflows, results,
 * slots or the queue of runs with one account, and measures the same work of its neighbour idle and beside the flood: of the working tree, and
 * of the build before domains had shares. A new data folder for each row and build: what a flood leaves behind does not touch the next one.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { WORKING_TREE, startBuild, withBuilds } from './against/builds.ts'
import type { Build, Cleanup, RunningBuild } from './against/builds.ts'
import { logIn, prepareDevices, privateMemoryMiB } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

/** The last commit at which one account could stop the automation of others. */
const BEFORE_SHARES = 'f0116fc2'
/** How long one row of one build may take. */
const ROW_DEADLINE_MS = 10 * 60_000
const SETTLE_MS = 1_000
/** A neighbour is slowed at most by this factor, or to this value, whichever is more. */
const MAX_FACTOR = 3
const MAX_MS = 300
const DEADLINE_MS = 60_000
const TICKS = 30
const CHAINS = 6
/** Limit of tasks of a workflow. */
const CHAIN_STEPS = 500
const SCHEDULED_TASKS = 3_000
const UNFIT_RUNS = 20_000
const TRIGGERS = 600
const MESSAGE_BYTES = 900_000
const PACK_RECORDS = 9_000
const PACK_TRIGGERS = 4
const MANY_TRIGGERS = 10_000
const OUTPUT_BYTES = 8 * 1024 * 1024
const OUTPUT_CALLERS = 4
const MEASURED = 20
const WARM_UP = 3
const MAX_REASON_CHARS = 200
const AT_ONCE = 16

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

type Tenant = {
  domainId: string
  channelId: string
  call: <T>(method: string, path: string, body?: unknown) => Promise<T>
  /** Creates a task with a module, and returns its id. */
  task(fields?: Record<string, unknown>, file?: string): Promise<string>
}

type Subject = Pick<RunningBuild, 'pid' | 'call'> & { dataDir: string }
type Scene = { platform: Subject; flooding: Tenant; neighbour: Tenant }

const ADD = readFileSync(join(import.meta.dirname, '../examples/add/add.wasm')).toString('base64')
const ENDLESS = readFileSync(join(import.meta.dirname, '../examples/endless/endless.wasm')).toString('base64')

/** Prints as many bytes. */
const printer = (bytes: number) => `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start") (local $count i32)
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 65536))
    (memory.fill (i32.const 16) (i32.const 120) (i32.const 65536))
    (loop $again
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $count) (i32.const ${bytes / 65536}))))))`

async function newTenant(platform: Subject): Promise<Tenant> {
  const { owner, domainId, channelId } = await prepareDevices(platform, 1)
  const token = await logIn(platform, owner)
  const call: Tenant['call'] = (method, path, body) => platform.call(method, path, body, token)
  return {
    domainId,
    channelId,
    call,
    async task(fields = {}, file = ADD) {
      const body = { name: 'add', inputs: [1, 2], domain_id: domainId, file, ...fields }
      return (await call<{ id: string }>('POST', '/tasks', body)).id
    },
  }
}

/** Calls with all indexes, some at a time. */
async function forAll(count: number, call: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0
  const caller = async () => {
    while (next < count) await call(next++)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, caller))
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

async function waitFor(isTrue: () => Promise<boolean>): Promise<void> {
  const began = performance.now()
  while (!(await isTrue()))
    if (performance.now() - began > DEADLINE_MS) return
    else await pause(20)
}

type Repeated = { count?: number; pauseMs?: number; durationMs?: number }

/** The latencies of a call that is repeated, until it is done or the time is over. A failed call counts with the deadline. */
async function repeated(
  call: () => Promise<unknown>,
  { count = MEASURED, pauseMs = 50, durationMs = DEADLINE_MS }: Repeated = {},
): Promise<number[]> {
  const latencies: number[] = []
  const began = performance.now()
  while (latencies.length < count && performance.now() - began < durationMs) {
    const failed = await timed(() => call()).then(
      (ms) => void latencies.push(ms),
      () => true,
    )
    if (failed) latencies.push(DEADLINE_MS)
    await pause(pauseMs)
  }
  return latencies
}

/** The first calls of a start load what later ones find loaded. */
async function idleOf(call: () => Promise<unknown>, options?: Repeated): Promise<number[]> {
  await repeated(call, { count: WARM_UP })
  return await repeated(call, options)
}

/** From a message on the channel of the tenant to a run of the task. */
function triggered({ call, domainId, channelId }: Tenant, taskId: string): () => Promise<void> {
  return async () => {
    const runs = async () => (await call<{ total: number }>('GET', `/tasks/${taskId}/runs?limit=1`)).total
    const before = await runs()
    await call('POST', `/m/${domainId}/c/${channelId}`, [{ n: 'value', v: 1 }])
    await waitFor(async () => (await runs()) > before)
  }
}

const compared = (name: string, idle: readonly number[], beside: readonly number[]): Row => {
  const limit = Math.max(MAX_FACTOR * percentile(idle, 0.99), MAX_MS)
  const figure = (ms: readonly number[]) => `p50 ${milliseconds(median(ms))}, p99 ${milliseconds(percentile(ms, 0.99))}`
  return {
    name,
    figure: `idle ${figure(idle)}; beside ${figure(beside)}`,
    target: `p99 ${milliseconds(limit)}`,
    isReached: percentile(beside, 0.99) <= limit,
  }
}

const diskBytes = (folder: string): number =>
  existsSync(folder)
    ? readdirSync(folder, { withFileTypes: true, recursive: true }).reduce((sum, entry) => {
        try {
          return entry.isFile() ? sum + statSync(join(entry.parentPath, entry.name)).size : sum
        } catch {
          return sum
        }
      }, 0)
    : 0

const mebibytes = (bytes: number) => `${(bytes / 1024 / 1024).toFixed(0)} MiB`

/** Memory and disk that a flood took, beside a measurement. */
async function withCosts<T>({ platform }: Scene, work: () => Promise<T>): Promise<{ result: T; costs: Row }> {
  const [memory, disk] = [privateMemoryMiB(platform.pid), diskBytes(platform.dataDir)]
  let most = memory
  const watching = setInterval(() => (most = Math.max(most, privateMemoryMiB(platform.pid))), 500)
  const result = await work().finally(() => clearInterval(watching))
  const figure = `memory ${memory.toFixed(0)} MiB, then up to ${most.toFixed(0)} MiB; disk ${mebibytes(diskBytes(platform.dataDir) - disk)} more`
  return { result, costs: { name: '  the platform beside it', figure } }
}

async function waitingRuns(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const waiting = await Promise.all(
    Array.from({ length: MEASURED }, () => neighbour.task({ labels: { zone: 'nowhere' } })),
  )
  const refusals = async () => {
    const outcomes = await Promise.allSettled(waiting.map((id) => neighbour.call('POST', `/tasks/${id}/start`)))
    await Promise.all(waiting.map((id) => neighbour.call('POST', `/tasks/${id}/stop`)))
    return outcomes.filter(({ status }) => status === 'rejected').length
  }
  const invoked = await neighbour.task()
  const invoke = () => neighbour.call('POST', `/tasks/${invoked}/invoke`, { inputs: [20, 22] })
  const [idle, idleRefusals] = [await idleOf(invoke), await refusals()]
  const tasks: string[] = []
  await forAll(UNFIT_RUNS / CHAIN_STEPS, async (index) => {
    const unfit = Array.from({ length: CHAIN_STEPS }, (_, at) => ({
      ...step(at, undefined),
      labels: { zone: 'nowhere' },
    }))
    const body = { name: `flood ${index}`, domain_id: flooding.domainId, tasks: unfit }
    const { id } = await flooding.call<{ id: string }>('POST', '/workflows', body)
    const { tasks: listed } = await flooding.call<{ tasks: { id: string }[] }>('GET', `/workflows/${id}`)
    tasks.push(...listed.map((task) => task.id))
  })
  let refused = 0
  const { result, costs } = await withCosts(scene, async () => {
    await forAll(tasks.length, (index) =>
      flooding.call('POST', `/tasks/${tasks[index]}/start`).catch(() => (refused += 1)),
    )
    return { beside: await repeated(invoke), besideRefusals: await refusals() }
  })
  const { beside, besideRefusals } = result
  return [
    {
      name: `starts that wait, beside ${(tasks.length - refused).toLocaleString('en')} runs that fit no worker`,
      figure: `idle ${idleRefusals} of ${MEASURED} refused, beside ${besideRefusals}`,
      target: '0',
      isReached: besideRefusals === 0,
    },
    compared('  an invocation beside them', idle, beside),
    costs,
  ]
}

async function ticks(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const id = await neighbour.task({ schedule: '* * * * * *' })
  const counted = async () => {
    const look = async () => ({
      runs: (await neighbour.call<{ total: number }>('GET', `/tasks/${id}/runs?limit=1`)).total,
      // Builds before this bench did not count them.
      missed: (await neighbour.call<{ missed_ticks?: number }>('GET', `/tasks/${id}`)).missed_ticks ?? 0,
    })
    const before = await look()
    await pause(TICKS * 1_000)
    const { runs, missed } = await look()
    return { runs: runs - before.runs, missed: missed - before.missed }
  }
  const idle = await counted()
  const { result: beside, costs } = await withCosts(scene, async () => {
    await forAll(SCHEDULED_TASKS, () => flooding.task({ schedule: '* * * * * *' }))
    await pause(5_000)
    return await counted()
  })
  return [
    {
      name: `ticks in ${TICKS} s, beside ${SCHEDULED_TASKS.toLocaleString('en')} tasks with a schedule of every second`,
      figure: `idle ${idle.runs} (${idle.missed} missed), beside ${beside.runs} (${beside.missed} missed)`,
      target: `${TICKS} (less one at the edge)`,
      isReached: beside.runs >= TICKS - 1,
    },
    costs,
  ]
}

const step = (index: number, previous: string | undefined) => ({
  name: `s${index}`,
  function: 'add',
  inputs: [1, 2],
  file: ADD,
  ...(previous === undefined ? {} : { depends_on: [previous] }),
})
const chain = (steps: number) =>
  Array.from({ length: steps }, (_, index) => step(index, index === 0 ? undefined : `s${index - 1}`))

async function workflows(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const { id } = await neighbour.call<{ id: string }>('POST', '/workflows', {
    domain_id: neighbour.domainId,
    tasks: chain(3),
  })
  const ended = async () => (await neighbour.call<{ state: number }>('GET', `/workflows/${id}`)).state === 3
  const whole = async () => {
    await neighbour.call('POST', `/workflows/${id}/start`)
    await waitFor(ended)
  }
  const idle = await idleOf(whole, { count: 10 })
  const chains: string[] = []
  await forAll(CHAINS, async () => {
    const body = { domain_id: flooding.domainId, tasks: chain(CHAIN_STEPS) }
    chains.push((await flooding.call<{ id: string }>('POST', '/workflows', body)).id)
  })
  const began = performance.now()
  const { result: beside, costs } = await withCosts(scene, async () => {
    for (const one of chains) await flooding.call('POST', `/workflows/${one}/start`)
    return await repeated(whole, { count: 10 })
  })
  await waitFor(async () => {
    const states = await Promise.all(chains.map((one) => flooding.call<{ state: number }>('GET', `/workflows/${one}`)))
    return states.every(({ state }) => state !== 2)
  })
  const row = compared(`a workflow of 3 steps, beside ${CHAINS} chains of ${CHAIN_STEPS} steps`, idle, beside)
  return [row, { name: '  the chains', figure: `at most ${milliseconds(performance.now() - began)}` }, costs]
}

async function output(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const invoked = await neighbour.task()
  const invoke = () => neighbour.call('POST', `/tasks/${invoked}/invoke`, { inputs: [20, 22] })
  const idle = await idleOf(invoke)
  const file = Buffer.from(await parse(printer(OUTPUT_BYTES))).toString('base64')
  const loud = await flooding.task({ name: 'loud', inputs: [], max_output_bytes: OUTPUT_BYTES }, file)
  let [isOver, runs] = [false, 0]
  const { result: beside, costs } = await withCosts(scene, async () => {
    const callers = Array.from({ length: OUTPUT_CALLERS }, async () => {
      while (!isOver) {
        await flooding.call('POST', `/tasks/${loud}/invoke`, {}).catch(() => undefined)
        runs += 1
      }
    })
    await pause(SETTLE_MS)
    const latencies = await repeated(invoke, { count: 50, durationMs: 20_000 })
    isOver = true
    await Promise.all(callers)
    return latencies
  })
  return [
    compared(`an invocation, beside runs that print ${mebibytes(OUTPUT_BYTES)}`, idle, beside),
    { ...costs, name: `  the platform, ${runs} of these runs` },
  ]
}

async function endless(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const invoked = await neighbour.task()
  const invoke = () => neighbour.call('POST', `/tasks/${invoked}/invoke`, { inputs: [20, 22], timeout: '10s' })
  const idle = await idleOf(invoke)
  const { result: beside, costs } = await withCosts(scene, async () => {
    for (let run = 0; run < 2; run++) {
      const id = await flooding.task({ name: 'spin', inputs: [], timeout: '1h' }, ENDLESS)
      await flooding.call('POST', `/tasks/${id}/start`)
    }
    await pause(SETTLE_MS)
    return await repeated(invoke, { count: 10, durationMs: 30_000 })
  })
  return [compared('an invocation, beside two endless runs on the only worker (2 slots)', idle, beside), costs]
}

async function largeMessage(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const listener = await neighbour.task({ inputs: [0], trigger: { channel_id: neighbour.channelId } })
  const message = triggered(neighbour, listener)
  const idle = await idleOf(message)
  await forAll(TRIGGERS, () => flooding.task({ inputs: [0], trigger: { channel_id: flooding.channelId } }))
  await pause(SETTLE_MS)
  const { result: beside, costs } = await withCosts(scene, async () => {
    // PostgreSQL cannot compress it.
    const record = { n: 'text', vs: randomBytes((MESSAGE_BYTES * 3) / 4).toString('base64') }
    await flooding.call('POST', `/m/${flooding.domainId}/c/${flooding.channelId}`, [record])
    return await repeated(message, { durationMs: 40_000 })
  })
  return [compared(`a trigger, beside one message of 900 kB to ${TRIGGERS} triggers`, idle, beside), costs]
}

async function largePack(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const listener = await neighbour.task({ inputs: [0], trigger: { channel_id: neighbour.channelId } })
  const message = triggered(neighbour, listener)
  const idle = await idleOf(message)
  await forAll(PACK_TRIGGERS, () => flooding.task({ inputs: [0], trigger: { channel_id: flooding.channelId } }))
  await pause(SETTLE_MS)
  const { result: beside, costs } = await withCosts(scene, async () => {
    const pack = Array.from({ length: PACK_RECORDS }, (_, index) => ({
      n: `n${index}`,
      v: index,
      t: 1_700_000_000 + index,
    }))
    await flooding.call('POST', `/m/${flooding.domainId}/c/${flooding.channelId}`, pack)
    return await repeated(message, { durationMs: 30_000 })
  })
  return [
    compared(
      `a trigger, beside a pack of ${PACK_RECORDS.toLocaleString('en')} records to ${PACK_TRIGGERS} triggers`,
      idle,
      beside,
    ),
    costs,
  ]
}

async function manyTriggers(scene: Scene): Promise<Row[]> {
  const { flooding, neighbour } = scene
  const listener = await neighbour.task({ inputs: [0], trigger: { channel_id: neighbour.channelId } })
  const message = triggered(neighbour, listener)
  const idle = await idleOf(message)
  await forAll(MANY_TRIGGERS, () => flooding.task({ inputs: [0], trigger: { channel_id: flooding.channelId } }))
  await pause(SETTLE_MS)
  const { result: beside, costs } = await withCosts(scene, async () => {
    await flooding.call('POST', `/m/${flooding.domainId}/c/${flooding.channelId}`, [{ n: 'value', v: 1 }])
    return await repeated(message, { durationMs: 40_000 })
  })
  return [
    compared(`a trigger, beside one message to ${MANY_TRIGGERS.toLocaleString('en')} triggers`, idle, beside),
    costs,
  ]
}

const ROWS = { largeMessage, manyTriggers, largePack, ticks, workflows, output, endless, waitingRuns }
type RowName = keyof typeof ROWS

/** Returns the status with which the process should exit. Without names, all rows are measured. */
export async function benchAutomation(names: readonly string[] = []): Promise<number> {
  const unknown = names.filter((name) => !Object.hasOwn(ROWS, name))
  if (unknown.length > 0) {
    process.stderr.write(`no row ${unknown.join(', ')}; there are ${Object.keys(ROWS).join(', ')}\n`)
    return 2
  }
  const wanted = (Object.keys(ROWS) as RowName[]).filter((name) => names.length === 0 || names.includes(name))
  const deadlineMs = 2 * (wanted.length + 1) * ROW_DEADLINE_MS
  return await withBuilds({ commits: [BEFORE_SHARES, WORKING_TREE], deadlineMs }, async (builds, folder, cleanup) => {
    for (const name of wanted) {
      const rows: Row[] = []
      for (const build of builds) rows.push(...(await measured(name, { build, folder, cleanup })))
      printTable(
        `Shares of automation (${name}): a neighbour, idle and beside a flood; load ${loadavg()[0]?.toFixed(1)}`,
        rows,
      )
    }
  })
}

/** A build that cannot do it says so: an older one may lack what the row uses. */
async function measured(
  name: RowName,
  { build, folder, cleanup }: { build: Build; folder: string; cleanup: Cleanup },
): Promise<Row[]> {
  const dataDir = join(folder, `${name}-${build.name.replaceAll(' ', '-')}`)
  const named = (row: Row): Row => ({
    ...row,
    name: row.name.startsWith(' ') ? row.name : `${build.name}: ${row.name}`,
  })
  try {
    await using running = await startBuild(build, dataDir, cleanup, {
      SKEIN_WORKER_SLOTS: '2',
      SKEIN_LOG_LEVEL: 'warn',
    })
    const platform = { pid: running.pid, call: running.call, dataDir }
    const [flooding, neighbour] = [await newTenant(platform), await newTenant(platform)]
    const rows = await ROWS[name]({ platform, flooding, neighbour })
    return rows.map(named)
  } catch (error) {
    return [named({ name, figure: `failed: ${(error as Error).message.slice(0, MAX_REASON_CHARS)}` })]
  } finally {
    rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
  }
}
