/** What a process adds up of its own batches is, to the last bit, what is read and folded from the tables. */
import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { IncomingMessage } from '#api/messages/index.ts'
import { createIngest } from '../../api/messages/ingest/ingest.ts'
import type { Ingest } from '../../api/messages/ingest/ingest.ts'
import { foldNext } from '../../api/messages/projections/fold.ts'
import { Tally } from '../../api/messages/projections/tally.ts'
import { createPartitions } from '../../api/messages/retention/partitions.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase, silentLogger as logger } from '../harness/database.ts'

let server: TestDatabase
let ingest: Ingest
let tally = new Tally()
const own = {
  foreignAgeMs: 3_600_000,
  takeTally() {
    const taken = tally
    tally = new Tally()
    return taken
  },
}
const domainKeys: number[] = []
const clientKeys: number[] = []
const channelKeys: number[] = []

beforeAll(async () => {
  server = await createTestDatabase()
  const { pool } = server.database
  await createPartitions(server.database)
  for (const name of ['one', 'two']) {
    const { rows } = await pool.query<{ key: number }>(
      'INSERT INTO domains (id, name, route) VALUES ($1, $2, $2) RETURNING key',
      [randomUUID(), name],
    )
    domainKeys.push(rows[0]?.key ?? 0)
    const clients = await pool.query<{ key: number }>(
      `INSERT INTO clients (domain_key, id, secret_mac, secret_sealed) VALUES ($1, $2, $3, '') RETURNING key`,
      [rows[0]?.key, randomUUID(), Buffer.from(name)],
    )
    clientKeys.push(clients.rows[0]?.key ?? 0)
    const channels = await pool.query<{ key: number }>(
      'INSERT INTO channels (domain_key, id, name) VALUES ($1, $2, $3) RETURNING key',
      [rows[0]?.key, randomUUID(), name],
    )
    channelKeys.push(channels.rows[0]?.key ?? 0)
  }
  ingest = createIngest({
    database: server.database,
    logger,
    hasRoom: () => true,
    onCommitted: (seq, batch) => tally.add(seq, batch),
  })
})
afterAll(async () => {
  await ingest.close()
  await server[Symbol.asyncDispose]()
})

const NOON_SECONDS = 1_700_000_100

const someRecord = fc.record({
  name: fc.constantFrom('a', 'b', 'c'),
  timeSeconds: fc.oneof(
    fc.constantFrom(0, 0.25, 899.999_999_9, 900, -0.000_000_4),
    fc.integer({ min: -5000, max: 5000 }),
    fc.double({ min: 0, max: 3000, noNaN: true }),
  ),
  value: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(0, -0.1, 0.2, 1e16, -1e16, 1 / 3, 999_999_999.999_999, 5e-324, 1.7e308) },
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.constant(undefined),
  ),
  sum: fc.constantFrom(undefined, undefined, 4.5),
})
const someMessage = fc.record({
  tenant: fc.constantFrom(0, 1),
  isOfUser: fc.boolean(),
  subtopic: fc.constantFrom('', 'x.y'),
  protocol: fc.constantFrom('http' as const, 'coap' as const),
  retentionDays: fc.constantFrom(null, 7),
  kind: fc.constantFrom(
    'records' as const,
    'records' as const,
    'records' as const,
    'documents' as const,
    'raw' as const,
  ),
  records: fc.oneof(
    { weight: 4, arbitrary: fc.array(someRecord, { minLength: 1, maxLength: 8 }) },
    { weight: 1, arbitrary: fc.array(someRecord, { minLength: 60, maxLength: 150 }) },
  ),
})

type Input = typeof someMessage extends fc.Arbitrary<infer Value> ? Value : never

function toMessage(input: Input): IncomingMessage {
  const { tenant, isOfUser, subtopic, protocol, retentionDays, kind, records } = input
  return {
    access: {
      domainKey: domainKeys[tenant] ?? 0,
      domainId: 'domain',
      channelKey: channelKeys[tenant] ?? 0,
      channelId: 'channel',
      publisherKey: isOfUser ? null : (clientKeys[tenant] ?? 0),
      publisherId: isOfUser ? null : `client ${tenant}`,
      retentionDays,
    },
    subtopic,
    protocol,
    receivedAtSeconds: NOON_SECONDS,
    content:
      kind === 'documents'
        ? { kind, format: 'json', contentType: 'application/json', documents: ['{}', '{"a":1}'] }
        : kind === 'raw'
          ? { kind, contentType: 'text/plain', body: Buffer.from('x') }
          : {
              kind,
              records: records.map((record) => ({
                ...record,
                unit: '',
                stringValue: record.value === undefined ? 'text' : undefined,
                timeSeconds: NOON_SECONDS + record.timeSeconds,
                boolValue: undefined,
                dataValue: undefined,
                updateTimeSeconds: undefined,
              })),
            },
  }
}

