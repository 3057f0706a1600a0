/** Reads the stored messages of a channel. The caller has checked the access to the channel. */
import type { ChannelAccess } from '#api/devices/index.ts'
import { translateDatabaseError } from '#core/database/index.ts'
import type { SnapshotSource, Transaction } from '#core/database/index.ts'
import { kindOf, refusedField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { RECORDS_FORMAT } from '../ingest/content.ts'
import { AggregatesQuery } from './aggregates.ts'
import { DEFAULT_INTERVAL, parseAggregation, parseFilter } from './filter.ts'
import { PayloadsQuery } from './payloads.ts'
import { readLatest } from './latest.ts'
import { presentLinks, presentPayload, presentRecord } from './present.ts'
import { RecordsQuery, isColumn } from './records.ts'
import type { LatestQuery, MessagesPage, SeriesPage, SeriesQuery, StoredMessage } from './schema.ts'
import { MessagesQuery } from './schema.ts'
import { inColumns, parseSeriesQuery } from './series.ts'
import { withRuns } from './task-runs.ts'
import type { LinkedRow, PageRows, Rows, Total, Window } from './window.ts'

/** The deadline of a page. A page that reads too many rows fails with `timeout`, so that it does not delay other reads. */
const PAGE_DEADLINE_MS = 5_000
/** The deadline of an exact total. After it, the page contains a lower bound (contract decision 75). */
const TOTAL_DEADLINE_MS = 2_000

export type Reader = {
  /**
   * A page of the channel's messages, newest first by default. It contains everything that was acknowledged before the call. Throws
   * `malformed` for an invalid query, `timeout` for a page that takes too long.
   */
  read(access: ChannelAccess, query: MessagesQuery): Promise<MessagesPage>
  /** The newest record of every series of the channel, a page of them, in the order in which the series began. */
  latest(access: ChannelAccess, query: LatestQuery): Promise<MessagesPage>
  /** The aggregates of a page of the channel's series, in columns. Throws as `read` does. */
  series(access: ChannelAccess, query: SeriesQuery): Promise<SeriesPage>
}

export function createReader(database: Pick<SnapshotSource, 'snapshot'>): Reader {
  return {
    async read(access, query) {
      const { offset, limit, format } = query
      const open = openerOf(access, query)
      const found = await database.snapshot(
        (tx) => (query.only_total === true ? readTotal(tx, open, query) : readPage(tx, open, query)),
        PAGE_DEADLINE_MS,
      )
      const next = found.next === undefined ? {} : { next: found.next }
      return { ...echoOf(query), offset, limit, format, ...presentTotal(found), messages: found.rows, ...next }
    },
    async latest(access, query) {
      // Other unknown parameters are ignored; a caller would take the result for the message, or what the run published.
      for (const name of ['run', 'message'] as const)
        if (Object.hasOwn(query, name))
          throw refusedField(name, 'does not select newest records: read pages of messages')
      const filter = parseFilter({ ...query, format: RECORDS_FORMAT })
      const { offset, limit, cursor } = query
      const window = { offset, limit: query.only_total === true ? 0 : limit, cursor }
      const found = await database.snapshot((tx) => readLatest(tx, access.channelKey, filter, window), PAGE_DEADLINE_MS)
      const messages = found.rows.map((row) => presentRecord(access.channelId, row))
      const { total, next } = found
      return { ...echoOf(query), offset, limit, format: RECORDS_FORMAT, total, messages, next }
    },
    async series({ channelKey }, query) {
      const { filter, request } = parseSeriesQuery(query)
      const { offset, limit, cursor, aggregation, interval = DEFAULT_INTERVAL } = query
      const { total, rows, next } = await database.snapshot(async (tx) => {
        const aggregates = await AggregatesQuery.of(tx, channelKey, filter, request)
        const { keys, ...page } = await aggregates.seriesPage({ offset, limit, cursor })
        return { ...page, rows: keys.length === 0 ? [] : await aggregates.columnsOf(keys) }
      }, PAGE_DEADLINE_MS)
      return { total, offset, limit, aggregation, interval, next, ...inColumns(rows, request.by) }
    },
  }
}

/** `knownTotal`: the total where nothing has to be read for it. */
type Totals = { total(): Promise<number>; knownTotal?(): number | undefined }
/** The messages of a query, within a snapshot. */
type OpenQuery = { page(window: Window): Promise<PageRows<StoredMessage>> } & Totals
type Opener = (tx: Transaction) => Promise<OpenQuery>

/** Throws `malformed`. */
function openerOf({ channelKey, channelId }: ChannelAccess, query: MessagesQuery): Opener {
  const filter = parseFilter(query)
  const aggregation = parseAggregation(query)
  if (query.cursor !== undefined && !isInOrderOfTime(query))
    throw refusedField('cursor', 'requires the order of time, and must not be combined with aggregation')
  return async (tx) => {
    const shown = <Row extends LinkedRow & { protocol: number }>(
      of: { page(window: Window): Promise<PageRows<Row>> } & Totals,
      present: (channel: string, row: Row) => StoredMessage,
    ): OpenQuery => ({
      async page(window) {
        const { rows, ...page } = await of.page(window)
        const places = isInOrderOfTime(query) ? rows.map((row) => row.row_place as string) : undefined
        if (query.links !== true) return { ...page, places, rows: rows.map((row) => present(channelId, row)) }
        const linked = await withRuns(tx, rows)
        return { ...page, places, rows: linked.map((row) => ({ ...present(channelId, row), ...presentLinks(row) })) }
      },
      total: () => of.total(),
      knownTotal: () => of.knownTotal?.(),
    })
    if (query.format !== RECORDS_FORMAT)
      return shown(new PayloadsQuery(tx, channelKey, query.format, filter), presentPayload)
    if (aggregation === undefined) return shown(await RecordsQuery.of(tx, channelKey, filter), presentRecord)
    return shown(await AggregatesQuery.of(tx, channelKey, filter, aggregation), presentRecord)
  }
}

/** JSON and raw messages, and records with an unknown order, are in the order of time. */
const isInOrderOfTime = ({ format, order, aggregation }: MessagesQuery) =>
  format !== RECORDS_FORMAT || (aggregation === undefined && !isColumn(order))

/** One more message than the page contains is read: it shows whether more follow, also when the total takes too long. */
async function readPage(tx: Transaction, open: Opener, query: MessagesQuery): Promise<Rows<StoredMessage>> {
  const { offset, limit, cursor, order, dir = 'desc' } = query
  const messages = await open(tx)
  const page = await messages.page({ offset, limit: limit + 1, order, dir, cursor })
  const rows = page.rows.slice(0, limit)
  const places = page.places?.slice(0, limit)
  const next = places === undefined ? undefined : { places, hasMore: page.found > rows.length }
  const least = offset + page.found
  if (page.total !== undefined) return { rows, next, total: page.total, isExact: true }
  const isLast = page.found <= limit && (page.found > 0 || offset === 0)
  if (isLast && cursor === undefined) return { rows, next, total: least, isExact: true }
  const total = await countInTime(tx, messages)
  return { rows, next, total: total ?? least, isExact: total !== undefined }
}

async function readTotal(tx: Transaction, open: Opener, { offset }: MessagesQuery): Promise<Rows<StoredMessage>> {
  const total = await countInTime(tx, await open(tx))
  return { rows: [], total: total ?? offset, isExact: total !== undefined }
}

/** Undefined when the total takes too long; then the transaction accepts no further statement. */
async function countInTime(tx: Transaction, messages: OpenQuery): Promise<number | undefined> {
  const known = messages.knownTotal?.()
  if (known !== undefined) return known
  try {
    // Both are sent at once.
    const limited = sql`SET LOCAL statement_timeout = ${sql.raw(String(TOTAL_DEADLINE_MS))}`.execute(tx)
    const [total] = await Promise.all([messages.total(), limited])
    return total
  } catch (error) {
    const translated = translateDatabaseError(error)
    if (kindOf(translated) === 'timeout') return undefined
    throw translated
  }
}

function presentTotal({ total, isExact }: Total): Pick<MessagesPage, 'total' | 'total_exact'> {
  return isExact ? { total } : { total, total_exact: false }
}

const ECHOED = Object.keys(MessagesQuery.properties).filter((name) => name !== 'cursor') as Exclude<
  keyof LatestQuery,
  'cursor'
>[]

/** The filters of the query, unchanged. Other parameters are omitted: a query can contain the caller's secret. */
function echoOf(query: MessagesQuery | LatestQuery): Partial<MessagesPage> {
  return Object.fromEntries(
    ECHOED.map((name) => [name, query[name]]).filter(([, value]) => value !== undefined && value !== ''),
  )
}
