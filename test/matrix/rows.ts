/** The rows of the access matrix: every route inside a domain, what guards it and a good body for it. */
import { newId } from '#core/ids.ts'
import type { EntityType } from '#api/identity/index.ts'
import type { Furniture, Named, Need, People, ThingName } from './world.ts'

export type Route = { method: string; url: string; action: string | undefined }

export type Row = Route & {
  /** `GET /:domain_id/groups/:group_id`, and which entity is meant where one path serves several. */
  label: string
  on: EntityType
  needs: readonly Need[]
  /** Actions that the caller must also hold, because callers can grant only what they hold (contract 2.4). */
  extras: readonly string[]
  /** The call changes the domain or its members: the cells are asked one by one, and it is put back. */
  changesDomain: boolean
  request(at: Furniture, people: People): { url: string; body?: unknown }
}

const ENTITY_OF_PARAM: readonly (readonly [string, EntityType])[] = [
  [':channel_id', 'channel'],
  [':client_id', 'client'],
  [':group_id', 'group'],
]

/** Paths that name entities by type in the query or in the path: one row for each type. */
const VARIANTS: readonly EntityType[] = ['domain', 'group', 'channel', 'client']

export function rowsOf(route: Route): Row[] {
  const { url } = route
  if (url.endsWith('/access') || url.includes('/journal/:entity_type'))
    return VARIANTS.map((type) => rowOf(route, type, ` (${type})`))
  const type = ENTITY_OF_PARAM.find(([param]) => url.includes(param))?.[1]
  const isConnecting = /\/(dis)?connect$/.test(url)
  return [rowOf(route, type ?? (isConnecting ? 'channel' : 'domain'), '')]
}

function rowOf(route: Route, on: EntityType, suffix: string): Row {
  const { method, url, action } = route
  const name = `${method} ${url
    .replace(/^\/:domain_id(?=\/)/, '')
    .replace('/role/', '/roles/')
    .replace(/\/role$/, '/roles')}`
  return {
    ...route,
    label: `${method.padEnd(6)} ${url.replaceAll(/:([a-z_]+)/g, '{$1}')}${suffix}`,
    on,
    needs: [{ on, action: action ?? '' }, ...secondNeed(name)],
    extras: /\/(assign|share)$/.test(url) && on === 'channel' ? ['publish', 'subscribe'] : [],
    changesDomain: method !== 'GET' && (url.startsWith('/domains/:domain_id') || url.includes('invitations')),
    request: (at, people) => {
      const body = bodyOf(name, at, people)
      const filled = fill(url, on, at, people)
      const query = queryOf(name, on, at, people)
      return { url: `${filled}${query}`, ...(body === undefined ? {} : { body }) }
    },
  }
}

/** What the call names: entities, `role of client` and so on. A group comes with its child. */
export function namedBy(row: Row): ReadonlySet<Named> {
  const named = new Set<Named>(row.needs.map(({ on }) => on))
  const roles = new Proxy({} as Furniture['roles'], {
    get: (_roles, type: EntityType) => {
      named.add(type).add(`role of ${type}`)
      return ''
    },
  })
  const noticing = new Proxy({} as Furniture, {
    get: (_furniture, name: ThingName | 'roles') => {
      if (name === 'roles') return roles
      named.add(name)
      return { type: name, key: 0, id: '' }
    },
  })
  row.request(noticing, { bystander: '', leaver: '', outsider: '' })
  if (named.has('group')) named.add('child')
  if (named.has('child')) named.add('group')
  return named
}

function queryOf(name: string, on: EntityType, at: Furniture, { bystander }: People): string {
  if (name.endsWith('/access')) return `?subject=${bystander}&entity=${on}:${at[on].id}&action=read`
  if (name.endsWith(' /clients/desired-state')) return '?tag=matrix'
  if (name === 'GET /search') return '?q=no-such-name'
  if (name === 'GET /latest') return `?client_id=${at.client.id}`
  if (name.endsWith('/series')) return '?from=1&to=2'
  return name.startsWith('DELETE') && name.endsWith('/messages') ? '?from=1&to=2' : ''
}

function fill(url: string, on: EntityType, at: Furniture, people: People): string {
  return (
    url
      .replace(':domain_id', () => at.domain.id)
      .replace(':client_id', () => at.client.id)
      .replace(':channel_id', () => at.channel.id)
      .replace(':group_id', () => at.group.id)
      .replace(':role_id', () => at.roles[on])
      .replace(':user_id', url.includes('invitations') ? people.outsider : people.bystander)
      .replace(':profile_id', () => at.profile ?? newId())
      .replace('/desired-state/:name', '/desired-state/config')
      .replace(':slot', 'client')
      .replace(':entity_type', on)
      .replace(':entity_id', () => at[on].id)
      .replace('*', 'room/1')
      // What the world of the matrix lacks has an id that nobody has.
      .replaceAll(/:(?:[a-z_]+_id|consumer)(?=\/|$)/g, () => newId())
  )
}

