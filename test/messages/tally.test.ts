/** What a process adds up of its own batches is, to the last bit, what is read and folded from the tables. */
import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { IncomingMessage } from '#api/messages/index.ts'
import { foldNext } from '../../api/messages/projections/fold.ts'
import { lockRollups } from '../../api/messages/projections/lock.ts'
import { createPartitions } from '../../api/messages/store/partitions.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { createFoldingNode } from './folding.ts'

let server: TestDatabase
let node: ReturnType<typeof createFoldingNode>
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
  node = createFoldingNode(server.database)
})
afterAll(async () => {
  await node.close()
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
  /** Of those without a number. */
  other: fc.constantFrom('text', 'ü', true, false, Buffer.from([0, 255])),
  sum: fc.constantFrom(undefined, undefined, 4.5),
  updateTimeSeconds: fc.constantFrom(undefined, undefined, 30.5),
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
              records: records.map(({ other, ...record }) => ({
                ...record,
                unit: '',
                timeSeconds: NOON_SECONDS + record.timeSeconds,
                stringValue: record.value === undefined && typeof other === 'string' ? other : undefined,
                boolValue: record.value === undefined && typeof other === 'boolean' ? other : undefined,
                dataValue: record.value === undefined && other instanceof Buffer ? other : undefined,
              })),
            },
  }
}

const TABLES = ['rollups', 'latest_records', 'client_telemetry', 'domain_usage']

/** What projections are made of. */
const STORED = ['records', 'payloads', 'ingest_batches']

/** Removes what these tables hold, and what waits to be merged. */
async function empty(tables: readonly string[]): Promise<void> {
  for (const table of [...tables, 'tallies']) await server.database.pool.query(`DELETE FROM ${table}`)
}

/** Lines of the tables once all is merged. Which of two zeros is the lower one is left to chance. */
async function projections(): Promise<unknown[]> {
  const { pool } = server.database
  await server.database.transaction((tx) => lockRollups(tx))
  expect((await pool.query('SELECT FROM tallies')).rowCount).toBe(0)
  const found: unknown[] = []
  for (const table of TABLES) {
    const { rows } = await pool.query<{ line: string }>(`SELECT t::text AS line FROM ${table} t ORDER BY 1`)
    found.push({ table, lines: rows.map(({ line }) => line.replaceAll(/,-0(?=[,)])/g, ',0')) })
  }
  return found
}

/** Days of UTC on which batches arrived that are not folded. */
async function unfoldedDays(): Promise<number> {
  const { rows } = await server.database.pool.query<{ days: number }>(`
    SELECT count(DISTINCT (arrived_at AT TIME ZONE 'UTC')::date)::integer AS days FROM ingest_batches WHERE NOT folded`)
  return rows[0]?.days ?? 0
}

/** Always the same ones: what differs from run to run is drawn by the test above. */
const SAMPLE_SEED = 7

/** All projections from what is stored, as if no process had added anything up. */
async function foldAllAnew(): Promise<void> {
  await empty(TABLES)
  await server.database.pool.query('UPDATE ingest_batches SET folded = false')
  await foldNext(server.database)
}

test('a tally adds what its batches hold, whatever they hold', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(someMessage, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 4 }),
      async (rounds) => {
        await empty([...TABLES, ...STORED])
        node.own.takeTally()
        for (const round of rounds) {
          await Promise.all(round.map((input) => node.publish(toMessage(input))))
          await node.fold()
        }
        // A tally that midnight divides is not added: its batches are left to be read from the tables.
        if ((await unfoldedDays()) > 1) await foldNext(server.database)
        expect(await unfoldedDays()).toBe(0)
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
  node.own.takeTally()
  await empty([...TABLES, ...STORED])
  const common = { tenant: 0, isOfUser: false, subtopic: '', protocol: 'http', retentionDays: null } as const
  const message = toMessage({ ...common, kind: 'records', records: [] })
  for (const sent of [records, records.toReversed()]) {
    await node.publish({ ...message, content: { kind: 'records', records: sent } })
    const round = await node.fold()
    expect(round).toEqual({ records: 2_500, rows: 2_500, hasMore: false })
  }
  const added = await projections()
  await foldAllAnew()
  expect(added).toEqual(await projections())
})

