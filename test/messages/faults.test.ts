/** What happens to messages when something breaks: contract section 7.6, mechanisms of ingest. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, connect as connectSocket } from 'node:net'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startMessages } from '#api/messages/index.ts'
import { createLocalBus } from '#core/bus/index.ts'
import type { IncomingMessage, MessageContent, Messages, MessagesDeps } from '#api/messages/index.ts'
import { createDatabase } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase, silentLogger as logger } from '../harness/database.ts'
import { aNode } from '../harness/node.ts'

/** Of our own database: other test files have lanes on the same server. */
const LANE_CONNECTIONS = `datname = current_database() AND application_name LIKE 'skein ingest shard%'`

let server: TestDatabase

beforeAll(async () => {
  server = await createTestDatabase()
})
afterAll(() => server[Symbol.asyncDispose]())

async function withMessages(
  work: (messages: Messages) => Promise<void>,
  deps: Partial<MessagesDeps> = {},
): Promise<void> {
  const messages = await startMessages({
    database: server.database,
    node: aNode(server.database),
    logger,
    bus: createLocalBus(),
    hasRoom: () => true,
    ...deps,
  })
  try {
    await work(messages)
  } finally {
    await messages.close()
  }
}

let lastKey = 1000

/** A device with a channel of its own. */
function newAccess(domainKey = ++lastKey) {
  const channelKey = ++lastKey
  const publisherKey = ++lastKey
  return {
    domainKey,
    domainId: randomUUID(),
    channelKey,
    channelId: randomUUID(),
    publisherKey,
    publisherId: randomUUID(),
    retentionDays: null,
  }
}

function aMessage(access: IncomingMessage['access'], content: MessageContent): IncomingMessage {
  return { access, subtopic: '', protocol: 'http', receivedAtSeconds: Date.now() / 1000, content }
}

function aRecord(name: string, values: { value?: number; stringValue?: string } = { value: 1 }): MessageContent {
  const none = { value: undefined, stringValue: undefined, boolValue: undefined, dataValue: undefined }
  const record = {
    name,
    unit: '',
    timeSeconds: 1.7e9,
    sum: undefined,
    updateTimeSeconds: undefined,
    ...none,
    ...values,
  }
  return { kind: 'records', records: [record] }
}

async function namesOf(messages: Messages, access: IncomingMessage['access']): Promise<string[]> {
  const page = await messages.read(access, { offset: 0, limit: 1000, format: 'messages', dir: 'asc' })
  expect(page.total).toBe(page.messages.length)
  return page.messages.map((message) => message.name ?? '')
}

function kindOf(outcome: PromiseSettledResult<void>): string {
  if (outcome.status === 'fulfilled') return 'stored'
  return outcome.reason instanceof ServiceError ? outcome.reason.kind : String(outcome.reason)
}

test('a message that the database rejects is rejected alone, and its neighbours are stored in order', async () => {
  await withMessages(async (messages) => {
    const access = newAccess()
    const poisoned = new Set([7, 30, 31])
    const outcomes = await Promise.allSettled(
      Array.from({ length: 50 }, (_, index) => {
        const name = `n${String(index).padStart(2, '0')}`
        // No adapter accepts a NUL character; a caller that bypasses the adapters affects only its own message.
        return messages.publish(
          aMessage(access, poisoned.has(index) ? aRecord(name, { stringValue: 'a\0b' }) : aRecord(name)),
        )
      }),
    )
    expect(outcomes.map(kindOf)).toEqual(outcomes.map((_, index) => (poisoned.has(index) ? 'malformed' : 'stored')))
    const expected = outcomes.flatMap((_, index) => (poisoned.has(index) ? [] : [`n${String(index).padStart(2, '0')}`]))
    expect(await namesOf(messages, access)).toEqual(expected)
  })
})

