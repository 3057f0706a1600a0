/**
 * Ingest over HTTP, acknowledged after the commit, 10 records per message, 1,000 series: compared with `node:http` that
 * stores nothing, with the smallest program that gives the same guarantee, and with one INSERT per record. Also measured:
 * the latency at half of the target, a hundred times as many series, and ten times as many records per message.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import pg from 'pg'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { load, prepareRequest } from './http-load.ts'
import type { LoadOptions, LoadResult } from './http-load.ts'
import { memoryMiB, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Device } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat, windowedP99 } from './statistics.ts'
import type { Row } from './statistics.ts'

const RECORDS = 10
const DEVICES = 100
const CONNECTIONS = 128
const DURATION_MS = 5000
const REPEATS = 3
const INSERT_CONNECTIONS = 10
const TARGET_RECORDS_PER_SECOND = 150_000
const WIDE_RECORDS_PER_SECOND = 110_000
/** Sets of names that a device uses in turn, which multiplies the number of series. */
const NAME_SETS = 100
const MANY_RECORDS = 100
const FIRST_DEADLINE_MS = 60_000
/** At half of the target, or of the measured rate where that is less. */
const HALF_P99_MS = 15
const HALF_WINDOWS = 5

function packOf(index: number, nameSet = 0, length = RECORDS): string {
  const records = Array.from({ length }, (_, place) => ({
    n: `m${nameSet * RECORDS + (place % RECORDS)}`,
    u: 'V',
    v: index + place / 10,
    t: -place,
  }))
  return JSON.stringify([{ bn: 'device:', ...records[0] }, ...records.slice(1)])
}

async function measurePlatform(rows: Row[], dataDir: string): Promise<number> {
  await using platform = await startPlatform(dataDir)
  const { domainId, channelId, devices } = await prepareDevices(platform, DEVICES)
  const requestOf = (device: Device, pack: string) =>
    prepareRequest(
      'POST',
      `/m/${domainId}/c/${channelId}`,
      { Authorization: `Client ${device.secret}`, 'Content-Type': 'application/senml+json' },
      pack,
    )
  const requests = devices.map((device, index) => requestOf(device, packOf(index)))
  const results: LoadResult[] = await repeat(1, REPEATS, () =>
    load({ port: platform.port, requests, connections: CONNECTIONS, durationMs: DURATION_MS, status: 202 }),
  )
  const messages = median(results.map((result) => result.perSecond))
  const latencies = results.flatMap((result) => result.latenciesMs)
  rows.push({
    name: 'Skein, acknowledged after commit',
    figure: perSecond(messages * RECORDS, 'records'),
    target: perSecond(TARGET_RECORDS_PER_SECOND, 'records'),
    isReached: messages * RECORDS >= TARGET_RECORDS_PER_SECOND,
  })
  rows.push({
    name: `  latency at ${CONNECTIONS} connections`,
    figure: `p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}`,
  })
  rows.push({ name: '  refused', figure: String(results.reduce((sum, result) => sum + result.refused, 0)) })
  rows.push({ name: '  memory afterwards, all processes', figure: `${Math.round(memoryMiB(platform.pid))} MiB` })
  const common = { port: platform.port, connections: CONNECTIONS, durationMs: DURATION_MS, status: 202 }
  const half = await measureHalf({ ...common, requests }, Math.min(messages, TARGET_RECORDS_PER_SECOND / RECORDS))
  rows.push({
    name: `  at half of the target, ${perSecond(half.perSecond * RECORDS, 'records')}`,
    figure: `p50 ${milliseconds(half.p50)}, p99 ${half.p99.text}`,
    target: `p99 ${milliseconds(HALF_P99_MS)}`,
    isReached: half.p99.value < HALF_P99_MS,
  })
  const many = Array.from({ length: NAME_SETS }, (_, set) =>
    devices.map((device, index) => requestOf(device, packOf(index, set))),
  ).flat()
  // All requests run once before the measurement, so that every series exists.
  await load({ ...common, requests: (turn) => many[turn], durationMs: FIRST_DEADLINE_MS })
  const wide = await load({ ...common, requests: many })
  rows.push({
    name: `  with ${(DEVICES * NAME_SETS * RECORDS).toLocaleString('en')} series`,
    figure: perSecond(wide.perSecond * RECORDS, 'records'),
    target: perSecond(WIDE_RECORDS_PER_SECOND, 'records'),
    isReached: wide.perSecond * RECORDS >= WIDE_RECORDS_PER_SECOND,
  })
  const long = await load({
    ...common,
    requests: devices.map((device, index) => requestOf(device, packOf(index, 0, MANY_RECORDS))),
  })
  rows.push({
    name: `  with ${MANY_RECORDS} records per message`,
    figure: perSecond(long.perSecond * MANY_RECORDS, 'records'),
  })
  return messages
}

