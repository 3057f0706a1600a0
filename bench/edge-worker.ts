/**
 * Memory of a worker by process, with and without SKEIN_WORKER_MEMORY, side by side in alternating rounds of one run: without runs, after a
 * run, and when its runners had time to leave (docs/guides/edge-worker.md).
 */
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { familyOf, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import { median, printTable } from './statistics.ts'

const ROUNDS = 3
/** Longer than an unused runner stays in limited memory, and shorter than it stays otherwise. */
const IDLE_MS = 15_000
const SETTLE_MS = 2_000
const MEMORY = '256MiB'
const TARGET_IDLE_MIB = 60
const TARGET_WARM_MIB = 100
const MODULE = 'examples/add/add.wasm'

const SUBJECTS = [
  { name: 'not limited', environment: {} },
  { name: `SKEIN_WORKER_MEMORY=${MEMORY}`, environment: { SKEIN_WORKER_MEMORY: MEMORY } },
] as const

/** Memory that no other process shares, in MiB. */
type Memory = { worker: number; runners: number[] }
type Phases = { idle: Memory; warm: Memory; left: Memory }

function privateMiB(pid: number): number {
  const smaps = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const kibibytes = [...smaps.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+)/gm)].map(([, found]) => Number(found))
  return kibibytes.reduce((sum, one) => sum + one, 0) / 1024
}

/** The worker of a platform and its runners. bubblewrap, which waits beside a runner, is not one. */
function memoryOf(platformPid: number): Memory {
  const memory: Memory = { worker: 0, runners: [] }
  for (const pid of familyOf(platformPid)) {
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    if (command.some((word) => /^(?:.*\/)?bwrap$/.test(word))) continue
    const entry = command.findLast((word) => /\.(?:js|ts)$/.test(word)) ?? ''
    if (entry.endsWith('/runner/entry.js')) memory.runners.push(privateMiB(pid))
    else if (/(?:^|\/)worker\.(?:js|ts)$/.test(entry)) memory.worker = privateMiB(pid)
  }
  if (memory.worker === 0) throw new Error('the platform has no worker')
  return memory
}

async function measure(environment: Readonly<Record<string, string>>): Promise<Phases> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir, environment)
    await pause(SETTLE_MS)
    const idle = memoryOf(platform.pid)
    const { id } = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add' })
    await platform.upload(id, MODULE)
    await platform.call('POST', `/tasks/${id}/invoke`, { inputs: [1, 2] })
    await pause(SETTLE_MS)
    const warm = memoryOf(platform.pid)
    await pause(IDLE_MS)
    return { idle, warm, left: memoryOf(platform.pid) }
  } finally {
    removeDataDir(dataDir)
  }
}

const sumOf = ({ worker, runners }: Memory) => worker + runners.reduce((sum, one) => sum + one, 0)

export async function benchEdgeWorker(): Promise<void> {
  const measured: Phases[][] = SUBJECTS.map(() => [])
  for (let round = 0; round < ROUNDS; round++)
    for (const [index, { environment }] of SUBJECTS.entries()) measured[index]?.push(await measure(environment))
  const phases = [
    ['idle', 'without runs', TARGET_IDLE_MIB],
    ['warm', 'after a run', TARGET_WARM_MIB],
    ['left', `${IDLE_MS / 1000} s after a run`, TARGET_IDLE_MIB],
  ] as const
  const rows = SUBJECTS.flatMap(({ name }, index) =>
    phases.map(([phase, what, target]) => {
      const rounds = (measured[index] ?? []).map((one) => one[phase])
      const floor = median((measured[0] ?? []).map((one) => sumOf(one[phase])))
      const total = median(rounds.map(sumOf))
      const runners = rounds.map((one) => one.runners.map((each) => each.toFixed(0)).join(' + ') || 'none')
      return {
        name: `${name}, ${what}`,
        figure: `${total.toFixed(0)} MiB: worker ${median(rounds.map((one) => one.worker)).toFixed(0)}, runners ${runners.at(-1)}`,
        ratio: `${(total / floor).toFixed(2)} of not limited`,
        ...(index === 0 ? {} : { target: `${target} MiB`, isReached: total <= target }),
      }
    }),
  )
  printTable('Private memory of a worker', rows)
}
