/**
 * The reader on a channel with ten million records: pages, totals and aggregates, at rest and during writes. The records
 * are published over HTTP by gateways that send a hundred at a time, ten seconds apart. A second channel has a million
 * records, each in a quarter of an hour and a series of its own. The installation is a year old and has three retention
 * classes.
 *
 * `BENCH_DATA_DIR` names a folder that keeps the data for the next run. `BENCH_ONLY` is an expression that the names of
 * the measured rows must match. A read is repeated before it counts: the first one of its kind is planned, and its code
 * in the platform is cold.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readConfig } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { createLifecycle } from '#core/program/index.ts'
import { load, prepareRequest } from './http-load.ts'
import { logIn, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Device, Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

/** `BENCH_RECORDS` fills fewer records, for a quick check. */
export const RECORDS = Number(process.env['BENCH_RECORDS'] ?? 10_000_000)
const DEVICES = 100
const NAMES = 10
/** Seconds from one reading to the next. */
const STEP_SECONDS = 10
/** Readings of all names in one message. */
const STEPS = 10
const RECORDS_PER_MESSAGE = NAMES * STEPS
/** Records of the second channel: of each series one in a quarter of an hour. */
const QUARTERS = 1_000
const QUARTER_SECONDS = 900
const RECORDS_OF_QUARTERS = DEVICES * NAMES * QUARTERS
/** Weeks with stored messages in each of these retention classes. Maintenance drops the expired ones. */
const WEEKS = 52
const CLASSES = [0, 30, 90]
const FILL_CONNECTIONS = 32
const FILL_DEADLINE_MS = 600_000
/**
 * In production ten million records do not arrive within half a minute: PostgreSQL collects statistics of new tables and
 * summarizes their indexes once a minute.
 */
const SETTLE_MS = 75_000
const WARM_UP_MS = 1000
const READ_MS = 2000
/** Describes the data of a kept folder. */
const FILLED_FILE = 'bench-reader.json'
const FILLED_QUARTERS_FILE = 'bench-reader-quarters.json'
/** Records written per second during the reads. */
const WRITE_RATE = 20_000
/** The targets, at rest and during writes. `page` is the target of pages without one of their own. */
const TARGETS = {
  newest: { p99: 20 },
  page: { p99: 50 },
  offset: { p50: 1_000 },
  means: { p50: 500 },
  /** Up to a million quarters of an hour. */
  total: { p50: 100 },
  /** The deadlines of a page and of its total together. A total that exceeds its deadline is a lower bound. */
  answered: { p99: 7_000 },
} as const satisfies Record<string, Target>
type Target = { p50: number } | { p99: number }

type Place = {
  domainId: string
  channelId: string
  devices: readonly Device[]
  startSeconds: number
  stepSeconds: number
  /** The subtopic of all messages; undefined: each device uses one of ten. */
  subtopic?: string
}

type Filled = Place & { endSeconds: number; perSecond: number }

function message({ domainId, channelId, devices, startSeconds, stepSeconds, subtopic }: Place, turn: number): Buffer {
  const device = devices[turn % devices.length] as Device
  const first = startSeconds + Math.floor(turn / devices.length) * STEPS * stepSeconds
  const records = Array.from({ length: RECORDS_PER_MESSAGE }, (_, place) => ({
    n: `m${place % NAMES}`,
    v: ((turn * 7 + place * 13) % 10_000) / 100,
    t: Math.floor(place / NAMES) * stepSeconds,
  }))
  return prepareRequest(
    'POST',
    `/m/${domainId}/c/${channelId}/${subtopic ?? `room/${turn % 10}`}`,
    { Authorization: `Client ${device.secret}`, 'Content-Type': 'application/senml+json' },
    JSON.stringify([{ bt: first, ...records[0] }, ...records.slice(1)]),
  )
}

