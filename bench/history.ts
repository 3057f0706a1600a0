/**
 * The archive of records: bytes of Parquet against bytes of PostgreSQL for the messages of `capacity`, the rate of an export against that of
 * ingest in the same run, and the memory of the process that exports, which must not grow with the records. BENCH_COPIES sets how many times the
 * records of the second export are those of the first.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { publishOverMqtt, tableBytes } from './capacity.ts'
import type { Exported } from './history-export.ts'
import { cpuMsByRole, freePort, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { perSecond, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const DEVICES = 1000
const RECORDS_PER_MESSAGE = 4
const PUBLISH_SECONDS = 15
const RUNS = 2
const COPIES = Number(process.env['BENCH_COPIES'] ?? 4)
/** The projector and the checkpointer work on after the last message. */
const SETTLE_MS = 15_000
const MAX_SHARE_OF_BYTES = 0.1
const MIN_TIMES_INGEST = 3
const MAX_MEMORY_MIB = 300
/** Weeks before the present one: records of the run, and copies of them. */
const WEEKS = { first: 6, second: 9 }

type Address = { host: string; port: number; user: string; database: string; password: string }

const totalCpuSeconds = ({ pid }: Platform) =>
  Object.values(cpuMsByRole(pid)).reduce((sum, each) => sum + each, 0) / 1000
const postgresCpuSeconds = ({ pid }: Platform) => (cpuMsByRole(pid)['PostgreSQL'] ?? 0) / 1000

/** With the processor time of PostgreSQL meanwhile, in which nothing else happens. */
async function exportAll(
  address: Address,
  url: string,
  platform: Platform,
): Promise<Exported & { postgresSeconds: number }> {
  const before = postgresCpuSeconds(platform)
  const child = fork(join(import.meta.dirname, 'history-export.ts'), [JSON.stringify(address), url], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
  })
  const ended = once(child, 'exit')
  const [exported] = (await Promise.race([
    once(child, 'message'),
    ended.then(() => Promise.reject(new Error('the export ended without a figure'))),
  ])) as [Exported]
  await ended
  return { ...exported, postgresSeconds: postgresCpuSeconds(platform) - before }
}

/** Moves the records that arrived in this hour this many weeks back. */
async function moveArrivals(client: pg.Client, weeks: number): Promise<number> {
  await client.query(
    'SELECT create_message_partitions(now() - make_interval(weeks => $1::integer + 1), now() - make_interval(weeks => $1::integer - 1))',
    [weeks],
  )
  const { rowCount } = await client.query(
    `UPDATE records SET arrived_at = arrived_at - make_interval(weeks => $1::integer) WHERE arrived_at > now() - interval '1 hour'`,
    [weeks],
  )
  return rowCount ?? 0
}

/** The records of one week, some times, in another week: of later messages, with values of one decimal that change each time. */
async function copyArrivals(client: pg.Client): Promise<void> {
  await client.query(
    'SELECT create_message_partitions(now() - make_interval(weeks => $1::integer + 1), now() - make_interval(weeks => $1::integer - 1))',
    [WEEKS.second],
  )
  await client.query(
    `INSERT INTO records (channel_key, min_time, max_time, arrived_at, batch_seq, message, chunk, retention_days, protocol, series_keys, times, "values")
     SELECT channel_key, min_time + shift, max_time + shift, arrived_at - make_interval(weeks => $1::integer), batch_seq + copy * 10000000, message,
            chunk, retention_days, protocol, series_keys, (SELECT array_agg(time + shift) FROM unnest(times) AS time),
            (SELECT array_agg(round((value + 10 * random())::numeric, 1)::float8) FROM unnest("values") AS value)
       FROM records CROSS JOIN generate_series(1, $2::integer) AS copy CROSS JOIN LATERAL (SELECT copy * interval '30 seconds' AS shift) moved
      WHERE arrived_at < now() - interval '1 week'`,
    [WEEKS.second - WEEKS.first, COPIES],
  )
}

async function archived(client: pg.Client): Promise<{ records: number; bytes: number; files: number }> {
  const { rows } = await client.query<{ records: string; bytes: string; files: string }>(
    `SELECT coalesce(sum(records) FILTER (WHERE kind = 'data'), 0) AS records, coalesce(sum(bytes), 0) AS bytes,
            count(*) FILTER (WHERE kind = 'data') AS files FROM archive_files WHERE state = 'live'`,
  )
  const [row] = rows
  return { records: Number(row?.records), bytes: Number(row?.bytes), files: Number(row?.files) }
}

