/**
 * The reader on a channel that holds ten million records: pages, totals and aggregates, at rest and while others write. The
 * records are published over HTTP, by gateways that send a hundred at a time, ten seconds apart each.
 * `BENCH_DATA_DIR` names a folder that keeps the data for the next run, `BENCH_ONLY` is an expression that the names of the measured
 * rows match. A read is repeated before it counts: the first of its kind is planned, and the platform's code for it is cold.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { load, prepareRequest } from './http-load.ts'
import { logIn, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Device, Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

/** `BENCH_RECORDS` fills less, for a quick look. */
const RECORDS = Number(process.env['BENCH_RECORDS'] ?? 10_000_000)
const DEVICES = 100
const NAMES = 10
/** Seconds from one reading to the next. */
const STEP_SECONDS = 10
/** Readings of all names in one message. */
const STEPS = 10
const RECORDS_PER_MESSAGE = NAMES * STEPS
const FILL_CONNECTIONS = 32
const FILL_DEADLINE_MS = 600_000
/**
 * Ten million records do not come within half a minute elsewhere: PostgreSQL gathers its statistics of new tables and
 * summarises their indexes once a minute.
 */
const SETTLE_MS = 75_000
const WARM_UP_MS = 1000
const READ_MS = 2000
/** Of what a kept folder was filled with. */
const FILLED_FILE = 'bench-reader.json'
/** Records that are written per second while others read. */
const WRITE_RATE = 20_000
const NEWEST_MS = 5
const PAGE_MS = 50
const AGGREGATE_MS = 250
/** Reads may take so much longer while others write. */
const WRITING_FACTOR = 2

type Filled = {
  domainId: string
  channelId: string
  devices: readonly Device[]
  startSeconds: number
  endSeconds: number
  perSecond: number
}

function message({ domainId, channelId, devices, startSeconds }: Filled, turn: number): Buffer {
  const device = devices[turn % devices.length] as Device
  const first = startSeconds + Math.floor(turn / devices.length) * STEPS * STEP_SECONDS
  const records = Array.from({ length: RECORDS_PER_MESSAGE }, (_, place) => ({
    n: `m${place % NAMES}`,
    v: ((turn * 7 + place * 13) % 10_000) / 100,
    t: Math.floor(place / NAMES) * STEP_SECONDS,
  }))
  return prepareRequest(
    'POST',
    `/m/${domainId}/c/${channelId}/room/${turn % 10}`,
    { Authorization: `Client ${device.secret}`, 'Content-Type': 'application/senml+json' },
    JSON.stringify([{ bt: first, ...records[0] }, ...records.slice(1)]),
  )
}

/** Fills the channel, unless the folder is one that was filled before. */
async function fill(platform: Platform): Promise<Filled & { token: string }> {
  const file = join(platform.dataDir, FILLED_FILE)
  if (existsSync(file)) {
    const { owner, ...filled } = JSON.parse(readFileSync(file, 'utf8')) as Filled & { owner: string }
    return { ...filled, token: await logIn(platform, owner) }
  }
  const { owner, token, ...place } = await prepareDevices(platform, DEVICES)
  const endSeconds = Math.floor(Date.now() / 1000)
  const startSeconds = endSeconds - (RECORDS / (DEVICES * NAMES)) * STEP_SECONDS
  const filled = { ...place, startSeconds, endSeconds, perSecond: 0 }
  const messages = RECORDS / RECORDS_PER_MESSAGE
  const { answered, perSecond } = await load({
    port: platform.port,
    requests: (turn) => (turn < messages ? message(filled, turn) : undefined),
    connections: FILL_CONNECTIONS,
    durationMs: FILL_DEADLINE_MS,
    status: 202,
  })
  if (answered !== messages) throw new Error(`${answered} of ${messages} messages were stored`)
  await new Promise((resolve) => void setTimeout(resolve, SETTLE_MS))
  filled.perSecond = perSecond * RECORDS_PER_MESSAGE
  writeFileSync(file, JSON.stringify({ ...filled, owner }))
  return { ...filled, token }
}