/** Stores messages in each week of the last year, so that the tables have the partitions of an installation of that age. */
async function growOld(dataDir: string): Promise<void> {
  const logger = createLogger({ name: 'bench', level: 'warn' })
  const life = createLifecycle(logger)
  try {
    const config = readConfig(INFRASTRUCTURE_SETTINGS, { SKEIN_DATA_DIR: dataDir })
    const { database } = await startInfrastructure(life, { config, logger, kind: 'bench', maxConnections: 2 })
    await database.pool.query('SELECT create_message_partitions(now() - make_interval(weeks => $1), now())', [WEEKS])
    await database.pool.query(
      `INSERT INTO records (channel_key, min_time, max_time, arrived_at, batch_seq, message, chunk, retention_days, protocol, series_keys, times)
       SELECT 0, at, at, at, 0, 0, 0, class, 1, '{0}', ARRAY[at]
         FROM unnest($1::smallint[]) AS class, generate_series(1, $2) AS week, LATERAL (SELECT now() - make_interval(weeks => week) AS at) a`,
      [CLASSES, WEEKS],
    )
  } finally {
    await life.stop()
  }
}

/** Fills the channel, unless the folder is filled already. */
export function fill(platform: Platform): Promise<Filled & { token: string }> {
  return filledOnce(platform, FILLED_FILE, async (place) => {
    const endSeconds = Math.floor(Date.now() / 1000)
    const startSeconds = endSeconds - (RECORDS / (DEVICES * NAMES)) * STEP_SECONDS
    const filled = { ...place, startSeconds, stepSeconds: STEP_SECONDS, endSeconds }
    const perSecond = await publish(platform, filled, RECORDS)
    await new Promise((resolve) => void setTimeout(resolve, SETTLE_MS))
    return { ...filled, perSecond }
  })
}

/** Fills the second channel, unless the folder is filled already. */
function fillQuarters(platform: Platform): Promise<Place & { token: string }> {
  return filledOnce(platform, FILLED_QUARTERS_FILE, async (place) => {
    const startSeconds = Math.floor(Date.now() / 1000 / QUARTER_SECONDS - QUARTERS) * QUARTER_SECONDS
    const filled = { ...place, startSeconds, stepSeconds: QUARTER_SECONDS, subtopic: 'room' }
    await publish(platform, filled, RECORDS_OF_QUARTERS)
    return filled
  })
}

type Devices = Pick<Place, 'domainId' | 'channelId' | 'devices'>

async function filledOnce<Made extends Place>(
  platform: Platform,
  name: string,
  make: (devices: Devices) => Promise<Made>,
): Promise<Made & { token: string }> {
  const file = join(platform.dataDir, name)
  if (existsSync(file)) {
    const { owner, made } = JSON.parse(readFileSync(file, 'utf8')) as { owner: string; made: Made }
    return { ...made, token: await logIn(platform, owner) }
  }
  const { owner, token, ...devices } = await prepareDevices(platform, DEVICES)
  const made = await make(devices)
  writeFileSync(file, JSON.stringify({ owner, made }))
  return { ...made, token }
}

/** Returns the number of records stored per second. */
async function publish(platform: Platform, place: Place, records: number): Promise<number> {
  const messages = records / RECORDS_PER_MESSAGE
  const { answered, perSecond } = await load({
    port: platform.port,
    requests: (turn) => (turn < messages ? message(place, turn) : undefined),
    connections: FILL_CONNECTIONS,
    durationMs: FILL_DEADLINE_MS,
    status: 202,
  })
  if (answered !== messages) throw new Error(`${answered} of ${messages} messages were stored`)
  return perSecond * RECORDS_PER_MESSAGE
}

type Read = { name: string; query: string; target: Target; ofQuarters?: boolean }

function readsOf({ startSeconds, endSeconds, devices }: Filled, quarters: Place): Read[] {
  const { newest, page, offset, means, total, answered } = TARGETS
  const range = `from=${startSeconds + 10_123.4}&to=${endSeconds - 3210.9}`
  const publisher = devices[42]?.id
  const all = `from=${startSeconds}&to=${endSeconds + 1}`
  const names = `limit=10&subtopic=room&from=${quarters.startSeconds}`
  return [
    { name: 'newest page of 10', query: 'limit=10', target: newest },
    { name: 'one name', query: 'limit=100&name=m3', target: page },
    { name: 'one publisher', query: `limit=100&publisher=${publisher}`, target: page },
    { name: 'one subtopic', query: 'limit=100&subtopic=room.7', target: page },
    { name: 'one name of one publisher', query: `limit=100&name=m3&publisher=${publisher}`, target: page },
    { name: 'a range of times', query: `limit=100&${range}`, target: page },
    { name: 'one name in a range', query: `limit=100&name=m3&${range}`, target: page },
    { name: 'offset in the middle', query: `limit=100&offset=${RECORDS / 2}`, target: offset },
    { name: 'offset in one name', query: `limit=100&name=m3&offset=${RECORDS / 20}`, target: offset },
    { name: 'hourly average of all', query: `limit=100&aggregation=avg&interval=1h&${all}`, target: means },
    { name: 'one value, with its total', query: 'limit=10&v=50', target: answered },
    { name: 'above a value, with its total', query: 'limit=10&v=50&comparator=gt', target: answered },
    { name: 'total of 100,000 quarters', query: 'limit=10&name=m3', target: total, ofQuarters: true },
    { name: 'total of 1,000,000 quarters', query: 'limit=10&subtopic=room', target: total, ofQuarters: true },
    { name: 'total of 1,000,000 quarters, from a time', query: names, target: total, ofQuarters: true },
  ]
}

