/**
 * Listings over HTTP with a million clients in a hundred domains, 600,000 of them in one: for its administrator, for a member
 * with a role on a group twenty levels up, for a member with 20,000 direct grants, for one who administers 20,000 groups, and
 * without a domain for those who reach a hundred. A page is measured with its total known, and by itself the first one, when
 * nothing is remembered.
 * `BENCH_DATA_DIR` names a folder that keeps the data for the next run, `BENCH_ONLY` is an expression that the names of the
 * measured rows match. What the machine itself takes stands in the first rows: statements that do next to nothing, over the
 * same HTTP and pool. A row that misses is measured longer, and its first total five times more, each after a change in the domain.
 * The client is of the same process and reads no more of an answer than where it ends: what a better one left to be collected (half of all that grew old)
 * made the pauses that it measured.
 */
import { setTimeout } from 'node:timers/promises'
import { IDENTITY_SETTINGS, startApi } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#core/infrastructure/index.ts'
import { createHttpApp, createMetrics } from '#core/http/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { load, prepareRequest } from './http-load.ts'
import { DEEP_MS, casesFor } from './listing/cases.ts'
import { CLIENTS, LARGEST, SECRET, call, enter, fill, isFilled } from './listing/world.ts'
import type { Caller, World } from './listing/world.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const REPEATS = 60
/** The worst of 60 is no p99 where the machine pauses now and then. */
const MORE_REPEATS = 240
const MORE_FIRSTS = 5
/** Until every node has dropped what it kept of a domain that changed. */
const FORGOTTEN_AFTER_MS = 700
const FLOOR_REPEATS = 600
const FEW_FLOOR_REPEATS = 7
/** The first keys of a listing, and what pages far from the ends begin from, are sought while nobody waits. */
const REMEMBERED_AFTER_MS = 500
const DEEP_REMEMBERED_AFTER_MS = 1500
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
    const config = readConfig({ ...INFRASTRUCTURE_SETTINGS, ...IDENTITY_SETTINGS }, environment)
    const infrastructure = await startInfrastructure(life, { config, logger, kind: 'bench', maxConnections: 8 })
    const api = await startApi(life, { infrastructure, config })
    const app = createHttpApp({
      logger,
      health: { build: infrastructure.build, metrics: createMetrics(), serviceOf: () => 'bench' },
      maxBodyBytes: 1024 * 1024,
      corsOrigins: [],
      trustProxy: [],
      authenticate: api.authenticate,
    })
    await api.routes(app)
    const { db } = infrastructure.database
    let largestId = ''
    app.get('/floor/statement', async () => (await sql`SELECT 1`.execute(db)).rows)
    app.get('/floor/row', async () => (await sql`SELECT id, name FROM clients WHERE key = 100`.execute(db)).rows)
    app.get('/floor/names', async () => {
      const { rows } =
        await sql`SELECT count(*) FROM clients WHERE domain_key = (SELECT key FROM domains WHERE id = ${largestId})
         AND status = 'enabled' AND name <> ''`.execute(db)
      return rows
    })
    const port = Number(new URL(await app.listen({ port: 0, host: '127.0.0.1' })).port)
    const client = await infrastructure.database.dedicated('bench')
    await client.query('SET statement_timeout = 0')
    if (!(await isFilled(client))) {
      await fill(app, client, infrastructure.keyring)
      await client.query('VACUUM ANALYZE')
      await client.query('CHECKPOINT')
    }
    const world = await enter(app, client)
    largestId = world.domainId
    await client.end()
    const only = new RegExp(process.env['BENCH_ONLY'] ?? '')
    const rows: Row[] = []
    const times: Times = (url, caller, rounds) => timesOf(port, url, caller, rounds)
    await measureFloor(world, times, rows)
    for (const caller of world.callers) await measure(world, times, caller, { only, rows })
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

const figures = (times: readonly number[]) =>
  `p50 ${milliseconds(median(times))}, p99 ${milliseconds(percentile(times, 0.99))}`

/** So many requests, one after the other: how long each took until its answer was there whole. */
type Times = (url: string, caller: Caller | undefined, rounds: number) => Promise<number[]>

async function timesOf(port: number, ...[url, caller, rounds]: Parameters<Times>): Promise<number[]> {
  const request = prepareRequest('GET', url, { Authorization: `Bearer ${caller?.token ?? ''}` })
  const requests = (turn: number) => (turn < rounds ? request : undefined)
  const { latenciesMs } = await load({ port, requests, connections: 1, durationMs: Infinity, status: 200 })
  if (latenciesMs.length < rounds) throw new Error(`${url} was refused`)
  return latenciesMs
}

async function measureFloor(world: World, times: Times, rows: Row[]): Promise<void> {
  for (const [name, url, repeats] of [
    ['the floor: a statement without a table', '/floor/statement', FLOOR_REPEATS],
    ['the floor: a row by its key', '/floor/row', FLOOR_REPEATS],
    ['the floor of a total: every name of the domain is looked at', '/floor/names', FEW_FLOOR_REPEATS],
  ] as const) {
    const taken = await times(url, world.callers[0], repeats)
    rows.push({ name, figure: `${figures(taken)}, worst ${milliseconds(Math.max(...taken))}` })
  }
}

async function measure(
  world: World,
  times: Times,
  caller: Caller,
  { only, rows }: { only: RegExp; rows: Row[] },
): Promise<void> {
  for (const { name, url, targetMs } of casesFor(world, caller)) {
    if (!only.test(`${caller.name}: ${name}`)) continue
    const firsts = await times(url, caller, 1)
    await setTimeout(targetMs === DEEP_MS ? DEEP_REMEMBERED_AFTER_MS : REMEMBERED_AFTER_MS)
    const taken = await times(url, caller, REPEATS)
    if (percentile(taken, 0.99) >= targetMs && median(taken) < targetMs)
      taken.push(...(await times(url, caller, MORE_REPEATS)))
    if (median(firsts) >= TARGET_TOTAL_MS) {
      for (let round = 0; round < MORE_FIRSTS; round++) {
        await changeDomain(world)
        await setTimeout(FORGOTTEN_AFTER_MS)
        firsts.push(...(await times(url, caller, 1)))
      }
    }
    rows.push({
      name: `${caller.name}: ${name}`,
      figure: `${figures(taken)}, with its first total ${milliseconds(median(firsts))}`,
      ...(taken.length === REPEATS && firsts.length === 1
        ? {}
        : { ratio: `(of ${taken.length}; first totals ${firsts.map((ms) => ms.toFixed(0)).join(', ')})` }),
      target: `${milliseconds(targetMs)}, ${milliseconds(TARGET_TOTAL_MS)}`,
      isReached: percentile(taken, 0.99) < targetMs && median(firsts) < TARGET_TOTAL_MS,
    })
  }
}

/** By the administrator of the large domain, who is the first of the callers. */
async function changeDomain({ app, domainId, callers }: World): Promise<void> {
  await call(app, 'PATCH', `/domains/${domainId}`, callers[0]?.token, { metadata: { changed: Date.now() } })
}
