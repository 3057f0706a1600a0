/**
 * A long run at 70 % of the measured rate: memory, files, partitions and latencies per minute, and at the end a check
 * that every acknowledged record is stored. `BENCH_SOAK_MINUTES` sets the duration (30); it runs only by name.
 */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { load, prepareRequest } from './http-load.ts'
import { memoryMiB, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable } from './statistics.ts'

const RECORDS = 10
const DEVICES = 100
const CONNECTIONS = 128
const SHARE = 0.7
const WARM_UP_MS = 5000
const MINUTE_MS = 60_000
/** The age of one message in twenty: a device that was offline for a while. */
const LATE_SECONDS = 7200
const LATE_EACH = 20
/** Memory of the last third may exceed that of the first by this factor: caches fill, and then stay constant. */
const MAX_GROWTH = 1.1

type Minute = { p50: number; p99: number; mib: number; files: number; gib: number; acknowledged: number }

export async function benchSoak(): Promise<void> {
  const minutes = Number(process.env['BENCH_SOAK_MINUTES'] ?? 30)
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const { domainId, channelId, devices, token } = await prepareDevices(platform, DEVICES)
    const heads = devices.map(({ secret }) => ({
      Authorization: `Client ${secret}`,
      'Content-Type': 'application/senml+json',
    }))
    const requestOf = (turn: number) => {
      const time = Date.now() / 1000 - (turn % LATE_EACH === 0 ? LATE_SECONDS : 0)
      const records = Array.from({ length: RECORDS }, (_, place) => ({ n: `m${place}`, u: 'V', v: turn + place / 10 }))
      const body = JSON.stringify([{ bn: 'device:', bt: time, ...records[0] }, ...records.slice(1)])
      return prepareRequest(
        'POST',
        `/m/${domainId}/c/${channelId}`,
        heads[turn % DEVICES] as Record<string, string>,
        body,
      )
    }
    const common = { port: platform.port, requests: requestOf, connections: CONNECTIONS, status: 202 }
    const warm = await load({ ...common, durationMs: WARM_UP_MS })
    const full = await load({ ...common, durationMs: WARM_UP_MS })
    let acknowledged = warm.answered + full.answered
    const seen: Minute[] = []
    let refused = 0
    for (let minute = 1; minute <= minutes; minute++) {
      const result = await load({
        ...common,
        durationMs: MINUTE_MS,
        perSecond: (full.perSecond * SHARE) / CONNECTIONS,
      })
      acknowledged += result.answered
      refused += result.refused
      const { files, bytes } = filesBelow(dataDir)
      const now = {
        p50: median(result.latenciesMs),
        p99: percentile(result.latenciesMs, 0.99),
        mib: memoryMiB(platform.pid),
        files,
        gib: bytes / 2 ** 30,
        acknowledged: result.answered,
      }
      seen.push(now)
      process.stdout.write(
        `  minute ${minute}: ${perSecond(result.perSecond * RECORDS, 'records')}, p50 ${milliseconds(now.p50)}, p99 ${milliseconds(now.p99)}, ` +
          `${Math.round(now.mib)} MiB, ${files} files, ${now.gib.toFixed(2)} GiB\n`,
      )
    }
    const stored = await storedIn(platform, `/m/${domainId}/c/${channelId}`, token)
    const third = Math.max(1, Math.floor(minutes / 3))
    const memoryOf = (some: readonly Minute[]) => median(some.map(({ mib }) => mib))
    const [early, late] = [memoryOf(seen.slice(0, third)), memoryOf(seen.slice(-third))]
    const files = (some: readonly Minute[]) => Math.max(...some.map((one) => one.files))
    printTable(`${minutes} minutes at ${SHARE * 100} % of ${perSecond(full.perSecond * RECORDS, 'records')}`, [
      {
        name: 'acknowledged and stored',
        figure: `${(acknowledged * RECORDS).toLocaleString('en')} and ${stored.toLocaleString('en')} records`,
        target: 'equal',
        isReached: acknowledged * RECORDS === stored,
      },
      { name: 'refused', figure: String(refused), target: '0', isReached: refused === 0 },
      {
        name: 'memory of all processes, first and last third',
        figure: `${Math.round(early)} and ${Math.round(late)} MiB`,
        target: `at most ${MAX_GROWTH} times`,
        isReached: late <= early * MAX_GROWTH,
      },
      {
        name: 'files, first and last third',
        figure: `${files(seen.slice(0, third))} and ${files(seen.slice(-third))}`,
      },
      {
        name: 'p99, first and last third',
        figure: `${milliseconds(median(seen.slice(0, third).map(({ p99 }) => p99)))} and ${milliseconds(median(seen.slice(-third).map(({ p99 }) => p99)))}`,
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}

async function storedIn(platform: Platform, path: string, token: string): Promise<number> {
  const { total } = await platform.call<{ total: number }>('GET', `${path}?limit=1`, undefined, token)
  return total
}

function filesBelow(folder: string): { files: number; bytes: number } {
  let [files, bytes] = [0, 0]
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    try {
      bytes += statSync(join(entry.parentPath, entry.name)).size
      files++
    } catch {
      // It was removed between the listing and the look.
    }
  }
  return { files, bytes }
}
