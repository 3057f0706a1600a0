/**
 * State of guests: a call with one get and one set against a call without, in turns of one run, and what runs repeat that change the same keys. All
 * processes and the loader share two cores.
 */
import wabt from 'wabt'
import { createCaller, formOf } from './http-caller.ts'
import type { Call } from './http-caller.ts'
import { load, prepareRequest } from './http-load.ts'
import { cpuMsByRole, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const DURATION_MS = Number(process.env['BENCH_STATE_MS'] ?? 3000)
const ROUNDS = Number(process.env['BENCH_STATE_ROUNDS'] ?? 5)
const CALLERS = [1, 16] as const
const KEYS = 1_000
const CONTENDERS = 64
const RUNS_OF_EACH = 100
/** The runs that change one key; their changes are one after the other. */
const RUNS_OF_HOT_KEY = 5
const TARGET_RATIO = 1.5
const TARGET_REPEATS = 0.1

const JSON_TYPE = { 'Content-Type': 'application/json' }

/** `add(key, delta)` returns the sum: of the key, which has four digits, or of both without state. */
const WITHOUT = `(module (memory (export "memory") 1)
  (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))`
const WITH = `(module
  (import "skein" "state_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "add") (param $key i32) (param $delta i32) (result i32) (local $at i32)
    (local.set $at (i32.const 4))
    (loop $digits
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (i32.add (i32.const 100) (local.get $at)) (i32.add (i32.const 48) (i32.rem_u (local.get $key) (i32.const 10))))
      (local.set $key (i32.div_u (local.get $key) (i32.const 10)))
      (br_if $digits (local.get $at)))
    (drop (call $get (i32.const 0) (i32.const 100) (i32.const 4) (i32.const 0) (i32.const 4)))
    (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (local.get $delta)))
    (if (call $set (i32.const 0) (i32.const 100) (i32.const 4) (i32.const 0) (i32.const 4)) (then unreachable))
    (i32.load (i32.const 0))))`

async function createTask(call: Call, text: string): Promise<string> {
  const module = (await wabt()).parseWat('state.wat', text).toBinary({}).buffer
  const { id } = await call<{ id: string }>('POST', '/tasks', { name: 'add' })
  await call('PUT', `/tasks/${id}/upload`, formOf(module))
  return id
}

type Cost = { latencyMs: number; rate: number; cpuUs: number }

/** Each connection changes keys of its own, mostly: the requests are many more than the connections. */
async function measure(platform: Platform, taskId: string, connections: number): Promise<Cost> {
  const requests = Array.from({ length: KEYS }, (_, key) =>
    prepareRequest('POST', `/tasks/${taskId}/invoke`, JSON_TYPE, JSON.stringify({ inputs: [key, 1] })),
  )
  const before = cpuMsByRole(platform.pid)
  const result = await load({ port: platform.port, requests, connections, durationMs: DURATION_MS, status: 200 })
  const after = cpuMsByRole(platform.pid)
  const usedMs = Object.entries(after).reduce((sum, [role, ms]) => sum + ms - (before[role] ?? 0), 0)
  return {
    latencyMs: median(result.latenciesMs),
    rate: result.perSecond,
    cpuUs: (usedMs * 1000) / result.latenciesMs.length,
  }
}

async function compare(platform: Platform, without: string, withState: string, connections: number): Promise<Row[]> {
  const costs: { plain: Cost; state: Cost }[] = []
  for (let round = 0; round <= ROUNDS; round++) {
    const plain = await measure(platform, without, connections)
    const state = await measure(platform, withState, connections)
    if (round > 0) costs.push({ plain, state })
  }
  const of = (value: (cost: Cost) => number) => {
    const [plain, state] = (['plain', 'state'] as const).map((kind) => median(costs.map((cost) => value(cost[kind]))))
    const ratio = median(costs.map((cost) => value(cost.state) / value(cost.plain)))
    return { plain: plain ?? 0, state: state ?? 0, ratio }
  }
  const latency = of((cost) => cost.latencyMs)
  const cpu = of((cost) => cost.cpuUs)
  const rate = of((cost) => 1 / cost.rate)
  return [
    {
      name: `one get and one set, ${connections} at a time`,
      figure: `p50 ${milliseconds(latency.state)}, without ${milliseconds(latency.plain)}`,
      ratio: `${latency.ratio.toFixed(2)} x the latency`,
      target: `${TARGET_RATIO} x`,
      isReached: latency.ratio <= TARGET_RATIO,
    },
    {
      name: '  calls',
      figure: `${perSecond(1 / rate.state, 'calls')}, without ${perSecond(1 / rate.plain, 'calls')}`,
      ratio: `1/${rate.ratio.toFixed(2)}`,
    },
    {
      name: '  processor time of a call',
      figure: `${Math.round(cpu.state)} us, without ${Math.round(cpu.plain)} us`,
      ratio: `${cpu.ratio.toFixed(2)} x`,
    },
  ]
}

/** Attempts that a conflict of state has ended, of all runs. */
async function repeats(call: Call, taskId: string): Promise<number> {
  let attempts = 0
  for (let offset = 0; ; offset += 100) {
    const { runs } = await call<{ runs: { id: string }[] }>('GET', `/tasks/${taskId}/runs?limit=100&offset=${offset}`)
    if (runs.length === 0) return attempts
    for (const { id } of runs) {
      const run = await call<{ earlier_attempts: { reason: string }[] }>('GET', `/tasks/${taskId}/runs/${id}`)
      attempts += run.earlier_attempts.filter(({ reason }) => reason === 'state_conflict').length
    }
  }
}

async function contend(call: Call, keys: number, each: number): Promise<Row> {
  const taskId = await createTask(call, WITH)
  await call('POST', `/tasks/${taskId}/invoke`, { inputs: [0, 0] })
  let completed = 0
  const latencies: number[] = []
  const caller = async () => {
    for (let run = 0; run < each; run++) {
      const began = performance.now()
      const key = Math.floor(Math.random() * keys)
      const { results } = await call<{ results: number[] | null }>('POST', `/tasks/${taskId}/invoke`, {
        inputs: [key, 1],
      })
      if (results !== null) completed++
      latencies.push(performance.now() - began)
    }
  }
  await Promise.all(Array.from({ length: CONTENDERS }, caller))
  let counted = 0
  for (let key = 0; key < keys; key++) {
    const name = String(key).padStart(4, '0')
    const found = await call<{ value: string; encoding: string }>('GET', `/tasks/${taskId}/state/${name}`).catch(
      () => undefined,
    )
    if (found === undefined) continue
    counted += Buffer.from(found.value, found.encoding === 'base64' ? 'base64' : 'utf8').readInt32LE()
  }
  const runs = CONTENDERS * each
  const repeated = (await repeats(call, taskId)) / runs
  return {
    name: `${CONTENDERS} at a time, ${keys.toLocaleString('en')} ${keys === 1 ? 'key' : 'keys'}`,
    figure: `${runs - completed} of ${runs} failed, ${counted - completed} counted wrong, p50 ${milliseconds(median(latencies))}`,
    ratio: `${repeated.toFixed(3)} repeats a run`,
    ...(keys === 1
      ? { target: 'none failed', isReached: completed === runs && counted === completed }
      : {
          target: `${TARGET_REPEATS}`,
          isReached: completed === runs && counted === completed && repeated < TARGET_REPEATS,
        }),
  }
}

export async function benchTaskState(): Promise<void> {
  const dataDir = newDataDir()
  const rows: Row[] = []
  try {
    await using platform = await startPlatform(dataDir)
    const call = createCaller(platform.port)
    const [without, withState] = [await createTask(call, WITHOUT), await createTask(call, WITH)]
    for (const connections of CALLERS) rows.push(...(await compare(platform, without, withState, connections)))
    rows.push(await contend(call, KEYS, RUNS_OF_EACH), await contend(call, 1, RUNS_OF_HOT_KEY))
  } finally {
    removeDataDir(dataDir)
  }
  printTable('State of tasks', rows)
}
