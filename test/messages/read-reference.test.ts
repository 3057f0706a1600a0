/** The reader against the plainest reading of the same messages: every page and total of any query agrees. */
import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { IncomingMessage, MessagesQuery } from '#api/messages/index.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { WAYS_TO_PROJECT, startProjectingMessages } from './projecting.ts'
import type { WayToProject } from './projecting.ts'
import { projectionDifferences } from './projection-differences.ts'

let server: TestDatabase
let messages: Awaited<ReturnType<typeof startProjectingMessages>>

beforeAll(async () => {
  server = await createTestDatabase()
  messages = await startProjectingMessages(server.database)
})
afterAll(async () => {
  await messages.close()
  await server[Symbol.asyncDispose]()
})

/** In the middle of a quarter of an hour. */
const START_SECONDS = 1_700_000_550
const HOUR_SECONDS = 3600

type Sent = {
  publisher: number
  subtopic: string
  name: string
  unit?: string
  seconds: number
  value: number | string
}

/** Times that meet, that lie beside each other in a message, and that are hours apart. */
const someTime = fc
  .oneof(
    fc.integer({ min: 0, max: 3 }),
    fc.integer({ min: 0, max: 2000 }),
    fc.integer({ min: -HOUR_SECONDS * 5, max: HOUR_SECONDS * 5 }),
  )
  .map((offset) => START_SECONDS + offset)
const someRecord = fc.record({
  name: fc.constantFrom('a', 'b', 'c'),
  // Series of their own that have the name of another.
  unit: fc.constantFrom('', 'V'),
  seconds: someTime,
  value: fc.oneof(fc.integer({ min: 0, max: 5 }), fc.constantFrom('on', 'off')),
})
const messageOf = (records: fc.Arbitrary<Input['records']>) =>
  fc.record({
    publisher: fc.integer({ min: 0, max: 1 }),
    subtopic: fc.constantFrom('', 'x.y'),
    projectedBefore: fc.constantFrom(undefined, ...WAYS_TO_PROJECT),
    records,
  })
/** What devices with one clock send: many messages that end at the same moment, more than a page looks at first. */
const inStep = fc
  .record({
    name: fc.constantFrom('a', 'b', 'c'),
    second: fc.integer({ min: 0, max: 2 }),
    value: fc.integer({ min: 0, max: 5 }),
  })
  .map(({ name, second, value }) => ({ name, seconds: START_SECONDS + second * 10, value }))
const someMessages = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.array(
      messageOf(
        fc.oneof(
          { weight: 4, arbitrary: fc.array(someRecord, { minLength: 1, maxLength: 12 }) },
          { weight: 1, arbitrary: fc.array(someRecord, { minLength: 60, maxLength: 200 }) },
        ),
      ),
      { minLength: 1, maxLength: 12 },
    ),
  },
  {
    weight: 1,
    arbitrary: fc.array(messageOf(fc.array(inStep, { minLength: 1, maxLength: 8 })), { minLength: 40, maxLength: 60 }),
  },
)
const someQuery = fc.record({
  offset: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 250 }), fc.integer({ min: 0, max: 1500 })),
  limit: fc.integer({ min: 1, max: 100 }),
  dir: fc.constantFrom('asc' as const, 'desc' as const),
  filters: fc.oneof(
    fc.constant({}),
    fc.record({ from: someTime }),
    fc.record({ to: someTime }),
    fc.record({ from: someTime, name: fc.constantFrom('a', 'z') }),
    fc.record({ to: someTime, subtopic: fc.constantFrom('x/y', 'z') }),
    fc.record({ name: fc.constantFrom('a', 'b') }),
    fc.record({ name: fc.constantFrom('a', 'b'), subtopic: fc.constantFrom('x/y', 'z'), from: someTime, to: someTime }),
    fc.record({ v: fc.integer({ min: 0, max: 5 }) }),
  ),
  publisher: fc.oneof(fc.constant(undefined), fc.constant(undefined), fc.integer({ min: 0, max: 2 })),
})

function matches(sent: Sent, query: { from?: number; to?: number; name?: string; subtopic?: string; v?: number }) {
  if (query.from !== undefined && sent.seconds < query.from) return false
  if (query.to !== undefined && sent.seconds >= query.to) return false
  if (query.name !== undefined && sent.name !== query.name) return false
  if (query.subtopic !== undefined && sent.subtopic !== query.subtopic.replace('/', '.')) return false
  return query.v === undefined || sent.value === query.v
}

