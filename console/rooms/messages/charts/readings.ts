/** Aggregates of the series of a chart, as the server computes them, and where the nearest data is. */
import { call } from '../../../api/call.ts'
import type { Answer } from '../../../api/call.ts'
import type { Slots } from '../../../charts/points.ts'
import { DEFAULT_SERIES, SERIES, seriesQuery } from './first-readings.ts'
import { gridOf, nearestOf } from './ranges.ts'
import type { Grid, Range } from './ranges.ts'
import { MAX_CHOSEN, filterOf, seriesOf } from './series.ts'
import type { Series } from './series.ts'

export type Place = { domain_id: string; channel_id: string }
export type Reading = { readonly series: Series; readonly records: number; readonly slots: Slots }
/** `total`: the series with numeric values in the range, shown or not. */
export type Readings = { readonly grid: Grid; readonly total: number; readonly readings: readonly Reading[] }

/** Pages of series that a choice is looked for in: further ones have other series of the same names and devices. */
const MAX_PAGES = 10

type Page = Answer<typeof SERIES>

/**
 * The chosen series, or the first ones of the channel that have values in the range: one request for up to 100 series. A chosen series
 * without values is not among the readings.
 */
export async function fetchReadings(
  place: Place,
  chosen: readonly Series[] | undefined,
  range: Range,
  signal: AbortSignal,
): Promise<Readings> {
  const grid = gridOf(range)
  const ask = async (filter: ReturnType<typeof filterOf>, limit: number, offset = 0) =>
    await call(SERIES, {
      params: place,
      query: { ...filter, ...seriesQuery(grid, limit, offset) },
      signal,
    })
  if (chosen === undefined) {
    const page = await ask({}, DEFAULT_SERIES)
    return { grid, total: page.total, readings: readingsOf(page, grid) }
  }
  if (chosen.length === 0) return { grid, total: 0, readings: [] }
  const wanted = new Set(chosen.map(({ key }) => key))
  const readings: Reading[] = []
  let offset = 0
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    // oxlint-disable-next-line no-await-in-loop -- nearly always, one page has all of them
    const page = await ask(filterOf(chosen), MAX_CHOSEN, offset)
    readings.push(...readingsOf(page, grid).filter(({ series }) => wanted.has(series.key)))
    offset += page.series.length
    if (readings.length === wanted.size || offset >= page.total || page.series.length === 0) break
  }
  return { grid, total: wanted.size, readings }
}

function readingsOf({ times, series }: Page, grid: Grid): Reading[] {
  const places = times.map((time) => Math.round((time - grid.start) / grid.step))
  const onGrid = (column: readonly (number | null)[] = []) => {
    const slots = Array.from<number | null>({ length: grid.count }).fill(null)
    for (const [at, value] of column.entries()) {
      const slot = places[at] ?? -1
      if (slot >= 0 && slot < grid.count) slots[slot] = value
    }
    return slots
  }
  return series.map(({ values, records, ...fields }) => ({
    series: seriesOf(fields),
    records,
    slots: { mean: onGrid(values.avg), min: onGrid(values.min), max: onGrid(values.max), count: onGrid(values.count) },
  }))
}

/**
 * Returns when the series were measured last before the range, or first after it, whichever is nearer. Without series, the whole channel
 * counts.
 */
export async function fetchNearest(
  place: Place,
  series: readonly Series[],
  range: Range,
  signal: AbortSignal,
): Promise<number | undefined> {
  const ask = async (query: { from: number; dir: 'asc' } | { to: number; dir: 'desc' }) => {
    const { messages } = await call('GET /{domain_id}/channels/{channel_id}/messages', {
      params: place,
      query: { ...filterOf(series), ...query, order: 'time', limit: 1 },
      signal,
    })
    return messages[0]?.time
  }
  const times = await Promise.all([ask({ to: range.from, dir: 'desc' }), ask({ from: range.to, dir: 'asc' })])
  return nearestOf(times, range)
}
