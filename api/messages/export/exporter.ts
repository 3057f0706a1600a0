/**
 * Streams matching messages at the pace of the reader, on its own connection and snapshot. The time range is read in slices that
 * PostgreSQL sorts, so that neither side holds more than a part.
 */
import type pg from 'pg'
import type { ChannelAccess } from '#api/devices/index.ts'
import { translateDatabaseError } from '#core/database/index.ts'
import type { Queryable, SnapshotSource } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { sql } from '#core/sql.ts'
import type { Sql, Statement } from '#core/sql.ts'
import { RECORDS_FORMAT } from '../ingest/content.ts'
import { bucketOf } from '../projections/rollups.ts'
import { all, conditionsIn, matchingIn, scopeOf } from '../reader/conditions.ts'
import { parseFilter } from '../reader/filter.ts'
import type { Filter } from '../reader/filter.ts'
import { rollupsIn } from '../reader/parts.ts'
import { intersection } from '../reader/time-range.ts'
import type { TimeRange } from '../reader/time-range.ts'
import { payloadConditions } from '../reader/payloads.ts'
import type { PayloadRow } from '../reader/payloads.ts'
import { presentPayload, presentRecord } from '../reader/present.ts'
import { byTime } from '../reader/order.ts'
import { SELECTED } from '../reader/records.ts'
import type { MessagesQuery, StoredMessage } from '../reader/schema.ts'
import type { RecordRow } from '../reader/window.ts'
import { RECORDS } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import { CONTENT_TYPES, linesOf } from './format.ts'
import type { ExportFormat } from './format.ts'

export type { ExportFormat } from './format.ts'

export type MessageExport = {
  contentType: string
  /** Read it to its end or call `return`: its connection is open until then. */
  chunks: AsyncGenerator<string, void, void>
}

export type Exporter = {
  /**
   * All matching messages in the order of time; `limit` and `offset` are ignored. Throws `malformed` for another order and for an
   * aggregation, `rate_limited` when the domain has too many exports open or has used up its quota of the day, and `unavailable` when all
   * domains have.
   */
  open(access: ChannelAccess, query: MessagesQuery, format: ExportFormat): Promise<MessageExport>
}

/** Each holds a connection and a snapshot. */
const MAX_EXPORTS = 8
const MAX_EXPORTS_PER_DOMAIN = 3
const RETRY_SECONDS = 10
const STATEMENT_DEADLINE_MS = 60_000
/** The time after which an export without a read is closed: its snapshot prevents PostgreSQL from cleaning up. */
const STALLED_MS = 120_000
/** The limit of records of a slice, unless a single bucket contains more. */
const SLICE_RECORDS = 100_000
const SORT_MEMORY = '32MB'
/** The rows of one fetch: few at first, more while their text is small. */
const FIRST_ROWS = 8
const MAX_ROWS = 500
const MAX_CHUNK_CHARS = 256 * 1024

export type ExporterDeps = {
  database: Pick<SnapshotSource, 'dedicated'>
  /** Throws `rate_limited` when the domain has used up its exports of the day, and counts one otherwise. */
  requireExport: (domainKey: number) => Promise<void>
  signal: AbortSignal | undefined
}

export function createExporter({ database, requireExport, signal }: ExporterDeps): Exporter {
  const slots = new Slots({
    what: 'exports',
    max: MAX_EXPORTS,
    share: MAX_EXPORTS_PER_DOMAIN,
    retryAfterSeconds: RETRY_SECONDS,
  })

  async function* lines(
    client: pg.Client,
    channel: ChannelAccess,
    query: MessagesQuery,
    format: ExportFormat,
    release: () => void,
  ): AsyncGenerator<string, void, void> {
    const filter = parseFilter(query)
    const dir = query.dir ?? 'desc'
    try {
      const isRecords = query.format === RECORDS_FORMAT
      const { header, line } = linesOf(format, isRecords ? 'records' : 'payloads')
      if (header !== '') yield header
      const db = over(client)
      const found = isRecords
        ? recordsOf(client, db, channel, filter, dir)
        : payloadsOf(client, channel, query.format, filter, dir)
      for await (const messages of found) {
        if (signal?.aborted === true) throw new ServiceError('unavailable', 'the server is stopping')
        yield messages.map(line).join('')
      }
    } catch (error) {
      throw translateDatabaseError(error)
    } finally {
      release()
      await client.end()
    }
  }

  return {
    async open(access, query, format) {
      parseFilter(query)
      if (query.aggregation !== undefined)
        throw refusal('aggregation', 'is not supported in exports: read pages of JSON')
      if (query.order !== undefined && query.order !== 'time') throw refusal('order', 'must be time')
      const release = await slots.take(access.domainId)
      let client: pg.Client | undefined
      try {
        await requireExport(access.domainKey)
        client = await database.dedicated('skein export')
        await client.query(`SET statement_timeout = ${STATEMENT_DEADLINE_MS};
          SET idle_in_transaction_session_timeout = ${STALLED_MS}; SET work_mem = '${SORT_MEMORY}';
          BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY`)
      } catch (error) {
        release()
        await client?.end()
        throw translateDatabaseError(error)
      }
      return { contentType: CONTENT_TYPES[format], chunks: started(lines(client, access, query, format, release)) }
    },
  }
}

/**
 * A generator that was never started does not run its `finally` block. This one is started, and yields its first part to the reader.
 */
function started(lines: AsyncGenerator<string, void, void>): AsyncGenerator<string, void, void> {
  const first = lines.next()
  first.catch(() => undefined)
  async function* all(): AsyncGenerator<string, void, void> {
    try {
      const { done, value } = await first
      if (done !== true) {
        yield value
        yield* lines
      }
    } finally {
      await lines.return()
    }
  }
  return all()
}

