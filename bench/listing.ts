/**
 * Listings over HTTP with a million clients in a hundred domains, 600,000 of them in one: for its administrator, for a member
 * with a role on a group twenty levels up, for a member with 20,000 direct grants, for one who administers 20,000 groups, and
 * without a domain for those who reach a hundred. A page is measured with its total known, and by itself the first one, when
 * nothing is remembered.
 * `BENCH_DATA_DIR` names a folder that keeps the data for the next run.
 */
import { setTimeout } from 'node:timers/promises'
import { IDENTITY_SETTINGS, startApi } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import { GROUND_SETTINGS, startGround } from '#core/ground/index.ts'
import { createHttpApp, createMetrics } from '#core/http/index.ts'
import { createLifecycle } from '#core/lifecycle.ts'
import { createLogger } from '#core/logging/index.ts'
import { DEEP_MS, casesFor } from './listing/cases.ts'
import { CLIENTS, LARGEST, SECRET, call, enter, fill, isFilled } from './listing/world.ts'
import type { Caller, World } from './listing/world.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const REPEATS = 60
/** What pages far from the ends begin from is sought while nobody waits. */
const REMEMBERED_AFTER_MS = 1500
const TARGET_TOTAL_MS = 300

export async function benchListing(): Promise<void> {
  const kept = process.env['BENCH_DATA_DIR']
  const dataDir = kept ?? newDataDir()
  const logger = createLogger({ name: 'bench', level: 'error' })
  const life = createLifecycle(logger)
  try {
    const environment = {
      SKEIN_DATA_DIR: dataDir,
      SKEIN_ADMIN_SECRET: SECRET,
      SKEIN_USERS_UNIQUE_NAMES: 'false',
    }
    const config = readConfig({ ...GROUND_SETTINGS, ...IDENTITY_SETTINGS }, environment)
    const ground = await startGround(life, { config, logger, kind: 'bench', maxConnections: 8 })
    const api = await startApi(life, { ground, config })
    const app = createHttpApp({
      logger,
      health: { build: ground.build, metrics: createMetrics(), serviceOf: () => 'bench' },
      maxBodyBytes: 1024 * 1024,
      corsOrigins: [],
      trustProxy: [],
      authenticate: api.authenticate,
    })
    await api.routes(app)
    await app.ready()
    const client = await ground.database.dedicated('bench')
    await client.query('SET statement_timeout = 0')
    if (!(await isFilled(client))) {
      await fill(app, client, ground.keyring)
      await client.query('VACUUM ANALYZE')
      await client.query('CHECKPOINT')
    }
    const world = await enter(app, client)
    await client.end()
    const rows: Row[] = []
    for (const caller of world.callers) await measure(world, caller, rows)
    printTable(
      `Listings among ${CLIENTS.toLocaleString('en')} clients, ${LARGEST.toLocaleString('en')} in the domain`,
      rows,
    )
    await app.close()
  } finally {
    await life.stop()
    if (kept === undefined) removeDataDir(dataDir)
  }
}

async function measure(world: World, caller: Caller, rows: Row[]): Promise<void> {
  for (const { name, url, targetMs } of casesFor(world, caller)) {
    const timed = async () => {
      const began = performance.now()
      await call(world.app, 'GET', url, caller.token)
      return performance.now() - began
    }
    const firstMs = await timed()
    if (targetMs === DEEP_MS) await setTimeout(REMEMBERED_AFTER_MS)
    const times: number[] = []
    for (let round = 0; round < REPEATS; round++) times.push(await timed())
    const p99 = percentile(times, 0.99)
    rows.push({
      name: `${caller.name}: ${name}`,
      figure: `p50 ${milliseconds(median(times))}, p99 ${milliseconds(p99)}, with its first total ${milliseconds(firstMs)}`,
      target: `${milliseconds(targetMs)}, ${milliseconds(TARGET_TOTAL_MS)}`,
      isReached: p99 < targetMs && firstMs < TARGET_TOTAL_MS,
    })
  }
}
