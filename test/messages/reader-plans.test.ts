/** The plans of the reader are those of docs/query-plans.md, section Messages: of each statement that a read sends. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createReader } from '#api/messages/index.ts'
import type { LatestQuery, MessagesQuery } from '#api/messages/index.ts'
import { sql } from '#core/sql.ts'
import type { Statement } from '#core/sql.ts'
import { Transaction } from '../../core/database/transaction.ts'
import { ROOT } from '../architecture/source-imports.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { startProjectingMessages } from './projecting.ts'

const START_SECONDS = 1_700_000_100
const MESSAGES = 300
const RUN = '6f9619ff-8b86-4d01-b42d-00cf4fc964ff'
const access = {
  domainKey: 1,
  domainId: 'domain',
  channelKey: 1,
  channelId: 'channel',
  publisherKey: 1,
  publisherId: 'publisher',
  retentionDays: null,
}

let server: TestDatabase

beforeAll(async () => {
  server = await createTestDatabase()
  const messages = await startProjectingMessages(server.database)
  const common = { access, subtopic: 'a.b', protocol: 'http' } as const
  const nothing = { boolValue: undefined, stringValue: undefined, dataValue: undefined, sum: undefined }
  const publish = (index: number, run?: string) => {
    const timeSeconds = START_SECONDS + index * 60
    const record = { ...nothing, name: 'a', unit: '', timeSeconds, value: index, updateTimeSeconds: undefined }
    return messages.publish({
      ...common,
      receivedAtSeconds: timeSeconds,
      content: { kind: 'records', records: [record] },
      ...(run === undefined ? {} : { envelope: { run: { id: run, task: run } } }),
    })
  }
  for (let index = 0; index < MESSAGES; index++) await publish(index, index === MESSAGES / 2 ? RUN : undefined)
  await messages.project('own')
  await publish(MESSAGES)
  const raw = { kind: 'raw', contentType: 'text/plain', body: Buffer.from('x') } as const
  await messages.publish({ ...common, receivedAtSeconds: START_SECONDS, content: raw })
  await messages.close()
  await sql`ANALYZE`.execute(server.database.db)
})
afterAll(() => server[Symbol.asyncDispose]())

type Reader = ReturnType<typeof createReader>

/** Plans of the statements that the read sends, in their order. In tables of few rows the cheapest ways are not the documented ones. */
async function plansOf(read: (reader: Reader) => Promise<unknown>): Promise<string> {
  const plans: string[] = []
  const reader = createReader({
    ...server.database,
    snapshot: (work) =>
      server.database.transaction(async (tx) => {
        await sql`SET LOCAL enable_seqscan = off`.execute(tx)
        await sql`SET LOCAL enable_sort = off`.execute(tx)
        const explaining = {
          async query<Row>(statement: Statement) {
            if (!/^\s*(SELECT|WITH)/.test(statement.text)) return await tx.query<Row>(statement)
            const { text, values } = statement
            const { rows } = await tx.query<{ 'QUERY PLAN': string }>({ text: `EXPLAIN ${text}`, values })
            plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
            return await tx.query<Row>(statement)
          },
        }
        return await work(new Transaction(explaining as never))
      }),
  })
  await read(reader)
  return plans.join('\n---\n')
}

/** The indexes that the block below the heading names, as patterns: `…` stands for the partition. */
function documented(heading: string): RegExp[] {
  const document = readFileSync(join(ROOT, 'docs/query-plans.md'), 'utf8')
  const block = document.split(`### ${heading}\n`)[1]?.split('```')[1] ?? ''
  return [...block.matchAll(/Scan (?:Backward )?(?:using|on) (\S+)/g)].map(
    ([scan]) => new RegExp(scan.replace('…', '\\w+')),
  )
}

const page = (query: Partial<MessagesQuery>) => (reader: Reader) =>
  reader.read(access, { offset: 0, limit: 10, format: 'messages', ...query })
const latest = (query: Partial<LatestQuery>) => (reader: Reader) =>
  reader.latest(access, { offset: 0, limit: 10, ...query })
const [from, to] = [START_SECONDS + 400, START_SECONDS + 9_000]
const means = { aggregation: 'avg', interval: '1h', limit: 1, from, to } as const

test('no read names a partition in which nothing of the channel arrived', async () => {
  const { rows } = await server.database.pool.query<{ present: string }>(
    `SELECT create_message_partitions(now() - interval '26 weeks', now()) AS made,
            to_char(date_trunc('week', now(), 'UTC') AT TIME ZONE 'UTC', 'YYYYMMDD') AS present`,
  )
  for (const read of [
    page({}),
    page({ name: 'a' }),
    page({ from, to }),
    page({ offset: 150 }),
    page({ v: 100, comparator: 'lt' }),
    page({ run: RUN }),
    page({ message: '150/0' }),
    page(means),
    latest({}),
  ]) {
    const weeks = [...(await plansOf(read)).matchAll(/ on (?:records|rollups)_r\d+_(\d{8})/g)].map(([, week]) => week)
    expect(weeks.length).toBeGreaterThan(0)
    // A batch that is not projected yet arrived this week, in whichever class.
    expect(new Set(weeks)).toEqual(new Set([rows[0]?.present]))
  }
})

const BY_TIME = /records_\w+_channel_key_m(?:in|ax)_time_idx/

test('means of a range that begins and ends in a bucket without other records are read from rollups alone', async () => {
  const open = { ...means, from: START_SECONDS - 100, to: START_SECONDS + MESSAGES * 60 + 100 }
  const statementsByTime = async (query: Partial<MessagesQuery>) =>
    (await plansOf(page(query))).split('\n---\n').filter((plan) => BY_TIME.test(plan)).length
  // That of the rest of the buckets.
  expect(await statementsByTime(open)).toBe(1)
  expect(await statementsByTime({ ...open, from: START_SECONDS + 100 })).toBeGreaterThan(1)
  expect(await statementsByTime({ ...open, to: START_SECONDS + MESSAGES * 60 - 100 })).toBeGreaterThan(1)
})

test.each([
  ['The newest page', page({})],
  ['The oldest page', page({ dir: 'asc' })],
  ['A page of some series', page({ name: 'a', subtopic: 'a/b' })],
  ['A range of times', page({ from, to })],
  ['A page that is far away', page({ offset: 150 })],
  ['Messages of a run', page({ run: RUN })],
  ['One message', page({ message: '150/0' })],
  ['Values', page({ v: 100, comparator: 'lt' })],
  ['Means of an hour', page(means)],
  ['JSON and raw messages', page({ format: 'raw', limit: 1 })],
  ['Newest records', latest({})],
])('%s', async (heading, read) => {
  const names = documented(heading)
  const plans = await plansOf(read)
  expect(names.length).toBeGreaterThan(0)
  let rest = plans
  for (const name of names) {
    const found = name.exec(rest)
    expect(found, `${name.source} in\n${plans}`).not.toBeNull()
    rest = rest.slice((found?.index ?? 0) + 1)
  }
})

test('a page without pending batches and filters needs no statement for its total', async () => {
  const statements = async (query: Partial<MessagesQuery>) => (await plansOf(page(query))).split('\n---\n').length
  const pending = await statements({})
  await sql`UPDATE ingest_batches SET projected = true WHERE NOT projected`.execute(server.database.db)
  expect(await statements({})).toBe(pending - 1)
})