/** By time; of equal times the message that was sent later is newer, and the records of one keep their order. */
function reference(sent: readonly Sent[][], dir: 'asc' | 'desc'): Sent[] {
  const ordered = dir === 'asc' ? sent : sent.toReversed()
  const sign = dir === 'asc' ? 1 : -1
  return ordered.flat().toSorted((left, right) => sign * (left.seconds - right.seconds))
}

let lastKey = 50_000

type Input = {
  publisher: number
  subtopic: string
  projectedBefore: WayToProject | undefined
  records: { name: string; unit?: string; seconds: number; value: number | string }[]
}

function newChannel() {
  const channelKey = ++lastKey
  const domainKey = ++lastKey
  const publishers = [0, 1].map(() => ({ publisherKey: ++lastKey, publisherId: randomUUID() }))
  const accessOf = (publisher: number) => ({
    domainKey,
    domainId: 'domain',
    channelKey,
    channelId: 'channel',
    retentionDays: null,
    ...(publishers[publisher] as { publisherKey: number; publisherId: string }),
  })
  return { accessOf, publisherId: (publisher: number) => publishers[publisher]?.publisherId ?? randomUUID() }
}

async function publish({ publisher, subtopic, records }: Input, { accessOf }: ReturnType<typeof newChannel>) {
  const content: IncomingMessage['content'] = {
    kind: 'records',
    records: records.map(({ name, unit = '', seconds, value }) => ({
      name,
      unit,
      timeSeconds: seconds,
      value: typeof value === 'number' ? value : undefined,
      stringValue: typeof value === 'string' ? value : undefined,
      boolValue: undefined,
      dataValue: undefined,
      sum: undefined,
      updateTimeSeconds: undefined,
    })),
  }
  const access = accessOf(publisher)
  await messages.publish({ access, subtopic, protocol: 'http', receivedAtSeconds: START_SECONDS, content })
}

/** Of each series the newest record; of equal times that of the later message, and of one message the earlier. */
async function expectLatest(channel: ReturnType<typeof newChannel>, sent: readonly Sent[][]) {
  const newest = new Map<string, Sent>()
  for (const message of sent) {
    const best = new Map<string, Sent>()
    for (const record of message) {
      const id = JSON.stringify([record.publisher, record.subtopic, record.name, record.unit ?? ''])
      const known = best.get(id)
      if (known === undefined || record.seconds > known.seconds) best.set(id, record)
    }
    for (const [id, record] of best) {
      const known = newest.get(id)
      if (known === undefined || record.seconds >= known.seconds) newest.set(id, record)
    }
  }
  const found = await messages.readLatest(channel.accessOf(0), { offset: 0, limit: 1000 })
  const order = (lines: string[]) => lines.toSorted()
  expect(
    order(
      found.messages.map(({ name, unit, time, value, string_value }) =>
        JSON.stringify([name, unit ?? '', time, value ?? string_value]),
      ),
    ),
  ).toEqual(
    order(
      [...newest.values()].map(({ name, unit = '', seconds, value }) => JSON.stringify([name, unit, seconds, value])),
    ),
  )
}

type Query = {
  offset: number
  limit: number
  dir: 'asc' | 'desc'
  filters: { from?: number; to?: number; name?: string; subtopic?: string; v?: number }
  publisher: number | undefined
}

/** `arrive` is called after each message, with how many follow it. */
async function expectAgreement(
  input: readonly Input[],
  queries: readonly Query[],
  arrive: (following: number) => Promise<void> = () => Promise.resolve(),
) {
  const channel = newChannel()
  const sent: Sent[][] = []
  for (const message of input) {
    if (message.projectedBefore !== undefined) await messages.project(message.projectedBefore)
    // One after the other: which of two messages is the later one is known then.
    await publish(message, channel)
    const { publisher, subtopic, records } = message
    sent.push(records.map((record) => ({ publisher, subtopic, ...record })))
    await arrive(input.length - sent.length)
  }
  for (const query of queries) {
    const { publisher, filters, ...page } = query
    const expected = reference(sent, query.dir).filter(
      (record) => matches(record, filters) && (publisher === undefined || record.publisher === publisher),
    )
    const asked = {
      format: 'messages',
      ...page,
      ...filters,
      ...(publisher === undefined ? {} : { publisher: channel.publisherId(publisher) }),
    } as MessagesQuery
    const found = await messages.read(channel.accessOf(0), asked)
    expect(found.total).toBe(expected.length)
    const shown = found.messages.map(({ time, name, value, string_value }) => [time, name, value ?? string_value])
    const wanted = expected.slice(query.offset, query.offset + query.limit)
    expect(shown).toEqual(wanted.map(({ seconds, name, value }) => [seconds, name, value]))
  }
  await expectLatest(channel, sent)
}