test('after killed connections acknowledged messages are stored once, and refused ones are not', async () => {
  // A busy machine does not make an outcome unknown.
  const patient = { acknowledgeDeadlineMs: 120_000 }
  await withMessages(async (messages) => {
    const accesses = Array.from({ length: 8 }, () => newAccess())
    const outcomes = new Map<string, string>()
    let kills = 0
    let running = true

    async function publisher(access: IncomingMessage['access']): Promise<void> {
      for (let index = 0; running; index++) {
        const name = `n${access.channelKey}-${index}`
        const [outcome] = await Promise.allSettled([messages.publish(aMessage(access, aRecord(name)))])
        outcomes.set(name, kindOf(outcome))
      }
    }

    const publishers = Promise.all(accesses.map((access) => publisher(access)))
    while (kills < 20) {
      const before = outcomes.size
      await expect.poll(() => outcomes.size, { interval: 5 }).toBeGreaterThan(before + 20)
      const { rows } = await server.database.pool.query<{ killed: number }>(
        `SELECT count(pg_terminate_backend(pid)) AS killed FROM pg_stat_activity WHERE ${LANE_CONNECTIONS}`,
      )
      kills += rows[0]?.killed ?? 0
    }
    running = false
    await publishers

    for (const access of accesses) {
      const mine = [...outcomes].filter(([name]) => name.startsWith(`n${access.channelKey}-`))
      const { rows } = await server.database.pool.query<{ name: string }>(
        'SELECT name FROM records JOIN series ON series.key = series_keys[1] WHERE records.channel_key = $1 ORDER BY batch_seq, message',
        [access.channelKey],
      )
      const stored = mine.filter(([, kind]) => kind === 'stored').map(([name]) => name)
      expect(rows.map((row) => row.name)).toEqual(stored)
    }
  }, patient)
}, 180_000)

describe('a COMMIT without an answer', () => {
  test('is looked up: the message is stored once and acknowledged to its publisher', async () => {
    await using link = await startLink(server.address)
    const messages = await startMessages({
      database: link.database,
      node: aNode(server.database),
      logger,
      bus: createLocalBus(),
      hasRoom: () => true,
    })
    try {
      const access = newAccess()
      await messages.publish(aMessage(access, aRecord('first')))
      link.cutAfter('COMMIT')
      await messages.publish(aMessage(access, aRecord('second')))
      expect(link.cuts).toBe(1)
      expect(await namesOf(messages, access)).toEqual(['first', 'second'])
    } finally {
      await messages.close()
    }
  })

  test('that never arrived is written again, once', async () => {
    await using link = await startLink(server.address)
    const messages = await startMessages({
      database: link.database,
      node: aNode(server.database),
      logger,
      bus: createLocalBus(),
      hasRoom: () => true,
    })
    try {
      const access = newAccess()
      await messages.publish(aMessage(access, aRecord('first')))
      link.cutBefore('COMMIT')
      await messages.publish(aMessage(access, aRecord('second')))
      expect(link.cuts).toBe(1)
      expect(await namesOf(messages, access)).toEqual(['first', 'second'])
    } finally {
      await messages.close()
    }
  })
})

test('a full queue refuses at once with Retry-After, and the queued messages are stored', async () => {
  await withMessages(async (messages) => {
    const access = newAccess()
    const body = Buffer.alloc(1024 * 1024)
    const locker = await server.database.dedicated('locker')
    await locker.query('BEGIN; LOCK TABLE ingest_batches IN ACCESS EXCLUSIVE MODE')
    // One lane takes 16 MiB: 40 MiB of one publisher cannot all fit.
    const published = Array.from({ length: 40 }, () =>
      messages.publish(aMessage(access, { kind: 'raw', contentType: 'application/octet-stream', body })),
    )
    const settled = Promise.allSettled(published)
    await expect(published.at(-1)).rejects.toMatchObject({ kind: 'unavailable', retryAfterSeconds: 1 })
    await locker.query('ROLLBACK')
    await locker.end()
    const kinds = (await settled).map(kindOf)
    expect(new Set(kinds)).toEqual(new Set(['stored', 'unavailable']))
    const page = await messages.read(access, { offset: 0, limit: 1, format: 'raw' })
    expect(page.total).toBe(kinds.filter((kind) => kind === 'stored').length)
  })
})

