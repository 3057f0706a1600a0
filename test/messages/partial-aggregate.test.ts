/** The partial aggregate of a process is, to the last bit, what is projected from the tables. */
import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { IncomingMessage } from '#api/messages/index.ts'
import { DecimalSum } from '../../api/messages/projections/decimal-sum.ts'
import { projectNext } from '../../api/messages/projections/project.ts'
import { createPartitions } from '../../api/messages/store/partitions.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { createProjectingNode } from './projecting.ts'

let server: TestDatabase
let node: ReturnType<typeof createProjectingNode>
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
  node = createProjectingNode(server.database)
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

const TABLES = [
  'rollups',
  'rollup_weeks',
  'latest_records',
  'client_telemetry',
  'domain_usage',
  'domain_minutes',
  'domain_stored_records',
]

/** What projections are made of. */
const STORED = ['records', 'payloads', 'ingest_batches']

async function empty(tables: readonly string[]): Promise<void> {
  for (const table of tables) await server.database.pool.query(`DELETE FROM ${table}`)
}

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

/** Days of UTC on which pending batches arrived. */
async function pendingDays(): Promise<number> {
  const { rows } = await server.database.pool.query<{ days: number }>(`
    SELECT count(DISTINCT (arrived_at AT TIME ZONE 'UTC')::date)::integer AS days FROM ingest_batches WHERE NOT projected`)
  return rows[0]?.days ?? 0
}

/** Of them some hundred are where the shortest decimal of JavaScript lies halfway. */
const LARGE_INTEGERS = 20_000

/** Always the same ones: what differs from run to run is drawn by the test above. */
const SAMPLE_SEED = 7

/** All projections from what is stored, as if no process had added anything up. */
async function projectAllAnew(): Promise<void> {
  await empty(TABLES)
  await server.database.pool.query('UPDATE ingest_batches SET projected = false')
  await projectNext(server.database)
}

test('a partial aggregate adds the records of its batches, for any content', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(someMessage, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 4 }),
      async (rounds) => {
        await empty([...TABLES, ...STORED])
        node.own.takePartial()
        for (const round of rounds) {
          await Promise.all(round.map((input) => node.publish(toMessage(input))))
          await node.project()
        }
        // One that midnight divides is not added: its batches are left to be read from the tables.
        if ((await pendingDays()) > 1) await projectNext(server.database)
        expect(await pendingDays()).toBe(0)
        const added = await projections()
        await projectAllAnew()
        expect(added).toEqual(await projections())
      },
    ),
    { numRuns: 60, interruptAfterTimeLimit: 60_000 },
  )
}, 120_000)

test('a large integer is added as the decimal that PostgreSQL writes', async () => {
  // A few significant digits of one scale: the decimals halfway between two doubles are among them.
  const someLargeInteger = fc
    .tuple(fc.bigInt({ min: 1n, max: 10n ** 17n - 1n }), fc.integer({ min: 0, max: 6 }))
    .map(([digits, zeros]) => Number(digits * 10n ** BigInt(zeros)))
  const someEvenInteger = fc.bigInt({ min: 2n ** 53n, max: 2n ** 64n }).map(Number)
  const values = fc.sample(fc.oneof(someLargeInteger, someEvenInteger), LARGE_INTEGERS)
  const { rows } = await server.database.pool.query<{ written: string }>(
    'SELECT (value::text::numeric)::text AS written FROM unnest($1::float8[]) WITH ORDINALITY AS t (value, number) ORDER BY number',
    [values],
  )
  const added = values.map((value) => {
    const sum = new DecimalSum()
    sum.add(value)
    return sum.toNumeric()?.replace(/0{6}e-6$/, '')
  })
  expect(added).toEqual(rows.map(({ written }) => written))
})

test('a partial aggregate of more series than one statement adds is added as a whole, a channel with all of its own', async () => {
  const nothing = { stringValue: undefined, boolValue: undefined, dataValue: undefined, sum: undefined }
  const records = Array.from({ length: 2_500 }, (_, index) => ({
    ...nothing,
    name: `wide ${index}`,
    unit: '',
    timeSeconds: NOON_SECONDS,
    value: index / 10,
    updateTimeSeconds: undefined,
  }))
  node.own.takePartial()
  await empty([...TABLES, ...STORED])
  const common = { tenant: 0, isOfUser: false, subtopic: '', protocol: 'http', retentionDays: null } as const
  const message = toMessage({ ...common, kind: 'records', records: [] })
  for (const sent of [records, records.toReversed()]) {
    await node.publish({ ...message, content: { kind: 'records', records: sent } })
    const round = await node.project()
    expect(round).toEqual({ records: 2_500, hasMore: false })
  }
  const added = await projections()
  await projectAllAnew()
  expect(added).toEqual(await projections())
})