const TABLES = ['rollups', 'latest_records', 'client_telemetry', 'domain_usage']

/** Lines of the tables. Which of two zeros is the lower one is left to chance. */
async function projections(): Promise<unknown[]> {
  const { pool } = server.database
  const found: unknown[] = []
  for (const table of TABLES) {
    const { rows } = await pool.query<{ line: string }>(`SELECT t::text AS line FROM ${table} t ORDER BY 1`)
    found.push({ table, lines: rows.map(({ line }) => line.replaceAll(/,-0(?=[,)])/g, ',0')) })
  }
  return found
}

/** Always the same ones: what differs from run to run is drawn by the test above. */
const SAMPLE_SEED = 7

/** All projections from what is stored, as if no process had added anything up. */
async function foldAllAnew(): Promise<void> {
  const { pool } = server.database
  for (const table of TABLES) await pool.query(`DELETE FROM ${table}`)
  await pool.query('UPDATE ingest_batches SET folded = false')
  await foldNext(server.database)
}

test('a tally adds what its batches hold, whatever they hold', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(someMessage, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 4 }),
      async (rounds) => {
        for (const table of [...TABLES, 'records', 'payloads', 'ingest_batches'])
          await server.database.pool.query(`DELETE FROM ${table}`)
        own.takeTally()
        for (const round of rounds) {
          await Promise.all(round.map((input) => ingest.publish(toMessage(input))))
          await foldNext(server.database, own)
        }
        const { rows } = await server.database.pool.query('SELECT 1 FROM ingest_batches WHERE NOT folded')
        expect(rows).toEqual([])
        const added = await projections()
        await foldAllAnew()
        expect(added).toEqual(await projections())
      },
    ),
    { numRuns: 60, interruptAfterTimeLimit: 60_000 },
  )
}, 120_000)

test('a tally of more series than one statement adds is added as a whole, a channel with all of its own', async () => {
  const nothing = { stringValue: undefined, boolValue: undefined, dataValue: undefined, sum: undefined }
  const records = Array.from({ length: 2_500 }, (_, index) => ({
    ...nothing,
    name: `wide ${index}`,
    unit: '',
    timeSeconds: NOON_SECONDS,
    value: index / 10,
    updateTimeSeconds: undefined,
  }))
  own.takeTally()
  for (const table of [...TABLES, 'records', 'payloads', 'ingest_batches'])
    await server.database.pool.query(`DELETE FROM ${table}`)
  const common = { tenant: 0, isOfUser: false, subtopic: '', protocol: 'http', retentionDays: null } as const
  const message = toMessage({ ...common, kind: 'records', records: [] })
  for (const sent of [records, records.toReversed()]) {
    await ingest.publish({ ...message, content: { kind: 'records', records: sent } })
    const round = await foldNext(server.database, own)
    // Two of each series, and one of the channel.
    expect(round).toEqual({ records: 2_500, rows: 5_001, hasMore: false })
  }
  const added = await projections()
  await foldAllAnew()
  expect(added).toEqual(await projections())
})

test('a tally of which somebody folded a batch is left alone, and the rest is read', async () => {
  const input = fc.sample(someMessage, { numRuns: 6, seed: SAMPLE_SEED }).map(toMessage)
  await Promise.all(input.map((message) => ingest.publish(message)))
  await foldNext(server.database)
  await Promise.all(input.map((message) => ingest.publish(message)))
  await foldNext(server.database, own)
  const { rows } = await server.database.pool.query('SELECT 1 FROM ingest_batches WHERE NOT folded')
  expect(rows.length).toBeGreaterThan(0)
  await foldNext(server.database, { ...own, foreignAgeMs: 0 })
  const folded = await projections()
  await foldAllAnew()
  expect(folded).toEqual(await projections())
})

test('a time that is too far away for a tally is folded from the tables', async () => {
  const [message] = fc
    .sample(someMessage, { numRuns: 1, seed: SAMPLE_SEED })
    .map((input) => toMessage({ ...input, kind: 'records' }))
  if (message?.content.kind !== 'records') throw new Error('no records')
  const records = message.content.records.map((record) => ({ ...record, timeSeconds: 200_000_000_000 }))
  await ingest.publish({ ...message, content: { kind: 'records', records } })
  expect(tally.isExact).toBe(false)
  await foldNext(server.database, own)
  await foldNext(server.database, { ...own, foreignAgeMs: 0 })
  const folded = await projections()
  await foldAllAnew()
  expect(folded).toEqual(await projections())
})
