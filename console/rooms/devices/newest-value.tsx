/** The newest value of a client in a list. Those of the rows that are shown are one request. */
import { useQuery } from '@tanstack/react-query'
import { call } from '../../api/call.ts'
import type { LatestValues } from '../../api/operations.ts'
import { together } from '../../api/together.ts'
import { formatBytes, formatValue, relativeTime } from '../../design/display.tsx'

type Newest = LatestValues['values'][number]

/** Values are asked for again as often as the list. */
const REFRESH_MS = 10_000

const newestOf = together<Newest>(async (domain, ids) => {
  const { values } = await call('GET /{domain_id}/latest', { params: { domain_id: domain }, query: { client_id: ids } })
  return values.map((value) => [value.client_id, value] as const)
})

function textOf({ value, string_value: word, bool_value: flag, data_bytes: bytes, sum }: Newest): string {
  if (value !== undefined) return formatValue(value)
  if (sum !== undefined) return `sum ${formatValue(sum)}`
  return word ?? (flag === undefined ? formatBytes(bytes ?? 0) : String(flag))
}

export function NewestValue({ domain, client }: { domain: string; client: string }) {
  const { data } = useQuery({
    queryKey: ['newest', domain, client],
    queryFn: async () => await newestOf(domain, client),
    refetchInterval: REFRESH_MS,
    staleTime: REFRESH_MS,
    retry: false,
  })
  if (data === undefined || data === null) return null
  const of = data.subtopic === undefined ? data.name : `${data.name} under ${data.subtopic}`
  return (
    <span className="clip" title={`${of}, ${relativeTime(data.time * 1_000)}`}>
      {textOf(data)} <span className="muted">{data.unit ?? (data.name === '' ? '' : data.name)}</span>
    </span>
  )
}