test('a tally of which somebody folded a batch is left alone, and the rest is read', async () => {
  const input = fc.sample(someMessage, { numRuns: 6, seed: SAMPLE_SEED }).map(toMessage)
  await Promise.all(input.map((message) => node.publish(message)))
  await foldNext(server.database)
  await Promise.all(input.map((message) => node.publish(message)))
  await node.fold()
  const { rows } = await server.database.pool.query('SELECT 1 FROM ingest_batches WHERE NOT folded')
  expect(rows.length).toBeGreaterThan(0)
  await foldNext(server.database, { ...node.own, foreignAgeMs: 0 })
  const folded = await projections()
  await foldAllAnew()
  expect(folded).toEqual(await projections())
})

test('a tally that midnight divides is left alone, and its batches are read from the tables', async () => {
  await empty([...TABLES, ...STORED])
  node.own.takeTally()
  const input = fc.sample(someMessage, { numRuns: 6, seed: SAMPLE_SEED }).map(toMessage)
  for (const message of input) await node.publish(message)
  const { pool } = server.database
  const { rows } = await pool.query<{ seq: number }>('SELECT max(seq) AS seq FROM ingest_batches')
  for (const [table, column] of [
    ['ingest_batches', 'seq'],
    ['records', 'batch_seq'],
    ['payloads', 'batch_seq'],
  ] as const)
    await pool.query(`UPDATE ${table} SET arrived_at = arrived_at + interval '1 day' WHERE ${column} = $1`, [
      rows[0]?.seq,
    ])
  await node.fold()
  expect(await unfoldedDays()).toBe(2)
  await foldNext(server.database)
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
  await node.publish({ ...message, content: { kind: 'records', records } })
  expect(node.own.tally.isExact).toBe(false)
  await node.fold()
  await foldNext(server.database, { ...node.own, foreignAgeMs: 0 })
  const folded = await projections()
  await foldAllAnew()
  expect(folded).toEqual(await projections())
})

/** What happens between the rounds of two processes, of which each keeps what it added up. */
const someEvent = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('publish' as const),
      by: fc.constantFrom(0, 1),
      messages: fc.array(someMessage, { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('fold' as const), by: fc.constantFrom(0, 1) }) },
  // Its transaction is not committed, or nobody knows that it was.
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('fail' as const), by: fc.constantFrom(0, 1), isCommitted: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom('merge all' as const, 'restart' as const),
      by: fc.constantFrom(0, 1),
    }),
  },
  // So long that what waits is merged.
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('idle' as const), by: fc.constantFrom(0, 1) }) },
)
const IDLE_ROUNDS = 40

test('whatever happens to processes and their rounds, nothing is added twice and nothing is lost', async () => {
  const { database } = server
  await fc.assert(
    fc.asyncProperty(fc.array(someEvent, { minLength: 3, maxLength: 14 }), async (events) => {
      await empty([...TABLES, ...STORED])
      const nodes = [createFoldingNode(database), createFoldingNode(database)]
      for (const event of events) {
        const one = nodes[event.by] as ReturnType<typeof createFoldingNode>
        if (event.kind === 'publish') await Promise.all(event.messages.map((input) => one.publish(toMessage(input))))
        if (event.kind === 'fold') await one.fold()
        if (event.kind === 'fail') await expect(foldNext(failing(event.isCommitted), one.own)).rejects.toThrow('lost')
        if (event.kind === 'merge all') await database.transaction((tx) => lockRollups(tx))
        if (event.kind === 'idle') for (let round = 0; round < IDLE_ROUNDS; round++) await one.fold()
        if (event.kind === 'restart') {
          await one.close()
          nodes[event.by] = createFoldingNode(database)
        }
      }
      for (const one of nodes) await one.fold()
      await foldNext(database)
      const found = await projections()
      await foldAllAnew()
      expect(found).toEqual(await projections())
      await Promise.all(nodes.map((one) => one.close()))
    }),
    { numRuns: 60, interruptAfterTimeLimit: 90_000 },
  )
}, 150_000)

