/** The readings of the channel that the console is opened with: they are asked for before the code of the charts is there. */
import { pathOf } from '../../../api/address.ts'
import { isPrepared } from '../../../api/prepared.ts'
import { DEFAULT_RANGE, RANGES, gridOf, intervalOf, parseRange } from './ranges.ts'
import type { Grid } from './ranges.ts'

/** The number of series that are shown without a choice: as many as lines can be told apart. */
export const DEFAULT_SERIES = 24

export const SERIES = 'GET /{domain_id}/channels/{channel_id}/messages/series'

export const seriesQuery = ({ start, step, count }: Grid, limit: number, offset = 0) => ({
  from: start,
  to: start + count * step,
  interval: intervalOf(step),
  limit,
  offset,
})

/** When the console was opened, in seconds: a range that ends now ended then. */
const openedAt = Date.now() / 1_000

type Parts = { readonly domain: string; readonly id: string }
const address = ({ domain, id }: Parts, seconds: number) =>
  pathOf(SERIES, {
    params: { domain_id: domain, channel_id: id },
    query: seriesQuery(gridOf({ from: openedAt - seconds, to: openedAt }), DEFAULT_SERIES),
  })

export const LATEST = 'GET /{domain_id}/channels/{channel_id}/messages/latest'
/** The number of newest values that are shown at first. */
export const FIRST_VALUES = 100

/** Nothing for a choice of series, or of a range from a time to a time. */
export function firstReadings(parts: Parts, search: URLSearchParams): string[] {
  if (search.has('series') || parseRange(search.get('from') ?? undefined, search.get('to') ?? undefined)) return []
  const seconds = RANGES[search.get('range') ?? ''] ?? RANGES[DEFAULT_RANGE] ?? 0
  const params = { domain_id: parts.domain, channel_id: parts.id }
  return [address(parts, seconds), pathOf(LATEST, { params, query: { limit: FIRST_VALUES } })]
}

/** The end of a range of this length whose readings are on the way. */
export const preparedEnd = (parts: Parts, seconds: number): number | undefined =>
  isPrepared(address(parts, seconds)) ? openedAt : undefined
