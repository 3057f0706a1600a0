/** Finds the entities of a domain by name, id or tag: those that the caller may read, and no others. */
import { contains, findNamed } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { findTasksNamed, findWorkflowsNamed } from '#queues/index.ts'
import { SEARCHED_TYPES } from './schema.ts'
import type { FoundEntity, SearchQuery, SearchResults, SearchedType } from './schema.ts'

type Found = { type: SearchedType; total: number; items: FoundEntity[] }
type Search = { domain: DomainAccess; text: string; limit: number }

export class SearchService {
  readonly #database: Database
  readonly #access: AccessPolicy

  constructor({ database, access }: { database: Database; access: AccessPolicy }) {
    this.#database = database
    this.#access = access
  }

  /** Throws `forbidden` for a domain that the caller may not enter, `malformed` for an unknown type. */
  async search(
    caller: UserPrincipal,
    domainId: string,
    { q: text, types, limit }: SearchQuery,
  ): Promise<SearchResults> {
    const searched = parseTypes(types)
    const domain = await this.#access.enter(caller, domainId)
    const found = await Promise.all(searched.map((type) => findOf(this.#database.db, type, { domain, text, limit })))
    return {
      total: found.reduce((sum, { total }) => sum + total, 0),
      totals: Object.fromEntries(found.map(({ type, total }) => [type, total])),
      results: found.flatMap(({ items }) => items),
    }
  }
}

/** Returns every type if `types` is absent. The order is that of the query. */
function parseTypes(types: string | undefined): readonly SearchedType[] {
  if (types === undefined) return SEARCHED_TYPES
  const names = [...new Set(types.split(','))]
  const isKnown = (name: string): name is SearchedType => (SEARCHED_TYPES as readonly string[]).includes(name)
  if (names.every(isKnown)) return names
  const message = `must contain only ${SEARCHED_TYPES.join(', ')}`
  throw new ServiceError('malformed', `types ${message}`, { details: [{ path: 'types', message }] })
}

async function findOf(db: Queryable, type: SearchedType, search: Search): Promise<Found> {
  if (type === 'task' || type === 'workflow') return await findCompute(db, type, search)
  const { total, items } = await findNamed(db, type, search)
  return { type, total, items: items.map((item) => ({ type, ...item })) }
}

/** Tasks and workflows are readable with `task_read` on the domain. */
async function findCompute(db: Queryable, type: 'task' | 'workflow', { domain, text, limit }: Search): Promise<Found> {
  if (!domain.can('task_read')) return { type, total: 0, items: [] }
  const search = { domainKey: domain.domainKey, text, matches: (column: string) => contains(column, text), limit }
  if (type === 'workflow') {
    const { total, items } = await findWorkflowsNamed(db, search)
    return { type, total, items: items.map((workflow) => ({ type, ...workflow, tags: [], status: 'enabled' })) }
  }
  const { total, items } = await findTasksNamed(db, search)
  return { type, total, items: items.map(({ id, name, state }) => ({ type, id, name, tags: [], status: state })) }
}
