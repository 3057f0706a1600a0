/** Listings and search of users (contract section 5, decision 29). */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { NO_MORE } from '#core/cursor.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ADMIN_ROLE_KEY, listedBy } from '../access/index.ts'
import type { UserPrincipal } from '../access/index.ts'
import {
  allOf,
  anyOf,
  contains,
  containsMetadata,
  createdWithin,
  parseMetadataFilter,
  withTags,
} from '../listing/index.ts'
import type { UserListing, UserRecord } from './repository.ts'
import { countUsers, listUsers } from './repository.ts'
import { getUser, isUnscopedAdmin } from './rules.ts'
import type { SearchQuery, UserQuery } from './schema.ts'
import { isSeenWhole } from './shown.ts'

/** Minimum length of a search text (contract section 5). */
const MIN_SEARCH_CHARS = 3

export class Listings {
  readonly #database: Database

  constructor({ database }: { database: Database }) {
    this.#database = database
  }

  getProfile(caller: UserPrincipal): Promise<UserRecord> {
    return getUser(this.#database.db, caller.id)
  }

  /** Throws `not_found`. */
  get(id: string): Promise<UserRecord> {
    return getUser(this.#database.db, id)
  }

  list(caller: UserPrincipal, query: UserQuery): Promise<Page<UserRecord>> {
    return this.#page({ ...query, dir: query.dir ?? 'asc' }, allOf(conditionsOf(caller, query)))
  }

  /** Finds enabled users, except platform administrators. Throws `malformed` without a filter. */
  async search(query: SearchQuery): Promise<Page<UserRecord>> {
    return await this.#page({ ...query, dir: query.dir ?? 'asc' }, allOf(searchConditionsOf(query)))
  }

  async #page(query: Omit<UserListing, 'where'> & { only_total?: boolean }, where: UserListing['where']) {
    const { offset, limit, cursor, order, dir } = query
    const [total, page] = await Promise.all([
      countUsers(this.#database.db, where),
      query.only_total === true
        ? { items: [], next: NO_MORE }
        : listUsers(this.#database.db, { where, order, dir, offset, limit, cursor }),
    ])
    return { total, offset, limit, ...page }
  }
}

function conditionsOf(caller: UserPrincipal, query: UserQuery): Sql<boolean>[] {
  const conditions = listedBy(caller, 'users', 'u.key')
  const owned = sql<boolean>`u.created_by = ${caller.id}`
  // A token that is bound to a domain lists only the users of that domain (decision 40).
  const bound = caller.boundDomainKey ?? null
  // Members of deleted and frozen domains are hidden, and those of disabled domains from callers who are not its
  // administrators.
  const shared = sql<boolean>`u.key IN (SELECT theirs.user_key FROM grants mine
      JOIN domains d ON d.key = mine.domain_key AND (d.status = 'enabled' OR (d.status = 'disabled' AND mine.role_key = ${ADMIN_ROLE_KEY}))
      JOIN grants theirs ON theirs.entity_key = mine.entity_key AND theirs.entity_type = 'domain'
    WHERE mine.user_key = ${caller.key} AND mine.entity_type = 'domain'
      AND (${bound}::bigint IS NULL OR mine.domain_key = ${bound}))`
  if (query.visibility === 'mine') conditions.push(owned)
  else if (query.visibility === 'shared') conditions.push(shared)
  else if (!isUnscopedAdmin(caller)) conditions.push(sql<boolean>`(u.key = ${caller.key} OR ${owned} OR ${shared})`)
  return [...conditions, ...userFilters(caller, query)]
}

/**
 * Conditions on the table `u`. Filters on fields that the caller may not see match nothing. Throws `malformed` for a
 * metadata filter that is not a JSON object.
 */
export function userFilters(
  caller: UserPrincipal,
  query: Omit<UserQuery, 'visibility' | 'offset' | 'limit'>,
): Sql<boolean>[] {
  const conditions: Sql<boolean>[] = []
  const isWhole = isSeenWhole(caller)
  const created = createdWithin('u', query)
  const tagged = withTags('u', query.tags)
  const isHiddenFromOthers =
    query.metadata !== undefined ||
    query.email !== undefined ||
    query.tag !== undefined ||
    created.length > 0 ||
    tagged.length > 0
  if (isHiddenFromOthers) conditions.push(isWhole)
  conditions.push(...created, ...tagged)
  if (query.status !== 'all') conditions.push(sql<boolean>`u.status = ${query.status}`)
  if (query.metadata !== undefined) conditions.push(containsMetadata('u.metadata', parseMetadataFilter(query.metadata)))
  if (query.identity !== undefined)
    conditions.push(
      sql<boolean>`((${contains('u.email', query.identity)} AND ${isWhole}) OR ${contains('u.username', query.identity)})`,
    )
  if (query.username !== undefined) conditions.push(contains('u.username', query.username))
  if (query.email !== undefined) conditions.push(contains('u.email', query.email))
  if (query.first_name !== undefined) conditions.push(contains('u.first_name', query.first_name))
  if (query.last_name !== undefined) conditions.push(contains('u.last_name', query.last_name))
  if (query.name !== undefined) {
    conditions.push(
      sql<boolean>`(${contains('u.name', query.name)} OR ${contains('u.first_name', query.name)} OR ${contains('u.last_name', query.name)})`,
    )
  }
  if (query.tag !== undefined) conditions.push(sql<boolean>`${query.tag} = ANY (u.tags)`)
  if (query.id !== undefined) conditions.push(isId(query.id) ? sql<boolean>`u.id = ${query.id}` : sql<boolean>`false`)
  return conditions
}

/** Columns that a search text is looked for in. `name` is what command lines of other products send. */
const SEARCHED = {
  name: ['u.username', 'u.name', 'u.first_name', 'u.last_name'],
  username: ['u.username'],
  email: ['u.email'],
  first_name: ['u.first_name'],
  last_name: ['u.last_name'],
} as const

function searchConditionsOf(query: SearchQuery): Sql<boolean>[] {
  const conditions: Sql<boolean>[] = []
  for (const field of ['name', 'username', 'email', 'first_name', 'last_name'] as const) {
    const text = query[field]
    if (text === undefined) continue
    if (text.length < MIN_SEARCH_CHARS)
      throw refusedField(field, `must contain at least ${MIN_SEARCH_CHARS} characters`)
    conditions.push(anyOf(SEARCHED[field].map((column) => contains(column, text))))
  }
  if (query.id !== undefined) conditions.push(isId(query.id) ? sql<boolean>`u.id = ${query.id}` : sql<boolean>`false`)
  if (conditions.length === 0)
    throw new ServiceError('malformed', 'one of name, username, email, first_name, last_name or id is required')
  return [...conditions, sql<boolean>`u.status = 'enabled'`, sql<boolean>`u.role = 'user'`]
}
