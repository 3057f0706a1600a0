/**
 * The keys of series: known ones from a bounded cache, others from the table, missing ones made in a transaction of
 * their own before the messages are written. A key is cached only after its commit.
 */
import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { sql } from 'kysely'
import type { Database, NoTables, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { IncomingMessage } from '../message.ts'

export type SeriesLimits = {
  /** Series that one channel may have. */
  maxPerChannel: number
  /** Series that all channels of a domain may have together. */
  maxPerDomain: number
}

export const SERIES_LIMITS: SeriesLimits = { maxPerChannel: 100_000, maxPerDomain: 1_000_000 }

export type SeriesKeys = {
  /** The keys of the message's records, in order, when all of them are cached. */
  find(message: IncomingMessage): number[] | undefined
  /**
   * The keys of each message's records. A message that would go beyond a limit is answered with `unprocessable`
   * naming it, alone. Repeating the call is harmless.
   */
  resolve(messages: readonly IncomingMessage[]): Promise<(number[] | ServiceError)[]>
}

/** Memory of the cache; estimated by the length of names. */
const MAX_CACHE_BYTES = 32 * 1024 * 1024
const ENTRY_BYTES = 96
/** Of SHA-256: collisions are out of reach, and the index stays small. */
const DIGEST_BYTES = 16
/** Rows of one statement. */
const MAX_ROWS_PER_STATEMENT = 5000

/** What identifies a stream in the cache: everything of a series that all records of a message share. */
type Stream = { keys: Map<string, number>; bytes: number }

type Wanted = {
  domainKey: number
  channelKey: number
  publisherKey: number | null
  publisherId: string
  subtopic: string
  name: string
  unit: string
  digest: Buffer
  streamId: string
}

type SeriesTable = NoTables & { series: { key: number; channel_key: number; digest: Buffer } }

export function createSeriesKeys(database: Database, limits: SeriesLimits = SERIES_LIMITS): SeriesKeys {
  const streams = new LRUCache<string, Stream>({ maxSize: MAX_CACHE_BYTES, sizeCalculation: (stream) => stream.bytes })

  function find(message: IncomingMessage): number[] | undefined {
    if (message.content.kind !== 'records') return []
    const stream = streams.get(streamIdOf(message))
    if (stream === undefined) return undefined
    const keys: number[] = []
    for (const { name, unit } of message.content.records) {
      const key = stream.keys.get(entryOf(name, unit))
      if (key === undefined) return undefined
      keys.push(key)
    }
    return keys
  }

  /** Adds keys whose transaction is committed. */
  function remember(found: ReadonlyMap<Wanted, number>): void {
    for (const [{ streamId, name, unit }, key] of found) {
      const stream = streams.get(streamId) ?? { keys: new Map<string, number>(), bytes: ENTRY_BYTES + streamId.length }
      const entry = entryOf(name, unit)
      if (!stream.keys.has(entry)) stream.bytes += ENTRY_BYTES + entry.length
      stream.keys.set(entry, key)
      streams.set(streamId, stream, { size: stream.bytes })
    }
  }

  return {
    find,
    async resolve(messages) {
      const wanted = missingSeries(messages.filter((message) => find(message) === undefined))
      if (wanted.length === 0) return messages.map((message) => find(message) ?? [])
      const found = new Map<Wanted, number>()
      await readKeys(database, wanted, found)
      const absent = wanted.filter((series) => !found.has(series))
      const refused =
        absent.length === 0 ? new Map<Wanted, ServiceError>() : await makeSeries(database, absent, limits, found)
      remember(found)

      // The cache may already have dropped what was just found, so the answer is built from what is at hand.
      const keyOf = new Map([...found].map(([series, key]) => [idOf(series), key]))
      const refusalOf = new Map([...refused].map(([series, error]) => [idOf(series), error]))
      return messages.map((message) => {
        const cached = find(message)
        if (cached !== undefined || message.content.kind !== 'records') return cached ?? []
        const streamId = streamIdOf(message)
        const cachedKeys = streams.get(streamId)?.keys
        const keys: number[] = []
        for (const { name, unit } of message.content.records) {
          const id = `${streamId}\n${entryOf(name, unit)}`
          const refusal = refusalOf.get(id)
          if (refusal !== undefined) return refusal
          const key = keyOf.get(id) ?? cachedKeys?.get(entryOf(name, unit))
          if (key === undefined) throw new Error('a series was neither found nor refused')
          keys.push(key)
        }
        return keys
      })
    },
  }
}

function streamIdOf({ access, subtopic }: IncomingMessage): string {
  return `${access.channelKey} ${access.publisherKey ?? ''} ${subtopic}`
}

/** Names hold no line feed (SenML), so the two parts cannot run into each other. */
function entryOf(name: string, unit: string): string {
  return unit === '' ? name : `${name}\n${unit}`
}

function idOf({ streamId, name, unit }: Wanted): string {
  return `${streamId}\n${entryOf(name, unit)}`
}

function missingSeries(messages: readonly IncomingMessage[]): Wanted[] {
  const wanted = new Map<string, Wanted>()
  for (const message of messages) {
    if (message.content.kind !== 'records') continue
    const { access, subtopic } = message
    const streamId = streamIdOf(message)
    for (const { name, unit } of message.content.records) {
      const id = `${streamId}\n${entryOf(name, unit)}`
      if (wanted.has(id)) continue
      wanted.set(id, {
        domainKey: access.domainKey,
        channelKey: access.channelKey,
        publisherKey: access.publisherKey,
        publisherId: access.publisherId ?? '',
        subtopic,
        name,
        unit,
        digest: digestOf(access.publisherKey, subtopic, name, unit),
        streamId,
      })
    }
  }
  // Sorted, as every statement over many rows is: two unsorted ones deadlock.
  return [...wanted.values()].toSorted(
    (left, right) =>
      left.domainKey - right.domainKey || left.channelKey - right.channelKey || left.digest.compare(right.digest),
  )
}

function digestOf(publisherKey: number | null, subtopic: string, name: string, unit: string): Buffer {
  // None of the parts can hold a NUL character.
  return createHash('sha256')
    .update(`${publisherKey ?? ''}\0${subtopic}\0${name}\0${unit}`)
    .digest()
    .subarray(0, DIGEST_BYTES)
}

async function readKeys(
  database: Pick<Database, 'db'>,
  wanted: readonly Wanted[],
  found: Map<Wanted, number>,
): Promise<void> {
  for (let start = 0; start < wanted.length; start += MAX_ROWS_PER_STATEMENT) {
    const page = wanted.slice(start, start + MAX_ROWS_PER_STATEMENT)
    const { rows } = await sql<SeriesTable['series']>`
      SELECT series.key, series.channel_key, series.digest
        FROM unnest(${page.map((series) => series.channelKey)}::bigint[], ${page.map((series) => series.digest)}::bytea[])
          AS wanted (channel_key, digest)
        JOIN series USING (channel_key, digest)`.execute(database.db)
    noteKeys(page, rows, found)
  }
}

function noteKeys(wanted: readonly Wanted[], rows: readonly SeriesTable['series'][], found: Map<Wanted, number>): void {
  const byDigest = new Map(rows.map((row) => [`${row.channel_key} ${row.digest.toString('hex')}`, row.key]))
  for (const series of wanted) {
    const key = byDigest.get(`${series.channelKey} ${series.digest.toString('hex')}`)
    if (key !== undefined) found.set(series, key)
  }
}

/** Makes the absent series that the limits allow, adds their keys to `found` and returns the refusals. */
async function makeSeries(
  database: Database,
  absent: readonly Wanted[],
  limits: SeriesLimits,
  found: Map<Wanted, number>,
): Promise<Map<Wanted, ServiceError>> {
  const made = new Map<Wanted, number>()
  const refused = new Map<Wanted, ServiceError>()
  await database.transaction(async (tx) => {
    made.clear()
    refused.clear()
    const counts = await lockCounts(tx, absent)
    // Whoever held the lock before may have made some of them.
    await readKeys({ db: tx }, absent, made)
    const allowed = absent.filter((series) => {
      if (made.has(series)) return false
      const refusal = counts.take(series, limits)
      if (refusal !== undefined) refused.set(series, refusal)
      return refusal === undefined
    })
    for (let start = 0; start < allowed.length; start += MAX_ROWS_PER_STATEMENT) {
      const page = allowed.slice(start, start + MAX_ROWS_PER_STATEMENT)
      const { rows } = await sql<SeriesTable['series']>`
        INSERT INTO series (domain_key, channel_key, publisher_key, publisher_id, subtopic, name, unit, digest)
        SELECT * FROM unnest(
          ${page.map((series) => series.domainKey)}::bigint[], ${page.map((series) => series.channelKey)}::bigint[],
          ${page.map((series) => series.publisherKey)}::bigint[], ${page.map((series) => series.publisherId)}::text[],
          ${page.map((series) => series.subtopic)}::text[], ${page.map((series) => series.name)}::text[],
          ${page.map((series) => series.unit)}::text[], ${page.map((series) => series.digest)}::bytea[])
        RETURNING key, channel_key, digest`.execute(tx)
      noteKeys(page, rows, made)
    }
    await counts.store(tx)
  })
  for (const [series, key] of made) found.set(series, key)
  return refused
}

/** The counters of the channels and domains concerned, locked in key order; row 0 of a domain counts all its series. */
async function lockCounts(tx: Transaction, absent: readonly Wanted[]) {
  const pairs = new Map<string, { domainKey: number; channelKey: number; before: number; series: number }>()
  for (const { domainKey, channelKey } of absent) {
    for (const key of [0, channelKey])
      pairs.set(`${domainKey} ${key}`, { domainKey, channelKey: key, before: 0, series: 0 })
  }
  const sorted = [...pairs.values()].toSorted(
    (left, right) => left.domainKey - right.domainKey || left.channelKey - right.channelKey,
  )
  const domainKeys = sorted.map((count) => count.domainKey)
  const channelKeys = sorted.map((count) => count.channelKey)
  await sql`
    INSERT INTO series_counts (domain_key, channel_key)
    SELECT * FROM unnest(${domainKeys}::bigint[], ${channelKeys}::bigint[])
    ON CONFLICT ON CONSTRAINT series_counts_pkey DO NOTHING`.execute(tx)
  const { rows } = await sql<{ domain_key: number; channel_key: number; series: number }>`
    SELECT counts.domain_key, counts.channel_key, counts.series
      FROM series_counts counts
     WHERE (counts.domain_key, counts.channel_key) IN
       (SELECT * FROM unnest(${domainKeys}::bigint[], ${channelKeys}::bigint[]))
     ORDER BY counts.domain_key, counts.channel_key FOR UPDATE`.execute(tx)
  for (const row of rows) {
    const count = pairs.get(`${row.domain_key} ${row.channel_key}`)
    if (count !== undefined) count.before = count.series = row.series
  }
  return {
    /** Counts one more series, or says which limit forbids it. */
    take({ domainKey, channelKey }: Wanted, { maxPerChannel, maxPerDomain }: SeriesLimits): ServiceError | undefined {
      const domain = pairs.get(`${domainKey} 0`)
      const channel = pairs.get(`${domainKey} ${channelKey}`)
      if (domain === undefined || channel === undefined) throw new Error('a counter was not locked')
      if (channel.series >= maxPerChannel) return limitReached(`the channel has ${maxPerChannel} series`)
      if (domain.series >= maxPerDomain) return limitReached(`the domain has ${maxPerDomain} series`)
      channel.series++
      domain.series++
      return undefined
    },
    async store(transaction: Transaction): Promise<void> {
      const changed = sorted.filter((count) => count.series !== count.before)
      if (changed.length === 0) return
      await sql`
        UPDATE series_counts SET series = changed.series
          FROM unnest(${changed.map((count) => count.domainKey)}::bigint[], ${changed.map((count) => count.channelKey)}::bigint[],
            ${changed.map((count) => count.series)}::integer[]) AS changed (domain_key, channel_key, series)
         WHERE series_counts.domain_key = changed.domain_key AND series_counts.channel_key = changed.channel_key`.execute(
        transaction,
      )
    },
  }
}

function limitReached(fact: string): ServiceError {
  return new ServiceError(
    'unprocessable',
    `${fact}, the most it may have: publish under names, units and subtopics that it already has`,
  )
}
