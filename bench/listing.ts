/**
 * Listings over HTTP in a domain of a million clients: for its administrator, a member of 20,000 groups, a user with 20,000 grants,
 * and, without a domain in the path, a member of a hundred domains. Rows name the longest p99 that they may take (decision 0067).
 * `BENCH_DATA_DIR` names a folder that keeps the data for the next run. `BENCH_ONLY` is a regular expression; rows whose names it
 * matches are measured. The first rows are a floor: statements that do next to nothing, over the same HTTP and pool.
 * The client is in the same process and reads only enough of a response to find its end: the garbage of a full reader
 * made the pauses that it measured.
 */
import { setTimeout } from 'node:timers/promises'
import { IDENTITY_SETTINGS, startApi } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import { createHttpApp, createMetrics } from '#http/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { load, prepareRequest } from './http-load.ts'
import { casesFor } from './listing/cases.ts'
import { LARGEST, SECRET, call, enter, fill, isFilled } from './listing/world.ts'
import type { Caller, World } from './listing/world.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

/** Requests of a row, as far as they fit into the time of a row. */
const MAX_REQUESTS = 100
const ROW_MS = 8000
const ROUNDS_AFTER_CHANGE = 20
/** How long it takes until the process has read of a change. */
const CHANGE_KNOWN_MS = 300
const FLOOR_REQUESTS = 600

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
      health: {
        build: infrastructure.build,
        metrics: createMetrics(),
        readiness: infrastructure.readiness,
        serviceOf: () => 'bench',
      },
      maxBodyBytes: 1024 * 1024,
      corsOrigins: [],
      trustProxy: [],
      keyring: infrastructure.keyring,
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
    const times: Times = (url, caller, requests) => timesOf(port, url, caller, requests)
    await measureFloor(world, times, rows)
    for (const caller of world.callers) await measure(world, times, caller, { only, rows })
    printTable(`Listings in a domain of ${LARGEST.toLocaleString('en')} clients`, rows)
    await app.close()
  } finally {
    await life.stop()
    if (kept === undefined) removeDataDir(dataDir)
  }
}

const figures = (times: readonly number[]) =>
  `p50 ${milliseconds(median(times))}, p99 ${milliseconds(percentile(times, 0.99))} of ${times.length}`

/** So many requests at most, one after the other: how long each took until its answer was complete. */
type Times = (url: string, caller: Caller | undefined, requests: number) => Promise<number[]>

async function timesOf(port: number, ...[url, caller, most]: Parameters<Times>): Promise<number[]> {
  const request = prepareRequest('GET', url, { Authorization: `Bearer ${caller?.token ?? ''}` })
  const requests = (turn: number) => (turn < most ? request : undefined)
  const { latenciesMs, refused } = await load({ port, requests, connections: 1, durationMs: ROW_MS, status: 200 })
  if (refused > 0 || latenciesMs.length === 0) throw new Error(`${url} was refused`)
  return latenciesMs
}

async function measureFloor(world: World, times: Times, rows: Row[]): Promise<void> {
  for (const [name, url] of [
    ['the floor: a statement without a table', '/floor/statement'],
    ['the floor: a row by its key', '/floor/row'],
    ['the floor of a total: every name of the domain is looked at', '/floor/names'],
  ] as const)
    rows.push({ name, figure: figures(await times(url, world.callers[0], FLOOR_REQUESTS)) })
}

async function measure(
  world: World,
  times: Times,
  caller: Caller,
  { only, rows }: { only: RegExp; rows: Row[] },
): Promise<void> {
  for (const { name, url, targetMs, isAfterChange } of casesFor(world, caller)) {
    if (!only.test(`${caller.name}: ${name}`)) continue
    // The first of a connection is planned and reads what is not in memory yet.
    await times(url, caller, 1)
    const taken = isAfterChange
      ? await timesAfterChanges(world, times, url, caller)
      : await times(url, caller, MAX_REQUESTS)
    rows.push({
      name: `${caller.name}: ${name}`,
      figure: figures(taken),
      target: milliseconds(targetMs),
      isReached: percentile(taken, 0.99) < targetMs,
    })
  }
}

/** Each request after a change in the domain, which invalidates the cached counts of the domain. */
async function timesAfterChanges(world: World, times: Times, url: string, caller: Caller): Promise<number[]> {
  const taken: number[] = []
  for (let round = 0; round < ROUNDS_AFTER_CHANGE; round++) {
    await changeClient(world)
    await setTimeout(CHANGE_KNOWN_MS)
    taken.push(...(await times(url, caller, 1)))
  }
  return taken
}

/** By the administrator of the large domain, who is the first of the callers. */
async function changeClient({ app, domainId, clientId, callers }: World): Promise<void> {
  await call(app, 'PATCH', `/${domainId}/clients/${clientId}`, callers[0]?.token, { metadata: { changed: Date.now() } })
}
