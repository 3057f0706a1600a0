/** The tables `series` and `series_counts`: finds series, and creates new ones within the limits. */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'

export type SeriesLimits = {
  /** The maximum number of series of one channel. */
  maxPerChannel: number
  /** The maximum number of series of all channels of a domain. */
  maxPerDomain: number
}

export const SERIES_LIMITS: SeriesLimits = { maxPerChannel: 100_000, maxPerDomain: 1_000_000 }

/** A series of a message; `digest` identifies it within its channel. */
export type WantedSeries = {
  domainKey: number
  channelKey: number
  publisherKey: number | null
  publisherId: string
  subtopic: string
  name: string
  unit: string
  digest: Buffer
}

/** The number of rows of one statement. */
const MAX_ROWS_PER_STATEMENT = 1000

type SeriesRow = { key: number; channel_key: number; digest: Buffer }

/** Adds the keys of existing series. */
export async function readKeys<S extends WantedSeries>(
  database: Pick<Database, 'db'>,
  wanted: readonly S[],
  found: Map<S, number>,
): Promise<void> {
  for (let start = 0; start < wanted.length; start += MAX_ROWS_PER_STATEMENT) {
    const page = wanted.slice(start, start + MAX_ROWS_PER_STATEMENT)
    const { rows } = await sql<SeriesRow>`
      SELECT series.key, series.channel_key, series.digest
        FROM unnest(${page.map((series) => series.channelKey)}::bigint[], ${page.map((series) => series.digest)}::bytea[])
          AS wanted (channel_key, digest)
        JOIN series USING (channel_key, digest)`.execute(database.db)
    noteKeys(page, rows, found)
  }
}

function noteKeys<S extends WantedSeries>(
  wanted: readonly S[],
  rows: readonly SeriesRow[],
  found: Map<S, number>,
): void {
  const byDigest = new Map(rows.map((row) => [`${row.channel_key} ${row.digest.toString('hex')}`, row.key]))
  for (const series of wanted) {
    const key = byDigest.get(`${series.channelKey} ${series.digest.toString('hex')}`)
    if (key !== undefined) found.set(series, key)
  }
}

/** Creates missing series within the limits, adds their keys to `found` and returns the errors. */
export async function createSeries<S extends WantedSeries>(
  database: Database,
  absent: readonly S[],
  limits: SeriesLimits,
  found: Map<S, number>,
): Promise<Map<S, ServiceError>> {
  const made = new Map<S, number>()
  const refused = new Map<S, ServiceError>()
  await database.transaction(async (tx) => {
    made.clear()
    refused.clear()
    const counts = await lockCounts(tx, absent)
    // The previous holder of the lock may have created some of them.
    await readKeys({ db: tx }, absent, made)
    const allowed = absent.filter((series) => {
      if (made.has(series)) return false
      const refusal = counts.take(series, limits)
      if (refusal !== undefined) refused.set(series, refusal)
      return refusal === undefined
    })
    for (let start = 0; start < allowed.length; start += MAX_ROWS_PER_STATEMENT) {
      const page = allowed.slice(start, start + MAX_ROWS_PER_STATEMENT)
      const { rows } = await sql<SeriesRow>`
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

/** The counters of the channels and domains, locked in key order; row 0 of a domain counts all of its series. */
async function lockCounts(tx: Transaction, absent: readonly WantedSeries[]) {
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
    /** Counts one more series, or returns the exceeded limit. */
    take(
      { domainKey, channelKey }: WantedSeries,
      { maxPerChannel, maxPerDomain }: SeriesLimits,
    ): ServiceError | undefined {
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
    `${fact}, which is the limit: use names, units and subtopics that it already has`,
  )
}
