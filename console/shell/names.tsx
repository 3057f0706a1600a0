/** Names of entities by id. What a page shows at once is asked for in one request. */
import { useQueries, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { call } from '../api/call.ts'
import { query } from '../api/queries.ts'
import { MAX_IDS, together } from '../api/together.ts'
import { paths } from '../paths.ts'

const NAMES_MS = 60_000

type Listed = readonly { readonly id: string; readonly name: string }[]

const shortId = (id: string) => id.slice(0, 8)
const options = { staleTime: NAMES_MS, retry: false, refetchOnWindowFocus: false } as const

/** Looks names up in a listing. The name of what the user may not see is null. */
function namesOf(kind: string, list: (domain: string, ids: string) => Promise<Listed>) {
  const find = together(async (domain, ids) => (await list(domain, ids)).map(({ id, name }) => [id, name] as const))
  return (domain: string, id: string) => ({
    queryKey: ['name', kind, domain, id],
    queryFn: async () => await find(domain, id),
    enabled: id !== '',
    ...options,
  })
}

const isLookup = true
const listing = { limit: MAX_IDS, status: 'all' } as const
const clientName = namesOf('client', async (domain, id) => {
  const params = { domain_id: domain }
  return (await call('GET /{domain_id}/clients', { params, query: { ...listing, id, secrets: false }, isLookup }))
    .clients
})
const channelName = namesOf('channel', async (domain, id) => {
  const params = { domain_id: domain }
  return (await call('GET /{domain_id}/channels', { params, query: { ...listing, id }, isLookup })).channels
})
const groupName = namesOf('group', async (domain, id) => {
  const params = { domain_id: domain }
  return (await call('GET /{domain_id}/groups', { params, query: { ...listing, id }, isLookup })).groups
})

/** The given name, undefined while it is unknown. */
const given = (name: string | null | undefined) => (name === null || name === '' ? undefined : name)

/** How the publishers of messages are called. */
export function useClientNames(domain: string, ids: readonly string[]): (id: string) => string {
  const names = useQueries({
    queries: ids.map((id) => clientName(domain, id)),
    combine: (results) => new Map(results.map(({ data }, at) => [ids[at], given(data)])),
  })
  return (id) => (id === '' ? 'a user' : (names.get(id) ?? shortId(id)))
}

/** The name without a link. */
export function ClientLabel({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery(clientName(domain, id))
  return id === '' ? 'a user' : (given(data) ?? shortId(id))
}

export function ClientName({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery(clientName(domain, id))
  if (id === '') return <span className="muted">a user</span>
  return (
    <Link dir="auto" to={paths.client(domain, id)}>
      {given(data) ?? <code>{shortId(id)}</code>}
    </Link>
  )
}

const BY_TYPE = { client: clientName, channel: channelName, group: groupName } as const
export type NamedType = keyof typeof BY_TYPE
export const isNamedType = (type: string): type is NamedType => Object.hasOwn(BY_TYPE, type)

/** Returns the name of an entity; undefined while it is unknown, and for what is gone. Without an id, nothing is asked. */
export function useNameOf(type: NamedType, domain: string, id: string): string | undefined {
  const { data } = useQuery(BY_TYPE[type](domain, id))
  return given(data)
}

/** Returns the name without a link. */
export function useChannelName(domain: string, id: string): string {
  const { data } = useQuery(channelName(domain, id))
  return given(data) ?? shortId(id)
}

/** `to`: another place than the page of the channel. */
export function ChannelName({ domain, id, to }: { domain: string; id: string; to?: string }) {
  const { data } = useQuery(channelName(domain, id))
  return (
    <Link dir="auto" to={to ?? paths.channel(domain, id)}>
      {given(data) ?? <code>{shortId(id)}</code>}
    </Link>
  )
}

export function WorkerName({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery({
    ...query('GET /workers/{worker_id}', { params: { worker_id: id }, isLookup }),
    ...options,
    enabled: id !== '',
  })
  const name = data?.id === id ? data.name : <code>{shortId(id)}</code>
  return (
    <Link dir="auto" title={id} to={paths.worker(domain, id)}>
      {name}
    </Link>
  )
}

export function UserName({ id }: { id: string }) {
  const { data } = useQuery({ ...query('GET /users/{user_id}', { params: { user_id: id }, isLookup }), ...options })
  const name = data?.id === id ? (data.credentials?.username ?? data.email) : undefined
  return (
    <span dir="auto" title={id}>
      {name ?? <code>{shortId(id)}</code>}
    </span>
  )
}

export function GroupName({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery(groupName(domain, id))
  return (
    <Link dir="auto" to={paths.group(domain, id)}>
      {given(data) ?? <code>{shortId(id)}</code>}
    </Link>
  )
}
