/** Deleting stored messages (contract decision 54): any sequence of publishing, projecting, deleting and reading agrees with a plain list. */
import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { IncomingMessage, MessagesQuery } from '#api/messages/index.ts'
import { deleteMessages, snapshotNow } from '../../api/messages/deletion/steps.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import { WAYS_TO_PROJECT, startProjectingMessages } from './projecting.ts'

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

const START_SECONDS = 1_700_000_550
let lastKey = 50_000

type Sent = { publisher: number; name: string; seconds: number; value: number | string; format: string }
type Range = { from?: number | undefined; to?: number | undefined; publisher?: number | undefined }

function newChannel() {
  const [channelKey, domainKey] = [++lastKey, ++lastKey]
  const publishers = [0, 1].map(() => ({ publisherKey: ++lastKey, publisherId: randomUUID() as string }))
  return {
    channelKey,
    publisherIds: publishers.map(({ publisherId }) => publisherId),
    accessOf: (publisher: number) => ({
      domainKey,
      domainId: 'domain',
      channelKey,
      channelId: 'channel',
      retentionDays: [null, 7][publisher] ?? null,
      ...(publishers[publisher] as { publisherKey: number; publisherId: string }),
    }),
  }
}
type Channel = ReturnType<typeof newChannel>

async function publishRecords(channel: Channel, publisher: number, sent: readonly Omit<Sent, 'publisher'>[]) {
  const nothing = { boolValue: undefined, dataValue: undefined, sum: undefined, updateTimeSeconds: undefined }
  const content: IncomingMessage['content'] = {
    kind: 'records',
    records: sent.map(({ name, seconds, value }) => ({
      ...nothing,
      name,
      unit: '',
      timeSeconds: seconds,
      value: typeof value === 'number' ? value : undefined,
      stringValue: typeof value === 'string' ? value : undefined,
    })),
  }
  const access = channel.accessOf(publisher)
  await messages.publish({ access, subtopic: '', protocol: 'http', receivedAtSeconds: START_SECONDS, content })
}

async function publishRaw(channel: Channel, publisher: number, seconds: number, text: string) {
  const content: IncomingMessage['content'] = { kind: 'raw', contentType: 'text/plain', body: Buffer.from(text) }
  const access = channel.accessOf(publisher)
  await messages.publish({ access, subtopic: '', protocol: 'http', receivedAtSeconds: seconds, content })
}

async function remove(channel: Channel, { from, to, publisher }: Range) {
  const snapshot = await server.database.transaction(snapshotNow)
  const publisherId = publisher === undefined ? undefined : channel.publisherIds[publisher]
  const target = { channelKey: channel.channelKey, fromSeconds: from, toSeconds: to, publisherId }
  await deleteMessages(server.database, target, snapshot)
}

const isIn = (sent: Sent, { from, to, publisher }: Range) =>
  (from === undefined || sent.seconds >= from) &&
  (to === undefined || sent.seconds < to) &&
  (publisher === undefined || sent.publisher === publisher)

async function readAll(channel: Channel, query: Partial<MessagesQuery>) {
  const asked = { format: 'messages', offset: 0, limit: 1000, dir: 'asc', ...query } as MessagesQuery
  return await messages.read(channel.accessOf(0), asked)
}

const someTime = fc
  .oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 2000 }), fc.integer({ min: -18_000, max: 18_000 }))
  .map((offset) => START_SECONDS + offset)
const somePublisher = fc.integer({ min: 0, max: 1 })
const someStep = fc.oneof(
  fc.record({
    kind: fc.constant('publish' as const),
    publisher: somePublisher,
    records: fc.array(
      fc.record({
        name: fc.constantFrom('a', 'b', 'c'),
        seconds: someTime,
        value: fc.constantFrom(0.1, 0.2, 1e16, -1e16, 1 / 3, 'on'),
        format: fc.constant('messages'),
      }),
      { minLength: 1, maxLength: 40 },
    ),
  }),
  fc.record({ kind: fc.constant('raw' as const), publisher: somePublisher, seconds: someTime, text: fc.string() }),
  fc.record({ kind: fc.constant('project' as const), way: fc.constantFrom(...WAYS_TO_PROJECT) }),
  fc.record({
    kind: fc.constant('delete' as const),
    range: fc
      .record({
        from: fc.option(someTime, { nil: undefined }),
        to: fc.option(someTime, { nil: undefined }),
        publisher: fc.option(somePublisher, { nil: undefined }),
      })
      .filter(({ from, to, publisher }) => from !== undefined || to !== undefined || publisher !== undefined),
  }),
)

/** What the reader says of the whole channel: pages, totals and every aggregate. */
async function everything(channel: Channel) {
  const range = { from: START_SECONDS - 20_000, to: START_SECONDS + 20_000 }
  const aggregates = await Promise.all(
    (['sum', 'avg', 'min', 'max', 'count'] as const).map((aggregation) =>
      readAll(channel, { ...range, aggregation, interval: '15m' }),
    ),
  )
  const pages = await Promise.all([
    readAll(channel, {}),
    readAll(channel, { name: 'a' }),
    readAll(channel, { publisher: channel.publisherIds[1] as string }),
    readAll(channel, { from: START_SECONDS, to: START_SECONDS + 1000 }),
    readAll(channel, { format: 'raw' }),
  ])
  return [...pages, ...aggregates]
}