export async function benchHistory(): Promise<void> {
  const dataDir = newDataDir()
  const folder = mkdtempSync(join(tmpdir(), 'skein-bench-'))
  const mqttPort = await freePort()
  const rows: Row[] = []
  try {
    await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(mqttPort) })
    const world = await prepareDevices(platform, DEVICES)
    // Series are created by the first messages of each device.
    let messages = await publishOverMqtt(mqttPort, world)
    await pause(SETTLE_MS)
    const before = tableBytes(platform.dataDir)
    let measured = 0
    const idle = totalCpuSeconds(platform)
    for (let run = 0; run < RUNS; run++) measured += await publishOverMqtt(mqttPort, world)
    messages += measured
    await pause(SETTLE_MS)
    const ingestCpu = (totalCpuSeconds(platform) - idle) / (measured * RECORDS_PER_MESSAGE)
    const inPostgres = (tableBytes(platform.dataDir) - before) / (measured * RECORDS_PER_MESSAGE)
    const ingested = (measured * RECORDS_PER_MESSAGE) / (RUNS * PUBLISH_SECONDS)
    const address: Address = {
      host: join(dataDir, 'postgres', 'run'),
      port: 5432,
      user: 'skein',
      database: 'skein',
      password: readFileSync(join(dataDir, 'postgres.password'), 'utf8').trim(),
    }
    await using stack = new AsyncDisposableStack()
    const client = new pg.Client(address)
    stack.defer(() => client.end())
    await client.connect()
    await moveArrivals(client, WEEKS.first)
    const first = await exportAll(address, `file://${folder}`, platform)
    const after = await archived(client)
    if (after.records < messages * RECORDS_PER_MESSAGE)
      throw new Error(`${after.records} of ${messages * RECORDS_PER_MESSAGE} records are in the archive`)
    const share = after.bytes / after.records / inPostgres
    const rate = after.records / first.seconds
    rows.push(
      { name: 'record in PostgreSQL, with indexes and projections', figure: `${inPostgres.toFixed(1)} bytes` },
      {
        name: 'record in Parquet, with metadata',
        figure: `${(after.bytes / after.records).toFixed(1)} bytes`,
        ratio: `${(share * 100).toFixed(0)} % of PostgreSQL`,
        target: `${MAX_SHARE_OF_BYTES * 100} %`,
        isReached: share <= MAX_SHARE_OF_BYTES,
      },
      { name: 'ingest over MQTT QoS 1', figure: perSecond(ingested, 'records') },
      {
        name: `export of ${after.records.toLocaleString('en')} records`,
        figure: perSecond(rate, 'records'),
        ratio: `${(rate / ingested).toFixed(1)} x ingest`,
        target: `${MIN_TIMES_INGEST} x`,
        isReached: rate / ingested >= MIN_TIMES_INGEST,
      },
      {
        name: '  processor time of a record',
        figure: `${micros(first.cpuSeconds / after.records)} and ${micros(first.postgresSeconds / after.records)} in PostgreSQL`,
        ratio: `${micros(ingestCpu)} for its ingest`,
      },
      memoryRow('  resident memory of its process', first),
    )
    await copyArrivals(client)
    const second = await exportAll(address, `file://${folder}`, platform)
    const both = await archived(client)
    const copied = both.records - after.records
    rows.push(
      {
        name: `export of ${copied.toLocaleString('en')} records`,
        figure: `${perSecond(copied / second.seconds, 'records')}, ${((both.bytes - after.bytes) / copied).toFixed(1)} bytes a record whose value changes`,
      },
      memoryRow('  resident memory of its process', second),
    )
  } finally {
    removeDataDir(dataDir)
    rmSync(folder, { recursive: true, force: true })
  }
  printTable('History: records in Parquet, and what their export takes', rows)
}

const micros = (seconds: number) => `${(seconds * 1e6).toFixed(1)} µs`

function memoryRow(name: string, { memoryMiB, memoryBeforeMiB }: Exported): Row {
  return {
    name,
    figure: `${Math.round(memoryMiB)} MiB at most`,
    ratio: `${Math.round(memoryBeforeMiB)} MiB before`,
    target: `${MAX_MEMORY_MIB} MiB`,
    isReached: memoryMiB <= MAX_MEMORY_MIB,
  }
}
