/** Reading the stored messages of a channel. Who may read it was decided before: the canonical channel is given, not a caller. */
import type { MessageAccess } from '#api/devices/index.ts'
import { translateDatabaseError } from '#core/database/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { RECORDS_FORMAT } from '../ingest/content.ts'
import { AggregatesQuery } from './aggregates.ts'
import { parseAggregation, parseFilter } from './filter.ts'
import { PayloadsQuery } from './payloads.ts'
import { readLatest } from './latest.ts'
import { presentPayload, presentRecord } from './present.ts'
import { RecordsQuery } from './records.ts'
import type { LatestQuery, MessagesPage, StoredMessage } from './schema.ts'
import { MessagesQuery } from './schema.ts'
import type { PageRows, Rows, Total, Window } from './window.ts'

/** No page takes longer: one that must look at too much fails with `timeout` rather than hold up other reads. */
const PAGE_DEADLINE_MS = 5_000
/** A total that takes longer is left open: the page is answered with a lower bound (contract decision 75). */
const TOTAL_DEADLINE_MS = 2_000

export type Reader = {
  /**
   * A page of the channel's messages, newest first by default. It contains everything that was acknowledged before the call. Throws
   * `malformed` for an invalid query, `timeout` for a page that takes too long.
   */
  read(access: MessageAccess, query: MessagesQuery): Promise<MessagesPage>
  /** The newest record of every series of the channel, a page of them, in the order in which the series began. */
  latest(access: MessageAccess, query: LatestQuery): Promise<MessagesPage>
}

export function createReader(database: Database): Reader {
  return {
    async read(access, query) {
      const { offset, limit, format } = query
      const open = openerOf(access, query)
      const found = await database.snapshot(
        (tx) => (query.only_total === true ? readTotal(tx, open, query) : readPage(tx, open, query)),
        PAGE_DEADLINE_MS,
      )
      return { ...echoOf(query), offset, limit, format, ...presentTotal(found), messages: found.rows }
    },
    async latest(access, query) {
      const filter = parseFilter({ ...query, format: RECORDS_FORMAT })
      const { offset, limit } = query
      const window = { offset, limit: query.only_total === true ? 0 : limit }
      const found = await database.snapshot((tx) => readLatest(tx, access.channelKey, filter, window), PAGE_DEADLINE_MS)
      const messages = found.rows.map((row) => presentRecord(access.channelId, row))
      return { ...echoOf(query), offset, limit, format: RECORDS_FORMAT, total: found.total, messages }
    },
  }
}

/** The messages of a query, within a snapshot. */
type OpenQuery = { page(window: Window): Promise<PageRows<StoredMessage>>; total(): Promise<number> }
type Opener = (tx: Transaction) => Promise<OpenQuery>

/** Throws `malformed`. */
function openerOf({ channelKey, channelId }: MessageAccess, query: MessagesQuery): Opener {
  const filter = parseFilter(query)
  const aggregation = parseAggregation(query)
  const shown = <Row>(
    of: { page(window: Window): Promise<PageRows<Row>>; total(): Promise<number> },
    present: (channel: string, row: Row) => StoredMessage,
  ): OpenQuery => ({
    async page(window) {
      const { rows, ...page } = await of.page(window)
      return { ...page, rows: rows.map((row) => present(channelId, row)) }
    },
    total: () => of.total(),
  })
  return async (tx) => {
    if (query.format !== RECORDS_FORMAT)
      return shown(new PayloadsQuery(tx, channelKey, query.format, filter), presentPayload)
    if (aggregation === undefined) return shown(await RecordsQuery.of(tx, channelKey, filter), presentRecord)
    return shown(await AggregatesQuery.of(tx, channelKey, filter, aggregation), presentRecord)
  }
}

/** One message more than the page shows tells whether more follow, which is all that is known of a total that takes too long. */
async function readPage(tx: Transaction, open: Opener, query: MessagesQuery): Promise<Rows<StoredMessage>> {
  const { offset, limit, order, dir = 'desc' } = query
  const messages = await open(tx)
  const page = await messages.page({ offset, limit: limit + 1, order, dir })
  const rows = page.rows.slice(0, limit)
  const least = offset + page.found
  if (page.total !== undefined) return { rows, total: page.total, isExact: true }
  const isLast = page.found <= limit && (page.found > 0 || offset === 0)
  if (isLast) return { rows, total: least, isExact: true }
  const total = await countInTime(tx, messages)
  return { rows, total: total ?? least, isExact: total !== undefined }
}

async function readTotal(tx: Transaction, open: Opener, { offset }: MessagesQuery): Promise<Rows<StoredMessage>> {
  const total = await countInTime(tx, await open(tx))
  return { rows: [], total: total ?? offset, isExact: total !== undefined }
}

/** Undefined where the total takes too long; then the transaction takes no further statement. */
async function countInTime(tx: Transaction, messages: OpenQuery): Promise<number | undefined> {
  await sql`SET LOCAL statement_timeout = ${sql.raw(String(TOTAL_DEADLINE_MS))}`.execute(tx)
  try {
    return await messages.total()
  } catch (error) {
    const translated = translateDatabaseError(error)
    if (kindOf(translated) === 'timeout') return undefined
    throw translated
  }
}

function presentTotal({ total, isExact }: Total): Pick<MessagesPage, 'total' | 'total_exact'> {
  return isExact ? { total } : { total, total_exact: false }
}

/** The filters that were given, as they were given. Only those: a query may also hold the caller's secret. */
function echoOf(query: MessagesQuery | LatestQuery): Partial<MessagesPage> {
  const filters = Object.keys(MessagesQuery.properties) as (keyof LatestQuery)[]
  return Object.fromEntries(
    filters.map((name) => [name, query[name]]).filter(([, value]) => value !== undefined && value !== ''),
  )
}
