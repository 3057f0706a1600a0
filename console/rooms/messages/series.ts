/** The series of a channel and their aggregates, as the server computes them. */
import { call } from '../../api/call.ts'

export type Series = {
  readonly key: string
  readonly name: string
  readonly unit: string
  readonly publisher: string
  readonly subtopic: string
}

type Latest = { name?: string; unit?: string; publisher: string; subtopic?: string }
export const seriesOf = ({ name = '', unit = '', publisher, subtopic = '' }: Latest): Series => ({
  key: JSON.stringify([publisher, subtopic, name, unit]),
  name,
  unit,
  publisher,
  subtopic,
})

export const RANGES: Readonly<Record<string, number>> = {
  '5m': 300,
  '1h': 3_600,
  '6h': 21_600,
  '1d': 86_400,
  '7d': 604_800,
  '30d': 2_592_000,
}
const STEPS: readonly (readonly [string, number])[] = [
  ['1s', 1],
  ['5s', 5],
  ['10s', 10],
  ['30s', 30],
  ['1m', 60],
  ['5m', 300],
  ['15m', 900],
  ['1h', 3_600],
  ['6h', 21_600],
  ['24h', 86_400],
]
const MAX_BUCKETS = 300

export function stepOf(seconds: number): readonly [string, number] {
  return STEPS.find(([, step]) => seconds / step <= MAX_BUCKETS) ?? ['24h', 86_400]
}

export type Aggregates = { times: number[]; mean: (number | null)[]; min: (number | null)[]; max: (number | null)[] }

/** One value for each interval; null where nothing was measured. */
export async function fetchAggregates(
  place: { domain_id: string; channel_id: string },
  series: Series,
  { from, to }: { from: number; to: number },
  signal: AbortSignal,
): Promise<Aggregates> {
  const [interval, step] = stepOf(to - from)
  const start = Math.floor(from / step) * step
  const count = Math.ceil((to - start) / step)
  const times = Array.from({ length: count }, (_none, index) => start + index * step)
  const { messages } = await call('GET /{domain_id}/channels/{channel_id}/messages', {
    params: place,
    query: {
      name: series.name,
      subtopic: series.subtopic,
      publisher: series.publisher,
      from: start,
      to: start + count * step,
      aggregation: 'avg,min,max',
      interval,
      limit: 1_000,
      dir: 'asc',
    },
    signal,
  })
  const empty = () => Array.from<number | null>({ length: count }).fill(null)
  const [mean, min, max] = [empty(), empty(), empty()]
  for (const { time, values, unit = '' } of messages) {
    const at = Math.round(((time ?? 0) - start) / step)
    if (at < 0 || at >= count || unit !== series.unit) continue
    mean[at] = values?.avg ?? null
    min[at] = values?.min ?? null
    max[at] = values?.max ?? null
  }
  return { times, mean, min, max }
}
