/**
 * Lists the groups in which a user has a role: for the user, their owner, and callers who may see the members of these
 * groups (specification section 4).
 */
import type { Database } from '#core/database/index.ts'
import { NO_MORE } from '#core/cursor.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { GroupQuery, ListedGroup } from '../groups/index.ts'
import { countGroups, listGroups, parseFilter, recordConditions } from '../groups/index.ts'
import { allOf } from '../listing/index.ts'
import type { UserRecord } from './repository.ts'
import { getUser, isUnscopedAdmin } from './rules.ts'

export class Memberships {
  readonly #database: Database
  readonly #access: AccessPolicy

  constructor({ database, access }: { database: Database; access: AccessPolicy }) {
    this.#database = database
    this.#access = access
  }

  /** Throws `not_found`, and `forbidden` for a caller without `membership` on any group of the user. */
  async listMemberships(caller: UserPrincipal, userId: string, query: GroupQuery): Promise<Page<ListedGroup>> {
    const filter = parseFilter(query)
    const user = await getUser(this.#database.db, userId)
    const shown = allOf([
      sql<boolean>`EXISTS (SELECT 1 FROM grants held
          WHERE held.entity_key = g.key AND held.entity_type = 'group' AND held.user_key = ${user.key})`,
      await this.#shownTo(caller, user),
    ])
    const mayAsk = isUnscopedAdmin(caller) || caller.id === user.id || caller.id === user.createdBy
    if (!mayAsk && (await this.#count(shown)) === 0)
      throw new ServiceError(
        'forbidden',
        'failed to perform authorization: requires membership (c_list) on a group of the user',
      )
    const { offset, limit, cursor, order, dir = 'asc' } = query
    const where = allOf([shown, ...recordConditions(filter)])
    const levels = query.tree === true ? ('upper first' as const) : undefined
    const [total, { groups, next }] = await Promise.all([
      this.#count(where),
      query.only_total === true
        ? { groups: [], next: NO_MORE }
        : listGroups(this.#database.db, { where, hierarchy: undefined, order, dir, levels, offset, limit, cursor }),
    ])
    return { total, offset, limit, items: groups, next }
  }

  /** Condition on the groups that the caller may see, independent of their members. */
  async #shownTo(caller: UserPrincipal, user: UserRecord): Promise<Sql<boolean>> {
    if (isUnscopedAdmin(caller)) return sql<boolean>`true`
    if (caller.id === user.id || caller.id === user.createdBy) {
      const bound = caller.boundDomainKey ?? null
      return sql<boolean>`(${bound}::bigint IS NULL OR g.domain_key = ${bound})
        AND g.domain_key IN (SELECT d.key FROM domains d WHERE d.status = 'enabled')`
    }
    const each = (await this.#access.enterAll(caller)).map(
      (domain) =>
        sql<boolean>`(g.domain_key = ${domain.domainKey} AND ${domain.reachable('group', 'membership', 'g')})`,
    )
    return each.length === 0 ? sql<boolean>`false` : sql<boolean>`(${sql.join(each, sql` OR `)})`
  }

  async #count(where: Sql<boolean>): Promise<number> {
    const { rows } = await countGroups({ where, hierarchy: undefined }).execute(this.#database.db)
    return rows[0]?.total ?? 0
  }
}
