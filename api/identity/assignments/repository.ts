/** SQL of assignments: the users with a role on the entity itself, and the filters of their listing (contract 4.3). */
import { NO_MORE } from '#core/cursor.ts'
import type { Queryable } from '#core/database/index.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { UserPrincipal } from '../access/index.ts'
import type { RoleEntity } from '../roles/index.ts'
import type { UserRecord } from '../users/index.ts'
import { countUsers, listUsers, userFilters } from '../users/index.ts'
import { allOf } from '../listing/index.ts'
import type { AssignedQuery } from './schema.ts'

/** Throws `malformed` for a metadata filter that is not a JSON object. It runs before any look-up (decision 45). */
export function parseAssignedFilter(caller: UserPrincipal, query: AssignedQuery): Sql<boolean>[] {
  return [sql<boolean>`u.status <> 'deleted'`, ...userFilters(caller, query)]
}

export async function listAssigned(
  db: Queryable,
  entity: RoleEntity,
  query: AssignedQuery,
  filter: readonly Sql<boolean>[],
): Promise<Page<UserRecord>> {
  const { order, dir = 'asc', offset, limit, cursor } = query
  const assigned = sql<boolean>`u.key IN (SELECT g.user_key FROM grants g
    WHERE g.entity_key = ${entity.key} AND g.entity_type = ${entity.type})`
  const where = allOf([assigned, ...filter])
  const [total, page] = await Promise.all([
    countUsers(db, where),
    query.only_total === true
      ? { items: [], next: NO_MORE }
      : listUsers(db, { where, order, dir, offset, limit, cursor }),
  ])
  return { total, offset, limit, ...page }
}
