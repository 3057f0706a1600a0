/** Reads the newest record of every series: from its projection, and those of pending batches from the records. */
import type { PageEnd } from '#core/cursor.ts'
import { pageOf, rangeOf, withinPage } from '#core/database/index.ts'
import type { PlacedRow, Transaction } from '#core/database/index.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { LATEST_COLUMNS, LATEST_OF_RECORD, NEWEST_OF_RECORD } from '../projections/latest.ts'
import { RECORDS } from '../store/opened.ts'
import { all, conditionsIn, matchingIn, scopeOf } from './conditions.ts'
import type { Filter } from './filter.ts'
import { BY_SERIES } from './series-order.ts'
import { ALL_TIMES } from './time-range.ts'
import type { RecordRow } from './window.ts'

export async function readLatest(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  range: PageRange,
): Promise<{ rows: RecordRow[]; total: number; next: PageEnd }> {
  // The protocol filters the newest records; it does not select older records with this protocol.
  const { protocol, ...withoutProtocol } = filter
  const scope = await scopeOf(tx, channelKey, { ...withoutProtocol, protocol: undefined })
  const { seriesKeys } = scope
  const ofSeries = seriesKeys === undefined ? sql`` : sql`AND series_key = ANY (${seriesKeys}::bigint[])`
  const pending = scope.arrivals?.pending?.condition
  const conditions = conditionsIn(scope, ALL_TIMES)
  const fresh =
    pending === undefined
      ? sql``
      : sql`UNION ALL (
          SELECT DISTINCT ON (r.series_key) ${LATEST_OF_RECORD} FROM ${RECORDS}
           WHERE ${all([conditions.rows, ...matchingIn(conditions), pending])} ORDER BY r.series_key, ${NEWEST_OF_RECORD})`
  const page = sql`SELECT *, ${BY_SERIES.place}::text AS row_place FROM matching
    WHERE ${BY_SERIES.after(range.cursor)} ${rangeOf(BY_SERIES, range)}`
  type Found = PlacedRow<RecordRow & { total: number; series_key: number | null }>
  const { rows: found } = await sql<Found>`
    WITH newest AS MATERIALIZED (
      SELECT DISTINCT ON (l.series_key) l.*
        FROM (SELECT ${LATEST_COLUMNS} FROM latest_records WHERE channel_key = ${channelKey} ${ofSeries} ${fresh}) l
       ORDER BY l.series_key, l.time DESC, l.arrived_at DESC, l.batch_seq DESC, l.message DESC, l.chunk, l.place
    ), matching AS (
      SELECT * FROM newest WHERE ${protocol === undefined ? sql`true` : sql`protocol = ${protocol}`}
    ), page AS (
      ${withinPage(page)}
    )
    SELECT (SELECT count(*) FROM matching) AS total, s.subtopic, s.publisher_id, s.name, s.unit, p.protocol, p.series_key, p.row_place, p.page_rows,
           extract(epoch FROM p.time)::float8 AS time, p.value, p.sum, p.update_time, p.bool_value, p.string_value, p.data_value
      FROM (SELECT) one LEFT JOIN page p ON true LEFT JOIN series s ON s.key = p.series_key ORDER BY p.series_key`.execute(
    tx,
  )
  const shown = found.filter((row) => row.series_key !== null)
  return { ...pageOf(shown, range.limit), total: found[0]?.total ?? 0 }
}
