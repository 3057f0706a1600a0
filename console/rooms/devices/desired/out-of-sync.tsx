/** Whether a client in a list differs from what is desired. Those of the rows that are shown are one request. */
import { useQuery } from '@tanstack/react-query'
import { call } from '../../../api/call.ts'
import { MAX_IDS, together } from '../../../api/together.ts'
import { State } from '../../../design/display.tsx'

/** As often as the list. */
const REFRESH_MS = 10_000

/** Knows the clients that differ. A client whose state the user may not read is none of them. */
const outOfSync = together<true>(async (domain, ids) => {
  const { clients } = await call('GET /{domain_id}/clients', {
    params: { domain_id: domain },
    query: { id: ids, out_of_sync: true, status: 'all', secrets: false, limit: MAX_IDS },
  })
  return clients.map(({ id }) => [id, true] as const)
})

export function OutOfSync({ domain, client }: { domain: string; client: string }) {
  const { data } = useQuery({
    queryKey: ['out of sync', domain, client],
    queryFn: async () => await outOfSync(domain, client),
    refetchInterval: REFRESH_MS,
    staleTime: REFRESH_MS,
    retry: false,
  })
  return data === true ? <State tone="warn">Out of sync</State> : null
}