/** Measures a program that answers 202 at `/m` and prints its port. */
async function measureProgram(file: string, ...args: string[]): Promise<{ messages: number; halfP99: number }> {
  const child = fork(join(import.meta.dirname, file), args)
  const [port] = (await once(child, 'message')) as [number]
  const requests = Array.from({ length: DEVICES }, (_, index) =>
    prepareRequest('POST', '/m', { 'Content-Type': 'application/senml+json' }, packOf(index)),
  )
  const common = { port, requests, connections: CONNECTIONS, durationMs: DURATION_MS, status: 202 }
  const results = await repeat(1, REPEATS, () => load(common))
  const messages = median(results.map((result) => result.perSecond))
  const half = await measureHalf(common, messages)
  child.disconnect()
  await once(child, 'exit')
  return { messages, halfP99: half.p99.value }
}

/** Latency of a message at half of this rate. */
async function measureHalf(
  options: LoadOptions,
  messages: number,
): Promise<{ perSecond: number; p50: number; p99: ReturnType<typeof windowedP99> }> {
  const windows = await repeat(0, HALF_WINDOWS, () => load({ ...options, perSecond: messages / 2 / CONNECTIONS }))
  const latencies = windows.map(({ latenciesMs }) => latenciesMs)
  return {
    perSecond: median(windows.map((window) => window.perSecond)),
    p50: median(latencies.flat()),
    p99: windowedP99(latencies),
  }
}

/** A plain service: a row per record, each in a transaction of its own. */
async function measureInserts(dataDir: string): Promise<number> {
  const server = await startEmbeddedPostgres({ dataDir, log: () => undefined })
  const clients = await Promise.all(
    Array.from({ length: INSERT_CONNECTIONS }, async () => {
      const client = new pg.Client(server.connection)
      await client.connect()
      return client
    }),
  )
  await clients[0]?.query(
    'CREATE TABLE plain (channel uuid, publisher uuid, name text, unit text, time double precision, value double precision)',
  )
  const end = performance.now() + DURATION_MS
  const began = performance.now()
  let inserted = 0
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() < end) {
        await client.query({
          name: 'insert',
          text: 'INSERT INTO plain VALUES ($1, $2, $3, $4, $5, $6)',
          values: [
            '6f6a6ff1-8d1c-4b6b-9a65-2a1f7a0f0001',
            '6f6a6ff1-8d1c-4b6b-9a65-2a1f7a0f0002',
            'device:m0',
            'V',
            1,
            1,
          ],
        })
        inserted += 1
      }
    }),
  )
  const seconds = (performance.now() - began) / 1000
  await Promise.all(clients.map((client) => client.end()))
  await server.stop()
  return inserted / seconds
}

export async function benchIngest(): Promise<void> {
  const rows: Row[] = []
  const folders = [newDataDir(), newDataDir(), newDataDir()] as const
  try {
    const messages = await measurePlatform(rows, folders[0])
    const bare = await measureProgram('bare-http.ts')
    const trial = await measureProgram('trial-ingest.ts', folders[2])
    const inserts = await measureInserts(folders[1])
    rows.push({
      name: 'node:http without storage',
      figure: perSecond(bare.messages * RECORDS, 'records'),
      ratio: `Skein does ${(messages / bare.messages).toFixed(2)} of it; at half of it p99 ${milliseconds(bare.halfP99)}`,
    })
    rows.push({
      name: 'the smallest program with the same guarantee: Fastify, unnest, a narrow table',
      figure: perSecond(trial.messages * RECORDS, 'records'),
      ratio: `Skein does ${(messages / trial.messages).toFixed(2)} of it; at half of it p99 ${milliseconds(trial.halfP99)}`,
    })
    rows.push({
      name: `one INSERT per record, ${INSERT_CONNECTIONS} connections`,
      figure: perSecond(inserts, 'records'),
      ratio: `Skein does ${((messages * RECORDS) / inserts).toFixed(1)} times it`,
    })
    printTable(
      `Ingest over HTTP, ${RECORDS} records per message, ${DEVICES * RECORDS} series, loader on the same cores`,
      rows,
    )
  } finally {
    for (const folder of folders) removeDataDir(folder)
  }
}