test('every page and total agrees with the plain order of the sent messages, whatever is projected', async () => {
  await fc.assert(
    fc.asyncProperty(someMessages, fc.array(someQuery, { minLength: 4, maxLength: 8 }), (input, queries) =>
      expectAgreement(input, queries),
    ),
    { numRuns: 60, interruptAfterTimeLimit: 60_000 },
  )
}, 120_000)

/** So many times further apart: hours become weeks. */
const APART = 200
const apart = (seconds: number) => START_SECONDS + (seconds - START_SECONDS) * APART

test('every page and total agrees for any weeks and retention classes of arrival, and any times', async () => {
  const { pool } = server.database
  await pool.query(`SELECT create_message_partitions(now() - interval '20 weeks', now())`)
  /** The last batch arrived so many weeks earlier, in another class. */
  const arriveEarlier = async (weeks: number) => {
    await pool.query(
      `UPDATE records SET arrived_at = arrived_at - make_interval(weeks => $1), retention_days = CASE $1 % 3 WHEN 0 THEN 0 ELSE 365 END
                       WHERE batch_seq = (SELECT max(seq) FROM ingest_batches)`,
      [weeks],
    )
    await pool.query(
      `UPDATE ingest_batches SET arrived_at = arrived_at - make_interval(weeks => $1)
                       WHERE seq = (SELECT max(seq) FROM ingest_batches)`,
      [weeks],
    )
  }
  const fewMessages = fc.array(
    messageOf(fc.array(someRecord, { minLength: 1, maxLength: 12 })).map((message) => ({
      ...message,
      projectedBefore: message.projectedBefore === undefined ? undefined : ('tables' as const),
      records: message.records.map((record) => ({ ...record, seconds: apart(record.seconds) })),
    })),
    { minLength: 1, maxLength: 15 },
  )
  const farQuery = someQuery.map((query) => {
    const { from, to, ...filters }: Query['filters'] = query.filters
    const range = {
      ...(from === undefined ? {} : { from: apart(from) }),
      ...(to === undefined ? {} : { to: apart(to) }),
    }
    return { ...query, limit: Math.ceil(query.limit / 10), filters: { ...filters, ...range } }
  })
  await fc.assert(
    fc.asyncProperty(fewMessages, fc.array(farQuery, { minLength: 6, maxLength: 10 }), (input, queries) =>
      expectAgreement(input, queries, arriveEarlier),
    ),
    { numRuns: 40, interruptAfterTimeLimit: 60_000 },
  )
  await messages.project('tables')
  expect(await projectionDifferences(server.database.db)).toEqual([])
}, 120_000)

test('a page inside a quarter of an hour with very many records agrees', async () => {
  const channel = newChannel()
  const sent: Sent[][] = []
  const quarterSeconds = Math.ceil(START_SECONDS / 900) * 900
  for (let turn = 0; turn < 30; turn++) {
    const records = Array.from({ length: 7_000 }, (_, index) => ({
      name: index % 3 === 0 ? 'a' : 'b',
      seconds: quarterSeconds + ((index * 7 + turn) % 890) + 0.25,
      value: index,
    }))
    await publish({ publisher: 0, subtopic: '', projectedBefore: undefined, records }, channel)
    sent.push(records.map((record) => ({ publisher: 0, subtopic: '', ...record })))
    if (turn === 20) await messages.project('own')
  }
  for (const dir of ['desc', 'asc'] as const) {
    const all = reference(sent, dir)
    for (const filters of [{}, { from: quarterSeconds + 10.5, to: quarterSeconds + 800.1 }, { name: 'a' }]) {
      const wanted = all.filter((record) => matches(record, filters))
      for (const offset of [100, 9_999, 60_000, wanted.length - 5, wanted.length]) {
        const query = { format: 'messages', offset, limit: 20, dir, ...filters } as MessagesQuery
        const found = await messages.read(channel.accessOf(0), query)
        expect(found.total).toBe(wanted.length)
        expect(found.messages.map(({ time, name, value }) => [time, name, value])).toEqual(
          wanted.slice(offset, offset + 20).map(({ seconds, name, value }) => [seconds, name, value]),
        )
      }
    }
  }
}, 120_000)

