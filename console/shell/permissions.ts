/** What the user may do: an action that no role grants is shown as impossible, before a form is filled in. */
import { useQuery } from '@tanstack/react-query'
import { query } from '../api/queries.ts'

const STALE_MS = 30_000

/** Why an action is not possible; undefined while it is, or while the answer is not there. The server decides again. */
export type Denied = (action: string) => string | undefined

type Permissions = { permissions: readonly string[] } | undefined

function deniedBy(answer: Permissions, where: string): Denied {
  return (action) =>
    answer === undefined || answer.permissions.includes(action)
      ? undefined
      : `None of your roles ${where} has the action ${action}`
}

/** For actions of a domain: `client_create`. */
export function useDomainDenied(domain: string): Denied {
  const { data } = useQuery({
    ...query('GET /domains/{domain_id}/permissions', { params: { domain_id: domain }, isLookup: true }),
    staleTime: STALE_MS,
  })
  return deniedBy(data, 'in this domain')
}

/** For actions of one client: `update`. */
export function useClientDenied(domain: string, client: string): Denied {
  const { data } = useQuery({
    ...query('GET /{domain_id}/clients/{client_id}/permissions', {
      params: { domain_id: domain, client_id: client },
      isLookup: true,
    }),
    staleTime: STALE_MS,
  })
  return deniedBy(data, 'on this client')
}