const QUERIES = ({ startSeconds, endSeconds, devices }: Filled) => {
  const range = `from=${startSeconds + 10_123.4}&to=${endSeconds - 3210.9}`
  const publisher = devices[42]?.id
  const all = `from=${startSeconds}&to=${endSeconds + 1}`
  return [
    ['newest page of 10', 'limit=10', NEWEST_MS],
    ['one name', 'limit=100&name=m3', PAGE_MS],
    ['one publisher', `limit=100&publisher=${publisher}`, PAGE_MS],
    ['one subtopic', 'limit=100&subtopic=room.7', PAGE_MS],
    ['one name of one publisher', `limit=100&name=m3&publisher=${publisher}`, PAGE_MS],
    ['a range of times', `limit=100&${range}`, PAGE_MS],
    ['one name in a range', `limit=100&name=m3&${range}`, PAGE_MS],
    ['offset in the middle', `limit=100&offset=${RECORDS / 2}`, PAGE_MS],
    ['offset in one name', `limit=100&name=m3&offset=${RECORDS / 20}`, PAGE_MS],
    ['hourly average of all', `limit=100&aggregation=avg&interval=1h&${all}`, AGGREGATE_MS],
  ] as const
}

export async function benchReader(): Promise<void> {
  const kept = process.env['BENCH_DATA_DIR']
  const dataDir = kept ?? newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const { token, ...filled } = await fill(platform)
    const { domainId, channelId, endSeconds } = filled

    const read = (query: string) => readPath(`/${domainId}/channels/${channelId}/messages?${query}`)
    const readPath = async (of: string) => {
      const readFor = async (durationMs: number) =>
        await load({
          port: platform.port,
          requests: [prepareRequest('GET', of, { Authorization: token })],
          connections: 1,
          durationMs,
          status: 200,
        })
      await readFor(WARM_UP_MS)
      const { latenciesMs, refused } = await readFor(READ_MS)
      if (refused > 0) throw new Error(`${refused} reads were refused: ${of}`)
      return latenciesMs
    }
    // What a request takes that reads nothing: the pauses of the host are in it, and in every figure below.
    const floorOf = async (name: string): Promise<Row> => {
      const [p50, p99] = spread(await readPath('/health'))
      return { name, figure: `p50 ${milliseconds(p50)}, p99 ${milliseconds(p99)}` }
    }
    const rows: Row[] = [await floorOf('a request that reads nothing (GET /health)')]
    const only = new RegExp(process.env['BENCH_ONLY'] ?? '', 'i')
    const queries = QUERIES(filled).filter(([name]) => only.test(name))
    for (const [name, query, target] of queries) rows.push(rowOf(name, await read(query), target))
    // Others write: so many messages a second, each connection one after the other with a pause.
    const writing = load({
      port: platform.port,
      requests: (turn) => message({ ...filled, startSeconds: endSeconds }, turn),
      connections: 1,
      durationMs: (queries.length + 1) * (WARM_UP_MS + READ_MS + 500),
      perSecond: WRITE_RATE / RECORDS_PER_MESSAGE,
      status: 202,
    })
    rows.push(await floorOf('  while others write: a request that reads nothing'))
    for (const [name, query, target] of queries)
      rows.push(
        rowOf(
          `  while ${WRITE_RATE.toLocaleString('en')} records/s are written: ${name}`,
          await read(query),
          target * WRITING_FACTOR,
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

function rowOf(name: string, latenciesMs: readonly number[], targetMs: number): Row {
  const [p50, p99] = spread(latenciesMs)
  return {
    name,
    figure: `p50 ${milliseconds(p50)}, p99 ${milliseconds(p99)} of ${latenciesMs.length.toLocaleString('en')} reads`,
    target: `p99 ${milliseconds(targetMs)}`,
    isReached: p99 < targetMs,
  }
}

function spread(latenciesMs: readonly number[]): [p50: number, p99: number] {
  return [median(latenciesMs), percentile(latenciesMs, 0.99)]
}
