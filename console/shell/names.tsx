/** Names of entities by id: one request each, shared by the page. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { query } from '../api/queries.ts'
import { paths } from '../paths.ts'

const NAMES_MS = 60_000
const shortId = (id: string) => id.slice(0, 8)
const options = { staleTime: NAMES_MS, retry: false, refetchOnWindowFocus: false } as const

/** The name without a link. */
export function ClientLabel({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery({
    ...query('GET /{domain_id}/clients/{client_id}', { params: { domain_id: domain, client_id: id } }),
    ...options,
    enabled: id !== '',
  })
  return id === '' ? 'a user' : data?.id === id && data.name !== '' ? data.name : shortId(id)
}

export function ClientName({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery({
    ...query('GET /{domain_id}/clients/{client_id}', { params: { domain_id: domain, client_id: id } }),
    ...options,
    enabled: id !== '',
  })
  if (id === '') return <span className="muted">a user</span>
  const name = data?.id === id && data.name !== '' ? data.name : undefined
  return <Link to={paths.client(domain, id)}>{name ?? <code>{shortId(id)}</code>}</Link>
}

/** `to`: another place than the page of the channel. */
export function ChannelName({ domain, id, to }: { domain: string; id: string; to?: string }) {
  const { data } = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}', { params: { domain_id: domain, channel_id: id } }),
    ...options,
    enabled: id !== '',
  })
  const name = data?.id === id && data.name !== '' ? data.name : undefined
  return <Link to={to ?? paths.channel(domain, id)}>{name ?? <code>{shortId(id)}</code>}</Link>
}

export function WorkerName({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery({
    ...query('GET /workers/{worker_id}', { params: { worker_id: id } }),
    ...options,
    enabled: id !== '',
  })
  const name = data?.id === id ? data.name : <code>{shortId(id)}</code>
  return (
    <Link title={id} to={paths.worker(domain, id)}>
      {name}
    </Link>
  )
}

export function UserName({ id }: { id: string }) {
  const { data } = useQuery({ ...query('GET /users/{user_id}', { params: { user_id: id } }), ...options })
  const name = data?.id === id ? (data.credentials?.username ?? data.email) : undefined
  return <span title={id}>{name ?? <code>{shortId(id)}</code>}</span>
}

export function GroupName({ domain, id }: { domain: string; id: string }) {
  const { data } = useQuery({
    ...query('GET /{domain_id}/groups/{group_id}', { params: { domain_id: domain, group_id: id } }),
    ...options,
  })
  const name = data?.id === id ? data.name : undefined
  return <Link to={paths.group(domain, id)}>{name ?? <code>{shortId(id)}</code>}</Link>
}
