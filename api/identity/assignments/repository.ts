/** Who is assigned: the users with a role on the entity itself, and the filters of their listing (contract 4.3). */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { RoleEntity } from '../roles/index.ts'
import type { UserRecord } from '../users/index.ts'
import { countUsers, listUsers } from '../users/index.ts'
import { allOf, contains, containsMetadata, parseMetadataFilter } from '../wire/index.ts'
import type { AssignedQuery } from './schema.ts'

/** Throws `malformed` for a metadata filter that is no JSON object: before anything is looked up (decision 45). */
export function parseAssignedFilter(query: AssignedQuery): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = [sql<SqlBool>`u.status <> 'deleted'`]
  if (query.status !== 'all') conditions.push(sql<SqlBool>`u.status = ${query.status}`)
  if (query.metadata !== undefined) conditions.push(containsMetadata('u.metadata', parseMetadataFilter(query.metadata)))
  if (query.identity !== undefined)
    conditions.push(sql<SqlBool>`(${contains('u.email', query.identity)} OR ${contains('u.username', query.identity)})`)
  if (query.name !== undefined) {
    conditions.push(
      sql<SqlBool>`(${contains('u.name', query.name)} OR ${contains('u.first_name', query.name)} OR ${contains('u.last_name', query.name)})`,
    )
  }
  for (const field of ['first_name', 'last_name', 'username', 'email'] as const) {
    const text = query[field]
    if (text !== undefined) conditions.push(contains(`u.${field}`, text))
  }
  if (query.tag !== undefined) conditions.push(sql<SqlBool>`${query.tag} = ANY (u.tags)`)
  if (query.id !== undefined) conditions.push(isId(query.id) ? sql<SqlBool>`u.id = ${query.id}` : sql<SqlBool>`false`)
  return conditions
}

export async function listAssigned(
  db: Queryable,
  entity: RoleEntity,
  query: AssignedQuery,
  filter: readonly RawBuilder<SqlBool>[],
): Promise<Page<UserRecord>> {
  const { order, dir = 'asc', offset, limit } = query
  const assigned = sql<SqlBool>`u.key IN (SELECT g.user_key FROM grants g
    WHERE g.entity_key = ${entity.key} AND g.entity_type = ${entity.type})`
  const where = allOf([assigned, ...filter])
  const [total, items] = await Promise.all([
    countUsers(db, where),
    query.only_total === true ? [] : listUsers(db, { where, order, dir, offset, limit }),
  ])
  return { total, offset, limit, items }
}