function refusal(path: string, rule: string): ServiceError {
  const message = `${path} ${rule} in an export`
  return new ServiceError('malformed', message, { details: [{ path, message: rule }] })
}

/** Runs queries on this one connection. */
function over(client: pg.Client): Queryable {
  return {
    async query<Row>({ text, values }: Statement) {
      const { rows } = await client.query(text, [...values])
      return { rows: rows as Row[] }
    },
  }
}

/** The rows of a query, in parts. */
async function* fetched<Row>(client: pg.Client, query: Sql<Row>): AsyncGenerator<Row[], void, void> {
  const { text, values } = query.statement()
  await client.query(`DECLARE part NO SCROLL CURSOR FOR ${text}`, [...values])
  for (let wanted = FIRST_ROWS; ;) {
    const { rows } = await client.query(`FETCH ${wanted} FROM part`)
    if (rows.length > 0) yield rows as Row[]
    if (rows.length < wanted) break
    const chars = sizeOf(rows)
    wanted = Math.max(1, Math.min(MAX_ROWS, wanted * 2, Math.floor((MAX_CHUNK_CHARS / (chars + 1)) * wanted)))
  }
  await client.query('CLOSE part')
}

/** An estimate: only texts and bytes can be long. */
function sizeOf(rows: readonly Record<string, unknown>[]): number {
  let chars = 0
  for (const row of rows) {
    for (const value of Object.values(row)) {
      if (typeof value === 'string' || Buffer.isBuffer(value)) chars += value.length
    }
  }
  return chars
}

async function* recordsOf(
  client: pg.Client,
  db: Queryable,
  { channelKey, channelId }: ChannelAccess,
  filter: Filter,
  dir: 'asc' | 'desc',
): AsyncGenerator<StoredMessage[], void, void> {
  const scope = await scopeOf(db, channelKey, filter)
  if (scope.selected === 'nothing') return
  const range = scope.selected === undefined ? filter : intersection(filter, scope.selected.times)
  for (const slice of await slicesOf(db, scope, range, dir)) {
    const conditions = conditionsIn(scope, slice)
    const query = sql<RecordRow>`
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, f.protocol, extract(epoch FROM f.time)::float8 AS time, f.value,
             f.sum, f.update_time, f.bool_value, f.string_value, f.data_value
        FROM (SELECT ${SELECTED} FROM ${RECORDS} WHERE ${all([conditions.rows, ...matchingIn(conditions)])}) f
        JOIN series s ON s.key = f.series_key ORDER BY ${byTime(dir)}`
    for await (const part of fetched(client, query)) yield part.map((row) => presentRecord(channelId, row))
  }
}

/** Ranges of whole buckets within the requested range, in the order of the export. */
async function slicesOf(
  db: Queryable,
  scope: Awaited<ReturnType<typeof scopeOf>>,
  range: TimeRange,
  dir: 'asc' | 'desc',
): Promise<TimeRange[]> {
  const floor = range.fromSeconds === undefined ? undefined : Math.floor(range.fromSeconds / BUCKET_SECONDS)
  const known = rollupsIn(scope, { ...range, fromSeconds: floor === undefined ? undefined : floor * BUCKET_SECONDS })
  const pending = scope.arrivals?.pending?.condition
  const fresh =
    pending === undefined
      ? sql``
      : sql`UNION ALL SELECT ${bucketOf(sql`m.min_time`)}, cardinality(m.times) FROM records m
              WHERE ${all([conditionsIn(scope, range).rows, pending])}`
  const { rows } = await sql<{ start: number; records: number }>`
    SELECT extract(epoch FROM bucket)::float8 AS start, sum(records)::bigint AS records
      FROM (SELECT b.bucket, b.records FROM ${known} ${fresh}) b
     GROUP BY bucket ORDER BY bucket ${dir === 'asc' ? sql`ASC` : sql`DESC`}`.execute(db)
  const slices: { fromSeconds: number; toSeconds: number }[] = []
  let inSlice = Infinity
  for (const { start, records } of rows) {
    const last = slices.at(-1)
    if (last === undefined || inSlice + records > SLICE_RECORDS) {
      slices.push({ fromSeconds: start, toSeconds: start + BUCKET_SECONDS })
      inSlice = records
      continue
    }
    last.fromSeconds = Math.min(last.fromSeconds, start)
    last.toSeconds = Math.max(last.toSeconds, start + BUCKET_SECONDS)
    inSlice += records
  }
  return slices.map(({ fromSeconds, toSeconds }) => ({
    fromSeconds: Math.max(fromSeconds, range.fromSeconds ?? -Infinity),
    toSeconds: Math.min(toSeconds, range.toSeconds ?? Infinity),
  }))
}

async function* payloadsOf(
  client: pg.Client,
  { channelKey, channelId }: ChannelAccess,
  format: string,
  filter: Filter,
  dir: 'asc' | 'desc',
): AsyncGenerator<StoredMessage[], void, void> {
  const direction = dir === 'asc' ? sql`ASC` : sql`DESC`
  const conditions = [
    sql<boolean>`p.channel_key = ${channelKey} AND p.format = ${format}`,
    ...payloadConditions(filter),
  ]
  const query = sql<PayloadRow>`
    SELECT subtopic, publisher_id, protocol, extract(epoch FROM p.time)::float8 AS time, content_type, document::text AS document, body
      FROM payloads p WHERE ${all(conditions)}
     ORDER BY p.time ${direction}, p.arrived_at ${direction}, p.batch_seq ${direction}, p.message ${direction}, p.ordinal`
  for await (const part of fetched(client, query)) yield part.map((row) => presentPayload(channelId, row))
}
