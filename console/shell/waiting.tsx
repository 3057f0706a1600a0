/** What a configuration says of a device that another domain has configured for longer. */
import { useQuery } from '@tanstack/react-query'
import { query } from '../api/queries.ts'
import { Notice } from '../design/display.tsx'

const REFRESH_MS = 30_000

/** Shows nothing for a client without a configuration, and for a caller who may not read it. */
export function WaitingForOtherOwner({ domain, client }: { domain: string; client: string }) {
  const { data } = useQuery({
    ...query('GET /{domain_id}/clients/configs/{client_id}', { params: { domain_id: domain, client_id: client } }),
    retry: false,
    refetchInterval: ({ state }) => (state.data?.waiting_for_other_owner === true ? REFRESH_MS : false),
  })
  if (data?.waiting_for_other_owner !== true) return null
  return (
    <Notice tone="warn">
      The configuration waits for another owner: a device with its external id and key is served the configuration of
      another domain, which has had it for longer. It is served this one when that owner disables or deletes theirs.
    </Notice>
  )
}
