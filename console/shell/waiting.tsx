/** What a configuration says of a device that another domain has configured for longer. */
import { useQuery } from '@tanstack/react-query'
import type { Answer } from '../api/call.ts'
import { query } from '../api/queries.ts'
import { Notice } from '../design/display.tsx'

const REFRESH_MS = 30_000

const isWaiting = (page: Answer<'GET /{domain_id}/clients/configs'> | undefined) =>
  page?.configs.some(({ waiting_for_other_owner: waits }) => waits === true) === true

/** Shows nothing for a client without a configuration, and for a caller who may not read it. */
export function WaitingForOtherOwner({ domain, client }: { domain: string; client: string }) {
  const { data } = useQuery({
    // The list, because most clients have none: the configuration itself would be an error with each of them.
    ...query('GET /{domain_id}/clients/configs', {
      params: { domain_id: domain },
      query: { client_id: client, limit: 1 },
    }),
    retry: false,
    refetchInterval: ({ state }) => (isWaiting(state.data) ? REFRESH_MS : false),
  })
  if (!isWaiting(data)) return null
  return (
    <Notice tone="warn">
      The configuration waits for another owner: a device with its external id and key is served the configuration of
      another domain, which has had it for longer. It is served this one when that owner disables or deletes theirs.
    </Notice>
  )
}