test('any sequence of publishing, projecting and deleting reads like a plain list, to the last bit of every aggregate', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(someStep, { minLength: 2, maxLength: 12 }), async (steps) => {
      const channel = newChannel()
      let stored: Sent[][] = []
      for (const step of steps) {
        if (step.kind === 'project') await messages.project(step.way)
        if (step.kind === 'publish') {
          await publishRecords(channel, step.publisher, step.records)
          stored.push(step.records.map((record) => ({ publisher: step.publisher, ...record })))
        }
        if (step.kind === 'raw') {
          const { publisher, seconds, text } = step
          await publishRaw(channel, publisher, seconds, text)
          stored.push([{ publisher, seconds, name: '', value: text, format: 'raw' }])
        }
        if (step.kind === 'delete') {
          await remove(channel, step.range)
          stored = stored.map((message) => message.filter((sent) => !isIn(sent, step.range)))
        }
      }
      const expected = stored.flat().toSorted((left, right) => left.seconds - right.seconds)
      const records = await readAll(channel, {})
      expect(records.total).toBe(expected.filter(({ format }) => format === 'messages').length)
      expect(
        records.messages.map(({ time, name, value, string_value }) => [time, name, value ?? string_value]),
      ).toEqual(
        expected
          .filter(({ format }) => format === 'messages')
          .map(({ seconds, name, value }) => [seconds, name, value]),
      )
      const latest = await messages.readLatest(channel.accessOf(0), { offset: 0, limit: 1000 })
      expect(latest.messages.map(latestOf).toSorted()).toEqual(newestOf(channel, stored))
      expect(latest.total).toBe(latest.messages.length)
      const raw = await readAll(channel, { format: 'raw' })
      expect(raw.messages.map(({ created, payload }) => [created, payload])).toEqual(
        expected
          .filter(({ format }) => format === 'raw')
          .map(({ seconds, value }) => [seconds, Buffer.from(value as string).toString('base64')]),
      )
      // The same is published once more into a fresh channel, as if nothing had been deleted there: all answers agree.
      const fresh = { ...newChannel(), publisherIds: channel.publisherIds }
      const freshAccess = fresh.accessOf
      fresh.accessOf = (publisher) => ({
        ...freshAccess(publisher),
        publisherId: channel.publisherIds[publisher] as string,
      })
      for (const message of stored) {
        const [first] = message
        if (first === undefined) continue
        if (first.format === 'raw') await publishRaw(fresh, first.publisher, first.seconds, first.value as string)
        else await publishRecords(fresh, first.publisher, message)
      }
      const before = await everything(channel)
      expect(sorted(before)).toEqual(sorted(await everything(fresh)))
      for (const way of ['own', 'tables'] as const) {
        await messages.project(way)
        expect(await everything(channel)).toEqual(before)
      }
      expect(await messages.readLatest(channel.accessOf(0), { offset: 0, limit: 1000 })).toEqual(latest)
    }),
    { numRuns: 60, interruptAfterTimeLimit: 60_000 },
  )
}, 120_000)

const latestOf = ({ publisher, name, time, value, string_value }: Record<string, unknown>) =>
  JSON.stringify([publisher, name, time, value ?? string_value])

/** Of each series the first that a page of it shows: of equal times what was sent later, within a message what stands first. */
function newestOf(channel: Channel, stored: readonly Sent[][]): string[] {
  const newest = new Map<string, Sent>()
  const shown = stored
    .toReversed()
    .flat()
    .toSorted((left, right) => right.seconds - left.seconds)
  for (const sent of shown) {
    const series = `${sent.publisher} ${sent.name}`
    if (sent.format === 'messages' && !newest.has(series)) newest.set(series, sent)
  }
  return [...newest.values()]
    .map(({ publisher, name, seconds, value }) =>
      latestOf({ publisher: channel.publisherIds[publisher], name, time: seconds, value }),
    )
    .toSorted()
}

/** Series are numbered as they come, which is no part of the answer to an aggregation. */
function sorted(pages: Awaited<ReturnType<typeof everything>>) {
  return pages.map(({ total, aggregation, messages: shown }) => {
    const texts = shown.map((message) => JSON.stringify(message))
    return { total, shown: aggregation === undefined ? texts : texts.toSorted() }
  })
}

test('messages that are published during a deletion are neither lost nor counted twice', async () => {
  const channel = newChannel()
  const old = Array.from({ length: 200 }, (_, index) => ({
    name: 'a',
    seconds: START_SECONDS + index * 60,
    value: 1,
    format: 'messages',
  }))
  await publishRecords(channel, 0, old)
  const snapshot = await server.database.transaction(snapshotNow)
  const target = { channelKey: channel.channelKey, fromSeconds: 0, toSeconds: undefined, publisherId: undefined }
  const later = Array.from({ length: 40 }, async (_, index) => {
    await publishRecords(channel, index % 2, [
      { name: 'a', seconds: START_SECONDS + index * 300, value: 2, format: 'messages' },
    ])
    if (index % 5 === 0) await messages.project(index % 2 === 0 ? 'own' : 'tables')
  })
  await Promise.all([deleteMessages(server.database, target, snapshot), ...later])
  const range = { from: 1, to: START_SECONDS + 100_000, aggregation: 'sum', interval: '1 year' } as const
  for (const way of [undefined, 'own', 'tables'] as const) {
    if (way !== undefined) await messages.project(way)
    expect((await readAll(channel, {})).total).toBe(40)
    const sums = (await readAll(channel, range)).messages.map(({ value }) => value)
    expect(sums.reduce((sum = 0, value = 0) => sum + value, 0)).toBe(80)
  }
})
