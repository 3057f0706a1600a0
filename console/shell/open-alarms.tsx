/** The number of open alarms of a domain, on every page of it. */
import { useQuery } from '@tanstack/react-query'
import { query } from '../api/queries.ts'
import { formatCompact } from '../design/display.tsx'

const REFRESH_MS = 10_000

/** Undefined while it is unknown, and for users who may not read alarms. `client`: only those of this client. */
export function useOpenAlarms(domain: string, client = ''): number | undefined {
  const { data } = useQuery({
    ...query('GET /{domain_id}/alarms', {
      params: { domain_id: domain },
      query: { status: 'open', limit: 1, client },
      isLookup: true,
    }),
    // A refusal stays one.
    refetchInterval: ({ state }) => (state.error === null ? REFRESH_MS : false),
  })
  return data?.total
}

export function OpenAlarms({ domain }: { domain: string }) {
  const count = useOpenAlarms(domain) ?? 0
  if (count === 0) return null
  return (
    <>
      <span className="grow" />
      <span className="badge">{formatCompact(count)}</span>
      <span className="visually-hidden">open</span>
    </>
  )
}
