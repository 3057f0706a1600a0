/** What a new task costs: creating it, reading it, its first run, and a client that asks until the result is there. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createCaller } from './http-caller.ts'
import type { Call } from './http-caller.ts'
import { load, prepareRequest } from './http-load.ts'
import { cpuMsByRole, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const DURATION_MS = 4000
const WARM_UP_MS = 1500
const ASKING = [8, 64] as const
/** Between two questions of a client. */
const ASK_MS = 20
const TASKS = 600
const STARTERS = 64
const CONNECTIONS = 16
const PAGE_OF = 10_000
const OVER = new Set([3, 4, 5, 6])
const TARGET_RESULTS = 300
const TARGET_CREATED = 1500
const TARGET_READ_MS = 0.3

const JSON_TYPE = { 'Content-Type': 'application/json' }
const FILE = readFileSync(join(import.meta.dirname, '../examples/add/add.wasm')).toString('base64')
const PLAIN = { name: 'add', inputs: [20, 22] }
const WITH_FILE = { ...PLAIN, file: FILE }

type Shown = { id: string; state: number }

const pause = (durationMs: number) => new Promise<void>((resolve) => void setTimeout(resolve, durationMs))

/** Creates a task with its module, starts it and asks until it has ended, or waits for it in one call. */
async function firstResult(call: Call, isWaiting: boolean): Promise<void> {
  const { id } = await call<Shown>('POST', '/tasks', WITH_FILE)
  await call('POST', `/tasks/${id}/start`)
  for (;;) {
    if (OVER.has((await call<Shown>('GET', `/tasks/${id}${isWaiting ? '?wait=30s' : ''}`)).state)) return
    await pause(ASK_MS)
  }
}

/** Calls per second of so many callers. */
async function rateOf(callers: number, durationMs: number, once: () => Promise<void>): Promise<number> {
  const endMs = performance.now() + durationMs
  let ended = 0
  const work = async () => {
    while (performance.now() < endMs) {
      await once()
      if (performance.now() < endMs) ended++
    }
  }
  await Promise.all(Array.from({ length: callers }, work))
  return (ended * 1000) / durationMs
}

/** Requests per second, and the processor time of each in milliseconds, without the loader. */
async function measure(platform: Platform, requests: Buffer[], status: number) {
  const options = { port: platform.port, requests, connections: CONNECTIONS, status }
  await load({ ...options, durationMs: WARM_UP_MS })
  const before = cpuMsByRole(platform.pid)
  const { perSecond: rate, answered } = await load({ ...options, durationMs: DURATION_MS })
  const after = cpuMsByRole(platform.pid)
  const usedMs = Object.entries(after).map(([role, ms]) => [role, (ms - (before[role] ?? 0)) / answered] as const)
  const totalMs = usedMs.reduce((sum, [, ms]) => sum + ms, 0)
  const parts = usedMs.filter(([, ms]) => ms > 0.005).map(([role, ms]) => `${ms.toFixed(2)} ${role}`)
  return { rate, totalMs, text: `${totalMs.toFixed(2)} ms of CPU each: ${parts.join(', ')}` }
}

/** The same tasks are started once, and once more: ends per second of each. */
async function measureStarts(call: Call): Promise<{ first: number; later: number }> {
  const ids: string[] = []
  for (let at = 0; at < TASKS; at += STARTERS) {
    const created = Array.from({ length: Math.min(STARTERS, TASKS - at) }, () =>
      call<Shown>('POST', '/tasks', WITH_FILE),
    )
    ids.push(...(await Promise.all(created)).map(({ id }) => id))
  }
  const endsPerSecond = async () => {
    const began = performance.now()
    const left = [...ids]
    const starter = async () => {
      for (let id = left.pop(); id !== undefined; id = left.pop()) await call('POST', `/tasks/${id}/start`)
    }
    await Promise.all(Array.from({ length: STARTERS }, starter))
    for (const id of ids) while (!OVER.has((await call<Shown>('GET', `/tasks/${id}`)).state)) await pause(ASK_MS)
    return (TASKS * 1000) / (performance.now() - began)
  }
  return { first: await endsPerSecond(), later: await endsPerSecond() }
}

export async function benchFirstRuns(): Promise<void> {
  const dataDir = newDataDir()
  const rows: Row[] = []
  try {
    await using platform = await startPlatform(dataDir)
    const call = createCaller(platform.port)
    await rateOf(8, WARM_UP_MS, () => firstResult(call, false))
    for (const callers of ASKING) {
      const rate = await rateOf(callers, DURATION_MS, () => firstResult(call, false))
      const target =
        callers === 64 ? { target: perSecond(TARGET_RESULTS, 'results'), isReached: rate >= TARGET_RESULTS } : {}
      rows.push({
        name: `create with module, start, ask: ${callers} clients`,
        figure: perSecond(rate, 'results'),
        ...target,
      })
    }
    const waiting = await rateOf(64, DURATION_MS, () => firstResult(call, true))
    rows.push({ name: 'the same 64 with ?wait=30s', figure: perSecond(waiting, 'results') })
    const { first, later } = await measureStarts(call)
    rows.push({
      name: `${TASKS} new tasks, started`,
      figure: perSecond(first, 'runs'),
      target: perSecond(later / 2, 'runs'),
      isReached: first >= later / 2,
    })
    rows.push({ name: '  started again', figure: perSecond(later, 'runs') })
    const { id } = await call<Shown>('POST', '/tasks', WITH_FILE)
    const read = await measure(platform, [prepareRequest('GET', `/tasks/${id}`, {})], 200)
    const isFast = read.totalMs <= TARGET_READ_MS
    rows.push({
      name: 'GET of one task',
      figure: perSecond(read.rate, 'requests'),
      ratio: read.text,
      target: milliseconds(TARGET_READ_MS),
      isReached: isFast,
    })
    const { token, domainId, devices } = await prepareDevices(platform, 1)
    const headers = { Authorization: token }
    const path = `/${domainId}/clients/${devices[0]?.id}`
    const client = await measure(platform, [prepareRequest('GET', path, headers)], 200)
    rows.push({ name: 'GET of one client', figure: perSecond(client.rate, 'requests'), ratio: client.text })
    const create = await measure(platform, [prepareRequest('POST', '/tasks', JSON_TYPE, JSON.stringify(PLAIN))], 201)
    rows.push({
      name: 'POST of a task',
      figure: perSecond(create.rate, 'tasks'),
      ratio: create.text,
      target: perSecond(TARGET_CREATED, 'tasks'),
      isReached: create.rate >= TARGET_CREATED,
    })
    const whole = await measure(platform, [prepareRequest('POST', '/tasks', JSON_TYPE, JSON.stringify(WITH_FILE))], 201)
    rows.push({ name: '  with its module', figure: perSecond(whole.rate, 'tasks'), ratio: whole.text })
    const pages: number[] = []
    for (let page = 0; page < 20; page++) {
      const began = performance.now()
      await call('GET', '/tasks?limit=100')
      pages.push(performance.now() - began)
    }
    rows.push({ name: `a page of 100 among more than ${PAGE_OF} tasks`, figure: `p50 ${milliseconds(median(pages))}` })
  } finally {
    removeDataDir(dataDir)
  }
  printTable('New tasks, loader on the same cores', rows)
}
