/** SessionDelivery messages: once for each follower, in order per publisher, whatever process took them; nothing is missed. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { formatToken, parseContent, startMessages } from '#api/messages/index.ts'
import type { Delivery, FollowerOptions, IncomingMessage, Messages } from '#api/messages/index.ts'
import { createLocalBus } from '#core/bus/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase, silentLogger as logger } from '../harness/database.ts'
import { aNode } from '../harness/node.ts'

let server: TestDatabase
/** Two processes of one installation that hear nothing of each other but through the database. */
let here: Messages
let elsewhere: Messages

beforeAll(async () => {
  server = await createTestDatabase()
  const start = () =>
    startMessages({
      database: server.database,
      node: aNode(server.database),
      logger,
      bus: createLocalBus(),
      hasRoom: () => true,
      projectorIntervalMs: 20,
    })
  here = await start()
  elsewhere = await start()
})
afterAll(async () => {
  await Promise.all([here.close(), elsewhere.close()])
  await server[Symbol.asyncDispose]()
})

let lastKey = 1000

function newAccess(): IncomingMessage['access'] {
  lastKey += 3
  return {
    domainKey: lastKey,
    domainId: randomUUID(),
    channelKey: lastKey + 1,
    channelId: randomUUID(),
    publisherKey: lastKey + 2,
    publisherId: randomUUID(),
    retentionDays: null,
  }
}

function aMessage(
  access: IncomingMessage['access'],
  text: string,
  { subtopic = '', contentType = 'text/plain', keepsBytes = true } = {},
): IncomingMessage {
  const body = Buffer.from(text)
  const receivedAtSeconds = Date.now() / 1000
  const content = parseContent(contentType, body, { subtopic, receivedAtSeconds })
  return {
    access,
    subtopic,
    protocol: 'http',
    receivedAtSeconds,
    content,
    ...(keepsBytes ? { original: { contentType, body } } : {}),
  }
}

type Reader = { got: Delivery[]; texts: () => string[]; ends: string[]; close(): void }

async function follow(
  messages: Messages,
  access: IncomingMessage['access'],
  { filter = '>', after, ...options }: Partial<FollowerOptions> & { after?: string } = {},
): Promise<Reader> {
  const got: Delivery[] = []
  const ends: string[] = []
  const { close } = await messages.follow(
    {
      access,
      filter,
      authorize: () => Promise.resolve(),
      deliver: (deliveries) => got.push(...deliveries),
      onEnd: (reason) => ends.push(reason),
      ...options,
    },
    after,
  )
  return { got, ends, texts: () => got.map(({ message }) => message.payload.toString()), close }
}

/** A follower that catches up sees everything that is stored now: no earlier transaction of any database is running. */
async function settled(): Promise<void> {
  const snapshot = async () => {
    const { rows } = await sql<{ begins: string; ends: string }>`
      SELECT pg_snapshot_xmin(now)::text AS begins, pg_snapshot_xmax(now)::text AS ends FROM position_snapshot() now`.execute(
      server.database.db,
    )
    return { begins: BigInt(rows[0]?.begins ?? 0), ends: BigInt(rows[0]?.ends ?? 0) }
  }
  const { ends } = await snapshot()
  await expect.poll(async () => (await snapshot()).begins >= ends).toBe(true)
}

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => String(from + index))

test('a message reaches the followers of its process and of every other, once', async () => {
  const access = newAccess()
  const readers = [await follow(here, access), await follow(elsewhere, access), await follow(here, access)]
  for (const text of numbers(0, 50)) await here.publish(aMessage(access, text))
  for (const reader of readers) {
    await expect.poll(reader.texts).toEqual(numbers(0, 50))
    reader.close()
  }
  await here.publish(aMessage(access, 'after the end'))
  expect(readers.map((reader) => reader.got.length)).toEqual([50, 50, 50])
  expect(readers.map((reader) => reader.ends)).toEqual([['closed'], ['closed'], ['closed']])
})

test('the messages of each publisher through either process arrive in order', async () => {
  const channel = newAccess()
  const reader = await follow(here, channel)
  await Promise.all(
    [here, elsewhere, here, elsewhere].map(async (node, publisher) => {
      const access = { ...channel, publisherKey: ++lastKey, publisherId: `p${publisher}` }
      for (const text of numbers(0, 100)) await node.publish(aMessage(access, text))
    }),
  )
  await expect.poll(() => reader.got.length).toBe(400)
  for (const publisher of ['p0', 'p1', 'p2', 'p3']) {
    const mine = reader.got.filter(({ message }) => message.publisherId === publisher)
    expect(mine.map(({ message }) => message.payload.toString())).toEqual(numbers(0, 100))
  }
  reader.close()
})

test('a follower receives only messages of its channel and subtopic', async () => {
  const [access, other] = [newAccess(), newAccess()]
  const readers = await Promise.all(['>', '', 'a.*', 'a.>'].map((filter) => follow(here, access, { filter })))
  for (const subtopic of ['', 'a', 'a.b', 'a.b.c', 'd'])
    await here.publish(aMessage(access, subtopic || 'root', { subtopic }))
  await here.publish(aMessage(other, 'other'))
  const wanted = [['root', 'a', 'a.b', 'a.b.c', 'd'], ['root'], ['a.b'], ['a', 'a.b', 'a.b.c']]
  for (const [index, reader] of readers.entries()) {
    await expect.poll(reader.texts).toEqual(wanted[index])
    reader.close()
  }
})

