/** Reading the stored messages of a channel. Who may read it was decided before: the canonical channel is given, not a caller. */
import type { MessageAccess } from '#api/devices/index.ts'
import type { Database } from '#core/database/index.ts'
import { RECORDS_FORMAT } from '../ingest/content.ts'
import { isOfSeries, parseAggregation, parseFilter } from './filter.ts'
import { readPayloads } from './payloads.ts'
import { aggregateRecords } from './aggregates.ts'
import { readLatest } from './latest.ts'
import { presentPayload, presentRecord } from './present.ts'
import type { Window } from './window.ts'
import { readRecords } from './records.ts'
import type { LatestQuery, MessagesPage } from './schema.ts'
import { MessagesQuery } from './schema.ts'

/** No read takes longer; filters and aggregates over many rows are refused rather than left to hold up the others. */
const READ_DEADLINE_MS = 5_000

export type Reader = {
  /**
   * A page of the channel's messages, newest first unless asked otherwise. What was acknowledged before the call is in
   * it. Throws `malformed` for a query that cannot be understood, `timeout` for one that takes too long.
   */
  read(access: MessageAccess, query: MessagesQuery): Promise<MessagesPage>
  /** The newest record of every series of the channel, a page of them, in the order in which the series began. */
  latest(access: MessageAccess, query: LatestQuery): Promise<MessagesPage>
}

export function createReader(database: Database): Reader {
  return {
    async read(access, query) {
      const filter = parseFilter(query)
      const aggregation = parseAggregation(query)
      const { offset, limit, format, order, dir = 'desc' } = query
      const window: Window = { offset, limit: wantedOf(query), order, dir }
      const isPlain = aggregation === undefined && order === undefined && isOfSeries(filter)
      // Page and total are of one snapshot.
      const { messages, total } = await database.snapshot(
        async (tx) => {
          if (format !== RECORDS_FORMAT) {
            const found = await readPayloads(tx, access.channelKey, format, filter, window)
            return { total: found.total, messages: found.rows.map((row) => presentPayload(access.channelId, row)) }
          }
          const found =
            aggregation === undefined
              ? await readRecords(tx, access.channelKey, filter, window)
              : await aggregateRecords(tx, access.channelKey, filter, aggregation, window)
          return { total: found.total, messages: found.rows.map((row) => presentRecord(access.channelId, row)) }
        },
        READ_DEADLINE_MS,
        isPlain ? 'kept' : undefined,
      )
      return { ...echoOf(query), offset, limit, format, total, messages }
    },
    async latest(access, query) {
      const filter = parseFilter({ ...query, format: RECORDS_FORMAT })
      const found = await database.snapshot(
        (tx) => readLatest(tx, access.channelKey, filter, { ...query, limit: wantedOf(query) }),
        READ_DEADLINE_MS,
      )
      const messages = found.rows.map((row) => presentRecord(access.channelId, row))
      const { offset, limit } = query
      return { ...echoOf(query), offset, limit, format: RECORDS_FORMAT, total: found.total, messages }
    },
  }
}

/** Messages that the page is to hold. */
function wantedOf({ limit, only_total: isTotalOnly }: LatestQuery): number {
  return isTotalOnly === true ? 0 : limit
}

/** The filters that were given, as they were given. Only those: a query may also hold the caller's secret. */
function echoOf(query: MessagesQuery | LatestQuery): Partial<MessagesPage> {
  const filters = Object.keys(MessagesQuery.properties) as (keyof LatestQuery)[]
  return Object.fromEntries(
    filters.map((name) => [name, query[name]]).filter(([, value]) => value !== undefined && value !== ''),
  )
}