export async function benchReader(): Promise<void> {
  const kept = process.env['BENCH_DATA_DIR']
  const dataDir = kept ?? newDataDir()
  try {
    if (!existsSync(join(dataDir, FILLED_FILE))) await growOld(dataDir)
    await using platform = await startPlatform(dataDir)
    const quarters = await fillQuarters(platform)
    const filled = await fill(platform)
    const { endSeconds, token } = filled

    const read = ({ query, ofQuarters = false }: Read) => {
      const { domainId, channelId, token: authorization } = ofQuarters ? quarters : filled
      return readPath(`/${domainId}/channels/${channelId}/messages?${query}`, authorization)
    }
    const readPath = async (of: string, authorization: string) => {
      const readFor = async (durationMs: number) =>
        await load({
          port: platform.port,
          requests: [prepareRequest('GET', of, { Authorization: authorization })],
          connections: 1,
          durationMs,
          status: 200,
        })
      await readFor(WARM_UP_MS)
      const { latenciesMs, refused } = await readFor(READ_MS)
      if (refused > 0) throw new Error(`${refused} reads failed: ${of}`)
      return latenciesMs
    }
    // The time of a request that reads nothing: it includes the pauses of the host, as every figure below does.
    const floorOf = async (name: string): Promise<Row> => {
      const [p50, p99] = spread(await readPath('/health', token))
      return { name, figure: `p50 ${milliseconds(p50)}, p99 ${milliseconds(p99)}` }
    }
    const rows: Row[] = [await floorOf('a request that reads nothing (GET /health)')]
    const only = new RegExp(process.env['BENCH_ONLY'] ?? '', 'i')
    const reads = readsOf(filled, quarters).filter(({ name }) => only.test(name))
    for (const one of reads) rows.push(rowOf(one.name, await read(one), one.target))
    // Writers: a fixed number of messages per second, each connection in sequence with a pause.
    const writing = load({
      port: platform.port,
      requests: (turn) => message({ ...filled, startSeconds: endSeconds }, turn),
      connections: 1,
      durationMs: (reads.length + 1) * (WARM_UP_MS + READ_MS + 500),
      perSecond: WRITE_RATE / RECORDS_PER_MESSAGE,
      status: 202,
    })
    rows.push(await floorOf('  while others write: a request that reads nothing'))
    for (const one of reads)
      rows.push(
        rowOf(
          `  while ${WRITE_RATE.toLocaleString('en')} records/s are written: ${one.name}`,
          await read(one),
          one.target,
        ),
      )
    await writing
    printTable(
      `Reader, one connection, ${RECORDS.toLocaleString('en')} records of ${DEVICES * NAMES} series in the channel (filled at ${Math.round(filled.perSecond).toLocaleString('en')} records/s)`,
      rows,
    )
  } finally {
    if (kept === undefined) removeDataDir(dataDir)
  }
}

function rowOf(name: string, latenciesMs: readonly number[], target: Target): Row {
  const [p50, p99] = spread(latenciesMs)
  const figure = `p50 ${milliseconds(p50)}, p99 ${milliseconds(p99)} of ${latenciesMs.length.toLocaleString('en')} reads`
  return 'p50' in target
    ? { name, figure, target: `p50 ${milliseconds(target.p50)}`, isReached: p50 < target.p50 }
    : { name, figure, target: `p99 ${milliseconds(target.p99)}`, isReached: p99 < target.p99 }
}

function spread(latenciesMs: readonly number[]): [p50: number, p99: number] {
  return [median(latenciesMs), percentile(latenciesMs, 0.99)]
}