test('a follower that reconnects with the id of an event misses nothing and gets no message twice', async () => {
  const access = newAccess()
  const first = await follow(here, access)
  let sent = 0
  let isPublishing = true
  const publishing = [here, elsewhere].map(async (node) => {
    while (isPublishing) await node.publish(aMessage(access, String(sent++)))
  })
  await expect.poll(() => first.got.length).toBeGreaterThan(50)
  // The id of a message that ended a step, so that everything before it was given.
  const ids = first.got.map(({ token }) => formatToken(token))
  const place = ids.findLastIndex((id, index) => id !== ids[index - 1] && index > 20)
  const before = first.texts().slice(0, place + 1)
  first.close()
  await expect.poll(() => sent).toBeGreaterThan(1000)
  const second = await follow(elsewhere, access, { after: ids[place] as string })
  await expect.poll(() => second.got.length).toBeGreaterThan(500)
  isPublishing = false
  await Promise.all(publishing)
  const all = numbers(0, sent)
  await expect.poll(() => new Set([...before, ...second.texts()]).size).toBe(sent)
  expect([...before, ...second.texts()].toSorted((left, right) => Number(left) - Number(right))).toEqual(all)
  second.close()
})

test('a follower that caught up beyond a running read gets none of its messages twice', async () => {
  const access = newAccess()
  let opened = Promise.withResolvers<void>()
  opened.resolve()
  let held = 0
  const { database } = server
  const slow = Object.assign(Object.create(database) as typeof database, {
    // Its connection for the log gives back what it read when it is let.
    async dedicated(...args: Parameters<typeof database.dedicated>) {
      const client = await database.dedicated(...args)
      if (args[0] !== 'skein live messages') return client
      const query = client.query.bind(client) as (...of: unknown[]) => Promise<unknown>
      const later = async (...of: unknown[]) => {
        const found = await query(...of)
        held++
        await opened.promise
        held--
        return found
      }
      return Object.assign(client, { query: later })
    },
  })
  const node = await startMessages({
    database: slow,
    node: aNode(server.database),
    logger,
    bus: createLocalBus(),
    hasRoom: () => true,
    projectorIntervalMs: 20,
  })
  const first = await follow(node, access)
  await elsewhere.publish(aMessage(access, 'first'))
  await expect.poll(first.texts).toEqual(['first'])
  opened = Promise.withResolvers<void>()
  await expect.poll(() => held).toBe(1)
  await elsewhere.publish(aMessage(access, 'second'))
  await settled()
  const back = await follow(node, access, { after: formatToken((first.got[0] as Delivery).token) })
  await expect.poll(back.texts).toEqual(['second'])
  opened.resolve()
  await elsewhere.publish(aMessage(access, 'third'))
  for (const [reader, texts] of [
    [first, ['first', 'second', 'third']],
    [back, ['second', 'third']],
  ] as const)
    await expect.poll(() => reader.texts()).toEqual(texts)
  await node.close()
})

test('live messages keep their bytes; stored packs are resolved and stored JSON keeps its text', async () => {
  const access = newAccess()
  const pack = '[{"bn":"urn:dev:1:","bt":1700000000,"n":"v","u":"V","v":120.1},{"n":"on","vb":true}]'
  const resolved =
    '[{"n":"urn:dev:1:v","u":"V","t":1700000000,"v":120.1},{"n":"urn:dev:1:on","t":1700000000,"vb":true}]'
  const [near, far] = [await follow(here, access), await follow(elsewhere, access)]
  await here.publish(aMessage(access, pack, { contentType: 'application/senml+json' }))
  await here.publish(aMessage(access, '{"a": 1.10}', { contentType: 'application/json' }))
  await here.publish(aMessage(access, '[{"a":1},{"b":2}]', { contentType: 'application/json' }))
  await expect.poll(near.texts).toEqual([pack, '{"a": 1.10}', '[{"a":1},{"b":2}]'])
  await expect.poll(far.texts).toEqual([resolved, '{"a": 1.10}', '[{"a":1},{"b":2}]'])
  expect(far.got.map(({ message }) => message.contentType)).toEqual([
    'application/senml+json',
    'application/json',
    'application/json',
  ])
  for (const reader of [near, far]) reader.close()
})

test('a follower that loses its rights gets an error and no more messages', async () => {
  const access = newAccess()
  let isAllowed = true
  const reader = await follow(here, access, {
    authorize: () => (isAllowed ? Promise.resolve() : Promise.reject(new ServiceError('forbidden', 'not connected'))),
  })
  await here.publish(aMessage(access, 'one'))
  await expect.poll(reader.texts).toEqual(['one'])
  isAllowed = false
  await expect.poll(() => reader.ends).toEqual(['forbidden'])
  await here.publish(aMessage(access, 'two'))
  const other = await follow(here, access)
  await here.publish(aMessage(access, 'three'))
  await expect.poll(other.texts).toEqual(['three'])
  expect(reader.texts()).toEqual(['one'])
  other.close()
})

test('a broken database connection loses no message', async () => {
  const access = newAccess()
  const reader = await follow(here, access)
  await here.publish(aMessage(access, 'before'))
  await expect.poll(reader.texts).toEqual(['before'])
  await server.database.pool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'skein live messages'`,
  )
  for (const text of numbers(0, 20)) await elsewhere.publish(aMessage(access, text))
  await expect.poll(reader.texts).toEqual(['before', ...numbers(0, 20)])
  reader.close()
})

test.each(['', 'x', '1:2:3', '-1', '1~', '1~2', '99999999999999999999999', '1:a', '1 2'])(
  '%j is not the id of an event',
  async (after) => {
    await expect(follow(here, newAccess(), { after })).rejects.toMatchObject({ kind: 'malformed' })
  },
)
