/** Copies all records that are old enough to an archive, and prints what that took: a process of its own, whose memory is nothing else. */
import { readFileSync } from 'node:fs'
import { createDatabase } from '#core/database/index.ts'
import type { DatabaseAddress } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { archiveOnce } from '../api/messages/archive/archiver.ts'

/** What the export of some records took. */
export type Exported = {
  seconds: number
  cpuSeconds: number
  memoryMiB: number
  memoryBeforeMiB: number
  ranges: number
}

const HOUR_MS = 3_600_000

/** From the kernel: the resident memory now, and the largest there was (Linux). */
function residentMiB(name: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync('/proc/self/status', 'utf8')
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0) / 1024
}

if (process.send !== undefined) {
  const [address = '', url = ''] = process.argv.slice(2)
  const logger = createLogger({ name: 'bench', level: 'warn' })
  const database = createDatabase({
    address: JSON.parse(address) as DatabaseAddress,
    maxConnections: 4,
    applicationName: 'bench history',
    logger,
  })
  await database.pool.query('SELECT')
  const memoryBeforeMiB = residentMiB('VmRSS')
  const began = performance.now()
  const before = process.cpuUsage()
  const round = await archiveOnce(
    { database, logger, url, afterMs: HOUR_MS, confirmMs: 0 },
    new AbortController().signal,
  )
  if (round === undefined || round.failures.length > 0) throw new Error(`not copied: ${round?.failures.join(', ')}`)
  const used = process.cpuUsage(before)
  const exported: Exported = {
    seconds: (performance.now() - began) / 1000,
    cpuSeconds: (used.user + used.system) / 1e6,
    memoryMiB: residentMiB('VmHWM'),
    memoryBeforeMiB,
    ranges: round.exported,
  }
  await database.close()
  process.send?.(exported)
  process.disconnect?.()
}