/** Calls that join two entities ask about both (contract 2.5). */
function secondNeed(name: string): Need[] {
  if (/\/(dis)?connect$/.test(name) || name.endsWith('/channels/:channel_id/clients/:client_id'))
    return [{ on: 'client', action: 'connect_to_channel' }]
  if (/(clients\/:client_id|channels\/:channel_id)\/parent$/.test(name) || /groups\/(un)?assign$/.test(name))
    return [{ on: 'parent', action: 'set_child' }]
  switch (name) {
    case 'POST /groups/:group_id/parent':
      return [{ on: 'other', action: 'set_child' }]
    case 'DELETE /groups/:group_id/parent':
      return [{ on: 'parent', action: 'set_child' }]
    case 'POST /groups/:group_id/children':
      return [{ on: 'other', action: 'set_parent' }]
    case 'DELETE /groups/:group_id/children':
    case 'DELETE /groups/:group_id/children/all':
      return [{ on: 'child', action: 'set_parent' }]
    // The first action says `update` on any client of the domain; what the call makes needs more.
    case 'POST /clients/configs':
    case 'POST /clients/bootstrap/enrollments':
      return [{ on: 'channel', action: 'read' }]
    case 'POST /mapping':
      return [{ on: 'domain', action: 'channel_create' }]
    case 'POST /connections/import':
      return [
        { on: 'domain', action: 'client_connect_to_channel' },
        { on: 'domain', action: 'client_read' },
        { on: 'domain', action: 'channel_read' },
      ]
    case 'PATCH /clients/bootstrap/enrollments/:client_id/profile':
      return [{ on: 'domain', action: 'profile_read' }]
    case 'POST /certs':
      return [{ on: 'domain', action: 'client_read' }]
    case 'POST /consumers':
    case 'POST /rules':
    case 'POST /rules/try':
      return [{ on: 'channel', action: 'subscribe' }]
    default:
      return []
  }
}

/** Of a key that nobody has any more. */
const SIGNING_REQUEST =
  '-----BEGIN CERTIFICATE REQUEST-----\nMIHMMHMCAQAwETEPMA0GA1UEAwwGbWF0cml4MFkwEwYHKoZIzj0CAQYIKoZIzj0D\nAQcDQgAEDkp46K+f5vyKZhCQl6wcx3eK85g0RguRh756wQ9ZCGlZWeyP4aqvFMMT\nZD89T01DuQW7MYaDNwJO65vyfzaQBaAAMAoGCCqGSM49BAMCA0kAMEYCIQDdQy+t\n4jQobh6+SUkpXTaKGkNxoNDoAgfLqJ0TKELobwIhAP1DKlg0946dYqEUvf5LdKuB\nry6TEZ4sdOZYbJDHqiG6\n-----END CERTIFICATE REQUEST-----'

