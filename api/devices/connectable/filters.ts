/** The filters that listings of clients and channels share. `alias` is the alias of the listed table. */
import {
  CONNECTION_BITS,
  contains,
  containsMetadata,
  createdWithin,
  hasIdOf,
  hasTrigrams,
  parseMetadataFilter,
} from '#api/identity/index.ts'
import type { ConnectionType, CreatedQuery, Filters } from '#api/identity/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type DeviceQuery = CreatedQuery & {
  name?: string
  tag?: string
  tags?: string
  metadata?: string
  id?: string
  connection_type?: ConnectionType
  group?: string
}

/**
 * Returns all filters except the status, together with the conditions of `connected`. Throws `malformed` for a metadata
 * filter that is not a JSON object. An invalid id matches nothing.
 */
export function deviceFilters(query: DeviceQuery, alias: string, connected: readonly Sql<boolean>[]): Filters {
  const column = (name: string) => sql.ref(`${alias}.${name}`)
  const conditions = [...connected]
  if (query.name !== undefined) conditions.push(contains(`${alias}.name`, query.name))
  const tags = tagsOf(query)
  if (tags.length > 0) conditions.push(sql<boolean>`${column('tags')} @> ${tags}::text[]`)
  if (query.metadata !== undefined)
    conditions.push(containsMetadata(`${alias}.metadata`, parseMetadataFilter(query.metadata)))
  conditions.push(...createdWithin(alias, query))
  if (query.id !== undefined) conditions.push(hasIdOf(`${alias}.id`, query.id))
  if (query.group === '') conditions.push(sql<boolean>`${column('parent_group_key')} IS NULL`)
  else if (query.group !== undefined) {
    conditions.push(
      isId(query.group)
        ? // The parent key determines the domain, so the same group id in another domain does not match.
          sql<boolean>`${column('parent_group_key')} = ANY (ARRAY(SELECT g.key FROM groups g WHERE g.id = ${query.group}))`
        : sql<boolean>`false`,
    )
  }
  const { name = '', metadata, id, group } = query
  const isIndexed =
    hasTrigrams(name) || tags.length + connected.length > 0 || [metadata, id, group].some((one) => one !== undefined)
  return { conditions, isIndexed }
}

const tagsOf = ({ tag = '', tags = '' }: DeviceQuery) => [...tags.split(','), tag].filter((one) => one !== '')

/**
 * Matches rows that are connected to the client or channel `peerId` of the same domain, with the given type or any
 * type.
 */
export function connectedTo(
  alias: string,
  type: 'client' | 'channel',
  peerId: string,
  connectionType: ConnectionType | undefined,
): Sql<boolean> {
  if (!isId(peerId)) return sql<boolean>`false`
  const bits =
    connectionType === undefined ? CONNECTION_BITS.publish | CONNECTION_BITS.subscribe : CONNECTION_BITS[connectionType]
  const own = sql.ref(type === 'client' ? 'n.client_key' : 'n.channel_key')
  const peer = sql.ref(type === 'client' ? 'n.channel_key' : 'n.client_key')
  const peers = sql.table(type === 'client' ? 'channels' : 'clients')
  // Both ends of a connection belong to one domain, so a peer with the same id in another domain does not match rows of
  // this one.
  return sql<boolean>`${sql.ref(`${alias}.key`)} IN (SELECT ${own} FROM connections n
    WHERE ${peer} = ANY (ARRAY(SELECT p.key FROM ${peers} p WHERE p.id = ${peerId})) AND n.types & ${bits}::smallint <> 0)`
}
