/** The newest value of a client in a list. Those of the rows that are shown are one request. */
import { useQuery } from '@tanstack/react-query'
import { call } from '../../api/call.ts'
import type { LatestValues } from '../../api/operations.ts'
import { formatBytes, formatValue, relativeTime } from '../../design/display.tsx'

type Newest = LatestValues['values'][number]

/** Values are asked for again as often as the list. */
const REFRESH_MS = 10_000
/** Rows that appear within this time share a request. */
const TOGETHER_MS = 20
/** Clients of one request. */
const MAX_CLIENTS = 100

type Waiting = { ids: Set<string>; answer: Promise<Map<string, Newest>> }
const waiting = new Map<string, Waiting>()

async function ask(domain: string, ids: readonly string[]): Promise<Map<string, Newest>> {
  const pages = Array.from({ length: Math.ceil(ids.length / MAX_CLIENTS) }, (_none, page) =>
    call('GET /{domain_id}/latest', {
      params: { domain_id: domain },
      query: { client_id: ids.slice(page * MAX_CLIENTS, (page + 1) * MAX_CLIENTS).join(',') },
    }),
  )
  const values = (await Promise.all(pages)).flatMap((page) => page.values)
  return new Map(values.map((value) => [value.client_id, value]))
}

async function newestOf(domain: string, client: string): Promise<Newest | null> {
  let together = waiting.get(domain)
  if (together === undefined) {
    const ids = new Set<string>()
    const answer = new Promise<void>((resolve) => {
      setTimeout(resolve, TOGETHER_MS)
    }).then(() => {
      waiting.delete(domain)
      return ask(domain, [...ids])
    })
    together = { ids, answer }
    waiting.set(domain, together)
  }
  together.ids.add(client)
  return (await together.answer).get(client) ?? null
}

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
