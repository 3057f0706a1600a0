/**
 * Kills the process that copies records to the archive, at each of its steps and between them: afterwards each record is in the files once, no
 * deleted one is, the verification finds nothing, and no file is left that no snapshot refers to. SKEIN_TEST_KILLS sets the number of kills.
 */
import { spawn } from 'node:child_process'
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { until } from '../harness/until.ts'
import { dataFilesOf, filesBelow, moveArrivals, newArchiveFolder, rowsOfFile } from './archive-support.ts'
import type { ArchiveFolder } from './archive-support.ts'
import { startPlant } from './support.ts'
import type { Plant } from './support.ts'
import type { Round } from '../../api/messages/archive/archiver.ts'
import type { Step } from '../../api/messages/archive/table-commit.ts'

const STEPS: readonly Step[] = [
  'planned',
  'data file begun',
  'data file written',
  'manifest written',
  'manifest list written',
  'metadata written',
  'committed',
  'files deleted',
]
/** After each round over the steps, one kill at a moment that no step has. */
const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? STEPS.length + 1)
const MAX_RANDOM_MS = 3000
const DEADLINE_MS = 120_000
const RECORDS = 12

let plant: Plant
let folder: ArchiveFolder
beforeAll(async () => {
  plant = await startPlant()
  folder = newArchiveFolder()
})
afterAll(async () => {
  await plant[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

type Ended = { signal: NodeJS.Signals | null; printed: string }

/** `killAfterMs`: killed from outside. */
function runArchiver({ step, killAfterMs }: { step?: Step; killAfterMs?: number }): Promise<Ended> {
  const child = spawn(
    process.execPath,
    [
      '--disable-warning=ExperimentalWarning',
      join(import.meta.dirname, 'archive-process.ts'),
      '--address',
      JSON.stringify(plant.api.address),
      '--url',
      folder.url,
      // Several pieces for the records of one channel.
      '--limits',
      JSON.stringify({ records: 5, storedBytes: 1000 }),
      ...(step === undefined ? [] : ['--step', step]),
    ],
    { stdio: ['ignore', 'pipe', 'inherit'], env: { PATH: process.env['PATH'], ...COMPILE_CACHE } },
  )
  let printed = ''
  child.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()))
  const killer = killAfterMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killAfterMs)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (_code, signal) => {
      clearTimeout(killer)
      resolve({ signal, printed })
    })
  })
}

async function untilArchived(): Promise<void> {
  await until(
    async () => {
      const { signal, printed } = await runArchiver({})
      expect(signal).toBeNull()
      const round = JSON.parse(printed) as Round | null
      if (round === null) return false
      expect(round).toMatchObject({ failed: 0, failures: [] })
      return round.exported === 0
    },
    'everything is copied',
    DEADLINE_MS,
  )
}

async function verify(): Promise<string[]> {
  const faults: string[] = []
  for (let after = ''; ;) {
    const path = `/${plant.domainId}/history/verify${after === '' ? '' : `?after=${after}`}`
    const response = await plant.owner.call('POST', path)
    expect(response.status, response.text).toBe(200)
    const check = response.json<{ faults: string[]; next?: string }>()
    faults.push(...check.faults)
    if (check.next === undefined) return faults
    after = check.next
  }
}

const pathOf = (row: { path: string }) => row.path.slice('file://'.length)

test(
  'each record is in the archive once, also when the process is killed at any step',
  { timeout: 60_000 + KILLS * 90_000 },
  async () => {
    const device = await plant.newConnectedDevice()
    const expected = new Set<string>()
    const publish = async (kill: number) => {
      const pack = Array.from({ length: RECORDS }, (_, index) => ({
        n: `kill${kill}:${index}`,
        v: index,
        t: 1_600_000_000 + kill * 10_000 + index * 600,
      }))
      const path = `/m/${plant.domainId}/c/${device.channelId}`
      const sent = await plant.api.as(`Client ${device.secret}`)('POST', path, pack, {
        'content-type': 'application/senml+json',
      })
      expect(sent.status, sent.text).toBe(202)
      for (const { n } of pack) expected.add(n)
    }
    const reached: string[] = []
    for (let kill = 0; kill < KILLS; kill++) {
      const step = STEPS[kill % (STEPS.length + 1)]
      await publish(kill)
      await moveArrivals(plant.api, 3 + 2 * kill)
      // The ranges of the kills before it change too: their files are replaced.
      const from = 1_600_000_000 + (kill - 1) * 10_000
      const path = `/${plant.domainId}/channels/${device.channelId}/messages?from=${from}&to=${from + 1}`
      const deleted = await plant.owner.call('DELETE', path)
      expect(deleted.status, deleted.text).toBeLessThan(300)
      expected.delete(`kill${kill - 1}:0`)
      const ended = await runArchiver(step === undefined ? { killAfterMs: Math.random() * MAX_RANDOM_MS } : { step })
      reached.push(`${step}: ${ended.signal}`)
      if (step !== undefined) expect(ended.signal, step).toBe('SIGKILL')
      await untilArchived()
      const files = await dataFilesOf(plant.api)
      const names = (await Promise.all(files.map(({ path: file }) => rowsOfFile(file))))
        .flat()
        .map((row) => String(row['name']))
      expect(names.toSorted(), `after ${step ?? 'a kill at any moment'}`).toEqual([...expected].toSorted())
      expect(await verify(), step).toEqual([])
      const { rows } = await plant.api.database.pool.query<{ path: string; bytes: number; state: string }>(
        'SELECT path, bytes, state FROM archive_files',
      )
      expect(filesBelow(folder.path), step).toEqual(rows.map(pathOf).toSorted())
      for (const row of rows) expect([row.state, statSync(pathOf(row)).size]).toEqual(['live', row.bytes])
    }
    expect(reached.length).toBe(KILLS)
  },
)