test('a commit that takes too long is a timeout with an unknown outcome', async () => {
  await withMessages(
    async (messages) => {
      const locker = await server.database.dedicated('locker')
      await locker.query('BEGIN; LOCK TABLE ingest_batches IN ACCESS EXCLUSIVE MODE')
      const publishing = messages.publish(aMessage(newAccess(), aRecord('late')))
      await expect(publishing).rejects.toMatchObject({ kind: 'timeout' })
      await locker.query('ROLLBACK')
      await locker.end()
    },
    { acknowledgeDeadlineMs: 300 },
  )
})

test('a full disk refuses messages before they are queued', async () => {
  await withMessages(
    async (messages) => {
      const publishing = messages.publish(aMessage(newAccess(), aRecord('a')))
      await expect(publishing).rejects.toMatchObject({ kind: 'unavailable', retryAfterSeconds: 30 })
      expect(messages.pending).toBe(0)
    },
    { hasRoom: () => false },
  )
})

test('missing synchronous standbys refuse messages before they are queued', async () => {
  await withMessages(
    async (messages) => {
      const publishing = messages.publish(aMessage(newAccess(), aRecord('a')))
      await expect(publishing).rejects.toMatchObject({ kind: 'unavailable', retryAfterSeconds: 5 })
      expect(messages.pending).toBe(0)
    },
    { canCommit: () => false },
  )
})

describe('limits of series', () => {
  test('a channel accepts no new names above its limit, and known ones continue', async () => {
    await withMessages(
      async (messages) => {
        const access = newAccess()
        const publish = (name: string) => messages.publish(aMessage(access, aRecord(name)))
        // Two batches of one publisher create their series at the same time: which names are new ones is settled first.
        await publish('a')
        const outcomes = (await Promise.allSettled(['b', 'c', 'd', 'a'].map((name) => publish(name)))).map(kindOf)
        expect(outcomes.toSorted()).toEqual(['stored', 'stored', 'stored', 'unprocessable'])
        const names = new Set(await namesOf(messages, access))
        expect(names.size).toBe(3)
        const unknown = ['a', 'b', 'c', 'd'].find((name) => !names.has(name)) ?? ''
        await expect(publish(unknown)).rejects.toMatchObject({
          kind: 'unprocessable',
          message: expect.stringContaining('the channel has 3 series'),
        })
        await publish([...names][0] ?? '')
      },
      { seriesLimits: { maxPerChannel: 3, maxPerDomain: 100 } },
    )
  })

  test('a domain accepts no new names above its limit, over all its channels', async () => {
    await withMessages(
      async (messages) => {
        const first = newAccess()
        const second = newAccess(first.domainKey)
        await messages.publish(aMessage(first, aRecord('a')))
        await messages.publish(aMessage(second, aRecord('a')))
        await expect(messages.publish(aMessage(second, aRecord('b')))).rejects.toMatchObject({
          message: expect.stringContaining('the domain has 2 series'),
        })
      },
      { seriesLimits: { maxPerChannel: 100, maxPerDomain: 2 } },
    )
  })

  test('two processes that receive the same new names create each series once', async () => {
    const other = await startMessages({
      database: server.database,
      node: aNode(server.database),
      logger,
      bus: createLocalBus(),
      hasRoom: () => true,
    })
    await withMessages(async (messages) => {
      const access = newAccess()
      const names = Array.from({ length: 200 }, (_, index) => `n${index}`)
      await Promise.all(
        names.flatMap((name, index) => [
          messages.publish(aMessage(access, aRecord(name))),
          other.publish(aMessage(access, aRecord(names.at(-index - 1) ?? ''))),
        ]),
      )
      const { rows } = await server.database.pool.query<{ series: number; counted: number }>(
        `SELECT (SELECT count(*) FROM series WHERE channel_key = $1) AS series,
                (SELECT series FROM series_counts WHERE channel_key = $1) AS counted`,
        [access.channelKey],
      )
      expect(rows).toEqual([{ series: 200, counted: 200 }])
    })
    await other.close()
  })
})