const AGGREGATIONS = ['sum', 'avg', 'min', 'max', 'count'] as const
const INTERVALS = ['1s', '15m', '45 minutes', '1 hour', '1 day', '1 month'] as const
/** Decimals whose doubles give another sum in another order. */
const someValue = fc.constantFrom(0.1, 0.2, 0.3, 1e16, -1e16, 1 / 3, 5e-324, 1.7e308, -1.7e308)

test('aggregates are exact to the last bit, whatever is projected, and equal those of the plain records', async () => {
  const someNumbers = fc.array(
    fc.record({
      publisher: fc.integer({ min: 0, max: 1 }),
      subtopic: fc.constant(''),
      projectedBefore: fc.constantFrom(undefined, ...WAYS_TO_PROJECT),
      records: fc.array(fc.record({ name: fc.constantFrom('a', 'b'), seconds: someTime, value: someValue }), {
        minLength: 1,
        maxLength: 30,
      }),
    }),
    { minLength: 1, maxLength: 8 },
  )
  const someAggregation = fc.record({
    aggregation: fc.constantFrom(...AGGREGATIONS),
    interval: fc.constantFrom(...INTERVALS),
    tz: fc.constantFrom('UTC', 'Asia/Kathmandu'),
    from: someTime,
    // Ranges that end between records of a quarter of an hour, and long ones.
    length: fc.oneof(fc.integer({ min: 1, max: 1500 }), fc.integer({ min: 1, max: 40_000 })),
    name: fc.constantFrom(undefined, undefined, 'a'),
  })
  await fc.assert(
    fc.asyncProperty(someNumbers, fc.array(someAggregation, { minLength: 2, maxLength: 5 }), async (input, asked) => {
      const channel = newChannel()
      for (const message of input) {
        if (message.projectedBefore !== undefined) await messages.project(message.projectedBefore)
        await publish(message, channel)
      }
      const queries = asked.map(
        ({ length, name, ...query }) =>
          ({
            format: 'messages',
            offset: 0,
            limit: 1000,
            to: query.from + length,
            ...query,
            ...(name === undefined ? {} : { name }),
          }) as MessagesQuery,
      )
      const readAll = () => Promise.all(queries.map((query) => messages.read(channel.accessOf(0), query)))
      const before = await readAll()
      // By the sums in memory, then what they do not have, from the tables.
      for (const way of ['own', 'tables'] as const) {
        await messages.project(way)
        expect(await readAll()).toEqual(before)
      }
      // Rollups know no protocols: with one, the records alone answer.
      for (const [index, query] of queries.entries())
        expect(await messages.read(channel.accessOf(0), { ...query, protocol: 'http' })).toEqual({
          ...before[index],
          protocol: 'http',
        })
      // Pages of a few are parts of the whole, from either end.
      for (const [index, query] of queries.entries()) {
        const whole = before[index]?.messages ?? []
        for (const dir of ['desc', 'asc'] as const) {
          const all = dir === 'desc' ? whole : (await messages.read(channel.accessOf(0), { ...query, dir })).messages
          for (const offset of [0, 2, 40]) {
            const page = await messages.read(channel.accessOf(0), { ...query, dir, offset, limit: 3 })
            expect(page.messages).toEqual(all.slice(offset, offset + 3))
            expect(page.total).toBe(whole.length)
          }
        }
      }
      for (const [index, query] of queries.entries()) {
        const matching = input
          .flatMap(({ records }) => records)
          .filter(({ name }) => query.name === undefined || name === query.name)
          .filter(({ seconds }) => seconds >= (query.from as number) && seconds < (query.to as number))
        const shown = before[index]?.messages ?? []
        if (query.aggregation === 'count')
          expect(shown.reduce((sum, row) => sum + (row.value ?? 0), 0)).toBe(matching.length)
        if (query.aggregation === 'max' && matching.length > 0)
          expect(Math.max(...shown.map((row) => row.value as number))).toBe(
            Math.max(...matching.map(({ value }) => value)),
          )
      }
    }),
    { numRuns: 40, interruptAfterTimeLimit: 60_000 },
  )
}, 120_000)
