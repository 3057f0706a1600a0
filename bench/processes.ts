/**
 * One and two processes of the platform (SKEIN_API_PROCESSES) side by side, in alternating rounds of one run: processor time of all
 * processes for a message, with and without load, the memory of each, and the time until a killed process has a replacement.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { publishOverHttp, publishOverMqtt } from './capacity.ts'
import type { World } from './capacity.ts'
import {
  cpuMsByRole,
  familyOf,
  freePort,
  newDataDir,
  prepareDevices,
  removeDataDir,
  startPlatform,
} from './platform.ts'
import type { Platform } from './platform.ts'
import { median, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const COUNTS = [1, 2] as const
const ROUNDS = 3
const DEVICES = 200
const IDLE_MS = 10_000
const SETTLE_MS = 5000
const KILLS = 3
const RECOVERY_DEADLINE_MS = 60_000

type Subject = { count: number; platform: Platform; mqttPort: number; world: World }
/** Microseconds for a message by role, of each round. */
type Spent = Record<string, number>[]

const commandOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
  } catch {
    return ''
  }
}

async function spend(platform: Platform, work: () => Promise<number>): Promise<Record<string, number>> {
  const before = cpuMsByRole(platform.pid)
  const units = await work()
  const after = cpuMsByRole(platform.pid)
  return Object.fromEntries(
    Object.entries(after).map(([role, used]) => [role, ((used - (before[role] ?? 0)) * 1000) / units]),
  )
}

const totalOf = (spent: Record<string, number>) => Object.values(spent).reduce((sum, used) => sum + used, 0)

function rolesOf(rounds: Spent, digits: number): string {
  const roles = new Set(rounds.flatMap((round) => Object.keys(round)))
  return [...roles]
    .map((role) => ({ role, used: median(rounds.map((round) => round[role] ?? 0)) }))
    .filter(({ used }) => used >= 0.5)
    .map(({ role, used }) => `${used.toFixed(digits)} ${role}`)
    .join(', ')
}

/** Resident memory, and the part of it that no other process shares, in MiB. */
function memoryOf(pid: number): string {
  const smaps = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const mebibytes = (name: string) =>
    Math.round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(smaps)?.[1] ?? 0) / 1024)
  return `${mebibytes('Rss')} MiB resident, ${mebibytes('Pss')} MiB proportional`
}

/** From SIGKILL until `/ready` says that every process serves. */
async function recover({ platform }: Subject, name: string): Promise<number> {
  const pid = familyOf(platform.pid).find((one) => commandOf(one).endsWith(`api-process.ts ${name}`))
  if (pid === undefined) throw new Error(`process ${name} is not running`)
  const began = performance.now()
  process.kill(pid, 'SIGKILL')
  for (;;) {
    await pause(20)
    const { checks } = await platform.call<{ checks: Record<string, { status: string }> }>('GET', '/ready')
    const isReplaced = familyOf(platform.pid).some(
      (one) => one !== pid && commandOf(one).endsWith(`api-process.ts ${name}`),
    )
    if (isReplaced && checks[`process ${name}`]?.status === 'ready') return performance.now() - began
    if (performance.now() - began > RECOVERY_DEADLINE_MS) throw new Error(`process ${name} has no replacement`)
  }
}

async function startSubject(count: number, dataDir: string): Promise<Subject> {
  const mqttPort = await freePort()
  const platform = await startPlatform(dataDir, {
    SKEIN_API_PROCESSES: String(count),
    SKEIN_MQTT_PORT: String(mqttPort),
  })
  return { count, platform, mqttPort, world: await prepareDevices(platform, DEVICES) }
}

export async function benchProcesses(): Promise<void> {
  const dataDirs = COUNTS.map(() => newDataDir())
  try {
    await using stack = new AsyncDisposableStack()
    const subjects: Subject[] = []
    for (const [index, count] of COUNTS.entries()) {
      const subject = await startSubject(count, dataDirs[index] as string)
      stack.use(subject.platform)
      subjects.push(subject)
    }
    const spent = subjects.map(() => ({ mqtt: [] as Spent, http: [] as Spent, idle: [] as Spent }))
    for (let round = 0; round < ROUNDS; round++) {
      for (const [index, { platform, mqttPort, world }] of subjects.entries()) {
        const own = spent[index] as (typeof spent)[number]
        own.mqtt.push(await spend(platform, () => publishOverMqtt(mqttPort, world)))
        own.http.push(await spend(platform, () => publishOverHttp(platform, world)))
        await pause(SETTLE_MS)
        // Per second.
        own.idle.push(await spend(platform, () => pause(IDLE_MS).then(() => IDLE_MS / 1000)))
      }
    }
    const rows: Row[] = []
    const floors = new Map<string, number>()
    for (const [index, { count, platform }] of subjects.entries()) {
      const own = spent[index] as (typeof spent)[number]
      const name = `${count} process${count === 1 ? '' : 'es'}`
      for (const [what, rounds, scale, unit] of [
        ['message over MQTT QoS 1', own.mqtt, 1, 'us of CPU'],
        ['message over HTTP', own.http, 1, 'us of CPU'],
        ['without load', own.idle, 1 / 10_000, '% of a core'],
      ] as const) {
        const total = median(rounds.map(totalOf))
        const floor = floors.get(what) ?? total
        floors.set(what, floor)
        const ratio = `${(total / floor).toFixed(2)} of one process`
        const roles = unit === 'us of CPU' ? `: ${rolesOf(rounds, 1)}` : ''
        rows.push({
          name: `${name}: ${what}`,
          figure: `${(total * scale).toFixed(1)} ${unit}`,
          ratio: `${ratio}${roles}`,
        })
      }
      for (const pid of familyOf(platform.pid)) {
        const program = /programs\/((?:all|api-process|worker)\.ts(?: \d)?)/.exec(commandOf(pid))?.[1]
        if (program !== undefined) rows.push({ name: `${name}: memory of ${program}`, figure: memoryOf(pid) })
      }
    }
    const [, several] = subjects
    if (several !== undefined) {
      const recoveries: number[] = []
      for (let kill = 0; kill < KILLS; kill++) recoveries.push(await recover(several, String(1 + (kill % 2))))
      rows.push({
        name: 'kill -9 of a process until all serve',
        figure: `median ${Math.round(median(recoveries))} ms, max ${Math.round(Math.max(...recoveries))} ms`,
      })
    }
    printTable('Processes of the platform', rows)
  } finally {
    for (const dataDir of dataDirs) removeDataDir(dataDir)
  }
}