/** A body that only a refusal can keep from working. */
function bodyOf(name: string, at: Furniture, { bystander, leaver, outsider }: People): unknown {
  const [method = '', url = ''] = name.split(' ')
  if (method === 'GET') return undefined
  const pair = () => ({ client_ids: [at.client.id], types: ['publish'] })
  if (/channels\/(dis)?connect$/.test(url) || /^\/(dis)?connect$/.test(url))
    return { ...pair(), channel_ids: [at.channel.id] }
  if (/:channel_id\/(dis)?connect$/.test(url)) return pair()
  if (url.endsWith('/messages') || url.endsWith('/messages/*') || url.includes('/c/:channel_id'))
    return [{ n: 'voltage', u: 'V', v: 120.1 }]
  if (url.endsWith('/bulk') && url !== '/alarms/bulk') return [{ name: 'new' }]
  if (url.endsWith('/tags')) return { tags: ['north'] }
  if (url.endsWith('/secret')) return { secret: `secret-${newId()}` }
  if (/(clients\/:client_id|channels\/:channel_id)\/parent$/.test(url))
    return method === 'POST' ? { parent_group_id: at.parent.id } : undefined
  if (url.endsWith('/groups/assign') || url.endsWith('/groups/unassign')) return { group_ids: [at.parent.id] }
  if (/(users\/assign|share)$/.test(url) && !url.endsWith('/unshare'))
    return { relation: 'member', user_ids: [bystander] }
  if (/(users\/unassign|unshare)$/.test(url)) return { user_ids: [leaver] }
  const external = { external_id: newId(), external_key: 'a-key-of-the-factory' }
  switch (name) {
    case 'POST /access/check':
      return { questions: [{ entity: `domain:${at.domain.id}`, action: 'read' }] }
    case 'POST /certs':
      return { client_id: at.client.id }
    case 'POST /certs/issue/:client_id':
      return { ttl: '1h' }
    case 'POST /certs/csrs/:client_id':
      return { csr: SIGNING_REQUEST }
    case 'POST /clients/configs':
    case 'POST /clients/bootstrap/enrollments':
      return { ...external, channels: [at.channel.id] }
    case 'POST /clients/bootstrap/profiles':
    case 'POST /clients/bootstrap/profiles/upload':
      return { name: 'new' }
    case 'POST /clients/bootstrap/profiles/:profile_id/render-preview':
      return {}
    case 'PATCH /clients/bootstrap/enrollments/:client_id/profile':
      return { profile_id: newId() }
    case 'PUT /clients/bootstrap/enrollments/:client_id/bindings':
      return { bindings: [{ slot: 'client', type: 'client' }] }
    case 'PATCH /clients/configs/certs/:client_id':
      return { ca_cert: 'authority' }
    case 'PUT /clients/configs/connections/:client_id':
      return { channels: [at.channel.id] }
    case 'PUT /clients/state/:client_id':
      return { state: 0 }
    case 'POST /mapping':
      return external
    case 'POST /clients/import':
    case 'POST /channels/import':
      return [{ name: 'new' }]
    case 'POST /connections/import':
      return { ...pair(), channel_ids: [at.channel.id] }
    case 'POST /clients/:client_id/commands':
      return { name: 'reboot' }
    case 'POST /clients/commands':
      // A tag that no client has: otherwise they would count against the limit of those that run.
      return { name: 'reboot', tag: 'no-such-tag' }
    case 'POST /consumers':
      return { name: `new-${newId()}`, channels: [at.channel.id] }
    case 'POST /consumers/:consumer/seek':
      return { from: 'latest' }
    case 'POST /consumers/:consumer/ack':
    case 'POST /consumers/:consumer/nack':
      return { positions: ['1-1-1'] }
    case 'POST /consumers/:consumer/dead-letters/retry':
    case 'POST /consumers/:consumer/dead-letters/discard':
    case 'POST /rules/:rule_id/dead-letters/retry':
    case 'POST /rules/:rule_id/dead-letters/discard':
      return { all: true }
    case 'POST /rules':
      return {
        name: `new-${newId()}`,
        source: { type: 'messages', channels: [at.channel.id] },
        condition: 'value > 30.0',
      }
    case 'POST /maintenance-windows':
      return { name: `new-${newId()}`, schedule: '0 3 * * 0', duration: '1h' }
    case 'POST /rules/try':
      return { source: { type: 'messages', channels: [at.channel.id] }, condition: 'value > 30.0' }
    case 'POST /rules/:rule_id/enable':
      return {}
    case 'POST /alarms/bulk':
      return { ids: [newId()], status: 'acknowledged' }
    case 'PATCH /alarms/:alarm_id':
      return { status: 'acknowledged' }
    case 'POST /dashboards':
      return { name: 'new' }
    case 'PUT /preferences':
      return { preferences: { theme: 'dark' } }
    case 'POST /groups/:group_id/parent':
      return { parent_id: at.other.id }
    case 'POST /groups/:group_id/children':
      return { children_ids: [at.other.id] }
    case 'DELETE /groups/:group_id/children':
      return { children_ids: [at.child.id] }
    case 'POST /domains/:domain_id/invitations':
      return { invitee_user_id: outsider, role_id: at.roles.domain, resend: true }
    case 'DELETE /domains/:domain_id/invitations':
      return { user_id: outsider }
    case 'POST /invitations':
      return { user_id: outsider, domain_id: at.domain.id, relation: 'member', resend: true }
  }
  if (url.endsWith('/quotas')) return { own: {} }
  if (url.endsWith('/roles/members')) return { member_ids: [leaver] }
  if (/\/actions(\/delete)?$/.test(url)) return { actions: ['read'] }
  if (url.endsWith(':role_id/members')) return { members: [leaver] }
  if (url.endsWith(':role_id/members/delete')) return { members: [bystander] }
  if (url.endsWith('/roles')) return { role_name: newId() }
  if (method === 'PUT' || method === 'PATCH')
    return url.endsWith(':role_id') ? { role_name: newId() } : { name: 'renamed' }
  if (method === 'POST' && /\/(clients|channels|groups)$/.test(url)) return { name: 'new' }
  return undefined
}