test('a missing partition is created, and the message is stored', async () => {
  await withMessages(async (messages) => {
    const { rows } = await server.database.pool.query<{ name: string }>(
      `SELECT leaf.relname AS name FROM pg_inherits JOIN pg_class leaf ON leaf.oid = inhrelid WHERE inhparent = 'records_r7'::regclass`,
    )
    expect(rows.length).toBeGreaterThan(0)
    for (const { name } of rows) await server.database.pool.query(`DROP TABLE ${name}`)
    const access = { ...newAccess(), retentionDays: 5 }
    await messages.publish(aMessage(access, aRecord('a')))
    expect(await namesOf(messages, access)).toEqual(['a'])
  })
})

test('closing writes all queued messages and refuses later ones', async () => {
  const messages = await startMessages({
    database: server.database,
    node: aNode(server.database),
    logger,
    bus: createLocalBus(),
    hasRoom: () => true,
  })
  const access = newAccess()
  const taken = Promise.all(['a', 'b', 'c'].map((name) => messages.publish(aMessage(access, aRecord(name)))))
  await messages.close()
  await taken
  await expect(messages.publish(aMessage(access, aRecord('d')))).rejects.toMatchObject({ kind: 'unavailable' })
  expect(await namesOf(messages, access)).toEqual(['a', 'b', 'c'])
})

type Link = {
  database: Database
  cuts: number
  /** Cuts the lane's connection once, right after these bytes were passed on to the server. */
  cutAfter(text: string): void
  /** Cuts it once instead of passing them on. */
  cutBefore(text: string): void
  [Symbol.asyncDispose](): Promise<void>
}

/** A network between us and the server that can be cut at a chosen moment. */
async function startLink(address: TestDatabase['address']): Promise<Link> {
  const { host, port } = address
  const folder = mkdtempSync(join(tmpdir(), 'skein-link-'))
  let cut: { text: string; passOn: boolean } | undefined
  const sockets = new Set<Socket>()

  const relay = createServer((near) => {
    const far = connectSocket(join(host, `.s.PGSQL.${port}`))
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => {
        sockets.delete(socket)
        near.destroy()
        far.destroy()
      })
    }
    far.pipe(near)
    near.on('data', (chunk: Buffer) => {
      // Only the statement itself: `Q`, its length, the text and its terminator.
      if (cut !== undefined && chunk.includes(`${cut.text}\0`)) {
        const { passOn } = cut
        cut = undefined
        link.cuts++
        far.unpipe(near)
        if (!passOn) return near.destroy()
        far.write(chunk)
        // The answer came, so the server has done it; nobody hears it.
        far.once('data', () => near.destroy())
        far.resume()
        return undefined
      }
      far.write(chunk)
      return undefined
    })
  })
  await new Promise<void>((resolve) => void relay.listen(join(folder, `.s.PGSQL.${port}`), resolve))
  const linked = createDatabase({
    address: { ...address, host: folder },
    maxConnections: 4,
    applicationName: 'linked',
    logger,
  })
  const link: Link = {
    database: linked,
    cuts: 0,
    cutAfter: (text) => (cut = { text, passOn: true }),
    cutBefore: (text) => (cut = { text, passOn: false }),
    async [Symbol.asyncDispose]() {
      await linked.close()
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => void relay.close(resolve))
      rmSync(folder, { recursive: true, force: true })
    },
  }
  return link
}