/** A database whose transactions end with an error, once they are committed or instead. */
function failing(isCommitted: boolean): TestDatabase['database'] {
  const { database } = server
  return {
    ...database,
    async transaction(work) {
      await database.transaction(async (tx) => {
        await work(tx)
        if (!isCommitted) throw new Error('lost')
      })
      throw new Error('lost')
    },
  }
}

test.for([true, false])(
  'what a round kept in memory is not trusted when nobody knows that it was committed (it was: %s)',
  async (isCommitted) => {
    const { database } = server
    await empty([...TABLES, ...STORED])
    const one = createFoldingNode(database)
    const input = fc.sample(someMessage, { numRuns: 4, seed: SAMPLE_SEED }).map(toMessage)
    const publish = () => Promise.all(input.map((message) => one.publish(message)))
    await publish()
    await one.fold()
    // As many rows as before, so that their number tells nothing.
    await publish()
    await expect(foldNext(failing(isCommitted), one.own)).rejects.toThrow('lost')
    await publish()
    await one.fold()
    await foldNext(database)
    const found = await projections()
    await foldAllAnew()
    expect(found).toEqual(await projections())
    await one.close()
  },
)

test('rows are written anew with each round, and merged when they are many, old, or of another day', async () => {
  const { database } = server
  await empty([...TABLES, ...STORED])
  const one = createFoldingNode(database)
  const nothing = { stringValue: undefined, boolValue: undefined, dataValue: undefined, sum: undefined }
  // All on one day until the test says otherwise, also when it runs at midnight.
  let arrivedAt = new Date()
  const publish = async (names: number) => {
    const records = Array.from({ length: names }, (_, index) => ({
      ...nothing,
      name: `name ${index}`,
      unit: '',
      timeSeconds: NOON_SECONDS,
      value: index,
      updateTimeSeconds: undefined,
    }))
    const common = { tenant: 0, isOfUser: false, subtopic: '', protocol: 'http', retentionDays: null } as const
    const message = toMessage({ ...common, kind: 'records', records: [] })
    await one.publish({ ...message, content: { kind: 'records', records } })
    await database.pool.query('UPDATE ingest_batches SET arrived_at = $1 WHERE NOT folded', [arrivedAt])
  }
  /** Series that wait, and records that were merged, after a round. */
  const folded = async () => {
    await one.fold()
    const { rows } = await database.pool.query<{ waiting: number; merged: number }>(`
      SELECT (SELECT coalesce(sum(cardinality(series_keys)), 0)::integer FROM tallies WHERE NOT is_total) AS waiting,
             (SELECT coalesce(sum(records), 0)::integer FROM rollups WHERE series_key <> 0) AS merged`)
    return rows[0]
  }
  await publish(3_000)
  expect(await folded()).toEqual({ waiting: 3_000, merged: 0 })
  await publish(1_000)
  expect(await folded()).toEqual({ waiting: 3_000, merged: 0 })
  // Too many to be written for the sake of so few.
  await publish(10)
  expect(await folded()).toEqual({ waiting: 10, merged: 4_000 })
  for (let round = 0; round < IDLE_ROUNDS; round++) await one.fold()
  expect(await folded()).toEqual({ waiting: 0, merged: 4_010 })
  await publish(5)
  expect(await folded()).toEqual({ waiting: 5, merged: 4_010 })
  arrivedAt = new Date(arrivedAt.getTime() + 86_400_000)
  await publish(7)
  expect(await folded()).toEqual({ waiting: 7, merged: 4_015 })
  await one.close()
})
