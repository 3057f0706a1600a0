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

/** Returns what denies actions of a domain, such as `client_create`. Nothing is denied where there is no domain. */
export function useDomainDenied(domain: string | undefined): Denied {
  const { data } = useQuery({
    ...query('GET /domains/{domain_id}/permissions', { params: { domain_id: domain ?? '' }, isLookup: true }),
    enabled: domain !== undefined,
    staleTime: STALE_MS,
  })
  return deniedBy(data, 'in this domain')
}

/** Returns what denies actions of one channel, such as `publish`. */
export function useChannelDenied(domain: string, channel: string): Denied {
  const { data } = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}/permissions', {
      params: { domain_id: domain, channel_id: channel },
      isLookup: true,
    }),
    staleTime: STALE_MS,
  })
  return deniedBy(data, 'on this channel')
}

/** Returns what denies actions of one group, such as `set_child`. */
export function useGroupDenied(domain: string, group: string): Denied {
  const { data } = useQuery({
    ...query('GET /{domain_id}/groups/{group_id}/permissions', {
      params: { domain_id: domain, group_id: group },
      isLookup: true,
    }),
    staleTime: STALE_MS,
  })
  return deniedBy(data, 'on this group')
}

/** Returns what denies actions of one client, such as `update`. Nothing is denied while none is chosen. */
export function useClientDenied(domain: string, client: string | undefined): Denied {
  const { data } = useQuery({
    ...query('GET /{domain_id}/clients/{client_id}/permissions', {
      params: { domain_id: domain, client_id: client ?? '' },
      isLookup: true,
    }),
    enabled: client !== undefined,
    staleTime: STALE_MS,
  })
  return deniedBy(data, 'on this client')
}

/**
 * Returns what denies actions on clients, such as `command`, for an action on many: a role on one client or on its group is enough, and the
 * server decides for each. `inDomain`: the action of a role of the domain that grants it on all clients.
 */
export function useManyClientsDenied(domain: string, action: string, inDomain: string): string | undefined {
  const denied = useDomainDenied(domain)(inDomain)
  const { data } = useQuery({
    ...query('GET /{domain_id}/clients', {
      params: { domain_id: domain },
      query: { actions: action, limit: 1, secrets: false },
      isLookup: true,
    }),
    enabled: denied !== undefined,
    staleTime: STALE_MS,
  })
  return denied !== undefined && data?.clients.length === 0 ? denied : undefined
}