test('a partial aggregate with a batch that another process projected is skipped, and the rest is read', async () => {
  const input = fc.sample(someMessage, { numRuns: 6, seed: SAMPLE_SEED }).map(toMessage)
  await Promise.all(input.map((message) => node.publish(message)))
  await projectNext(server.database)
  await Promise.all(input.map((message) => node.publish(message)))
  await node.project()
  const { rows } = await server.database.pool.query('SELECT 1 FROM ingest_batches WHERE NOT projected')
  expect(rows.length).toBeGreaterThan(0)
  await projectNext(server.database, { ...node.own, foreignAgeMs: 0 })
  const projected = await projections()
  await projectAllAnew()
  expect(projected).toEqual(await projections())
})

test('a partial aggregate across midnight is skipped, and its batches are read from the tables', async () => {
  await empty([...TABLES, ...STORED])
  node.own.takePartial()
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
  await node.project()
  expect(await pendingDays()).toBe(2)
  await projectNext(server.database)
  const projected = await projections()
  await projectAllAnew()
  expect(projected).toEqual(await projections())
})

test('a time beyond the range of a partial aggregate is projected from the tables', async () => {
  const [message] = fc
    .sample(someMessage, { numRuns: 1, seed: SAMPLE_SEED })
    .map((input) => toMessage({ ...input, kind: 'records' }))
  if (message?.content.kind !== 'records') throw new Error('no records')
  const records = message.content.records.map((record) => ({ ...record, timeSeconds: 200_000_000_000 }))
  await node.publish({ ...message, content: { kind: 'records', records } })
  expect(node.own.partial.isExact).toBe(false)
  await node.project()
  await projectNext(server.database, { ...node.own, foreignAgeMs: 0 })
  const projected = await projections()
  await projectAllAnew()
  expect(projected).toEqual(await projections())
})

/** What happens between the rounds of two processes, of which each adds up its own. */
const someEvent = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('publish' as const),
      by: fc.constantFrom(0, 1),
      messages: fc.array(someMessage, { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('project' as const), by: fc.constantFrom(0, 1) }) },
  // Its transaction is not committed, or nobody knows that it was.
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('fail' as const), by: fc.constantFrom(0, 1), isCommitted: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('restart' as const),
      by: fc.constantFrom(0, 1),
    }),
  },
)

test('no record is added twice or lost, whatever happens to processes and their rounds', async () => {
  const { database } = server
  await fc.assert(
    fc.asyncProperty(fc.array(someEvent, { minLength: 3, maxLength: 14 }), async (events) => {
      await empty([...TABLES, ...STORED])
      const nodes = [createProjectingNode(database), createProjectingNode(database)]
      for (const event of events) {
        const one = nodes[event.by] as ReturnType<typeof createProjectingNode>
        if (event.kind === 'publish') await Promise.all(event.messages.map((input) => one.publish(toMessage(input))))
        if (event.kind === 'project') await one.project()
        if (event.kind === 'fail')
          await expect(projectNext(failing(event.isCommitted), one.own)).rejects.toThrow('lost')
        if (event.kind === 'restart') {
          await one.close()
          nodes[event.by] = createProjectingNode(database)
        }
      }
      for (const one of nodes) await one.project()
      await projectNext(database)
      const found = await projections()
      await projectAllAnew()
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
  'the batches of a failed round are added once, whether it was committed or not (it was: %s)',
  async (isCommitted) => {
    const { database } = server
    await empty([...TABLES, ...STORED])
    const one = createProjectingNode(database)
    const input = fc.sample(someMessage, { numRuns: 4, seed: SAMPLE_SEED }).map(toMessage)
    const publish = () => Promise.all(input.map((message) => one.publish(message)))
    await publish()
    await one.project()
    await publish()
    await expect(projectNext(failing(isCommitted), one.own)).rejects.toThrow('lost')
    await publish()
    await one.project()
    await projectNext(database)
    const found = await projections()
    await projectAllAnew()
    expect(found).toEqual(await projections())
    await one.close()
  },
)
