/** Aggregates of several series in columns: what a chart shows, in one answer. */
import { refusedField } from '#core/errors/index.ts'
import { RECORDS_FORMAT } from '../ingest/content.ts'
import type { ColumnRow } from './aggregates.ts'
import { parseAggregation, parseFilter } from './filter.ts'
import type { AggregationRequest, Filter } from './filter.ts'
import { DAY_SECONDS } from './interval.ts'
import type { Interval } from './interval.ts'
import { MAX_INTERVALS, MAX_SERIES_INTERVALS } from './schema.ts'
import type { Aggregation, SeriesPage, SeriesQuery } from './schema.ts'

const SHORTEST_SECONDS = { day: DAY_SECONDS, month: 28 * DAY_SECONDS } as const

/** Throws `malformed` for an invalid query, and for more intervals than one answer has. */
export function parseSeriesQuery(query: SeriesQuery): { filter: Filter; request: AggregationRequest } {
  const asMessages = { ...query, format: RECORDS_FORMAT }
  const filter = parseFilter(asMessages)
  const request = parseAggregation(asMessages) as AggregationRequest
  const { fromSeconds = 0, toSeconds = 0 } = filter
  const intervals = Math.ceil((toSeconds - fromSeconds) / shortestSeconds(request.interval))
  if (intervals > MAX_INTERVALS)
    throw refusedField('interval', `must divide the range into at most ${MAX_INTERVALS} intervals`)
  if (intervals * query.limit > MAX_SERIES_INTERVALS)
    throw refusedField(
      'limit',
      `must be at most ${Math.floor(MAX_SERIES_INTERVALS / intervals)} for ${intervals} intervals`,
    )
  return { filter, request }
}

function shortestSeconds(interval: Interval): number {
  return interval.kind === 'fixed' ? interval.seconds : interval.count * SHORTEST_SECONDS[interval.unit]
}

/** The rows are ordered by series and time. */
export function inColumns(
  rows: readonly ColumnRow[],
  by: readonly Aggregation[],
): Pick<SeriesPage, 'times' | 'series'> {
  const times = [...new Set(rows.map(({ time }) => time))].toSorted((a, b) => a - b)
  const places = new Map(times.map((time, place) => [time, place]))
  const bySeries = Map.groupBy(rows, (row) => row.series_key)
  return { times, series: [...bySeries.values()].map((ofSeries) => columnsOf(ofSeries, by, places)) }
}

function columnsOf(
  rows: readonly ColumnRow[],
  by: readonly Aggregation[],
  places: ReadonlyMap<number, number>,
): SeriesPage['series'][number] {
  const { publisher_id: publisher, subtopic, name, unit } = rows[0] as ColumnRow
  const columns = by.map(() => Array.from<number | null>({ length: places.size }).fill(null))
  for (const { time, results } of rows) {
    const place = places.get(time) as number
    for (const [at, column] of columns.entries()) column[place] = results[at] as number
  }
  return {
    publisher,
    ...(subtopic === '' ? {} : { subtopic }),
    name,
    ...(unit === '' ? {} : { unit }),
    records: rows.reduce((sum, row) => sum + row.records, 0),
    values: Object.fromEntries(by.map((aggregation, at) => [aggregation, columns[at] as (number | null)[]])),
  }
}
