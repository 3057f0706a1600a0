/**
 * Resolves the route or alias of a domain where the API requires the id: routes are accepted in message paths only
 * (decision 23).
 */
import type { Cli } from './command.ts'
import { RefusedError } from './failures.ts'
import { isRecord } from './values.ts'

const PAGE = 100
/** A caller with more domains must use ids. */
const MAX_PAGES = 20
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** The id of a route; a text that is not a route of the caller is returned unchanged, and the server validates it. */
export async function domainIdOf(cli: Cli, domain: string, token: string | undefined): Promise<string> {
  if (UUID.test(domain) || (token === undefined && !cli.session.hasToken())) return domain
  try {
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const { value } = await cli.request({
        method: 'GET',
        service: 'domains',
        path: '/domains',
        query: { limit: String(PAGE), offset: String(page * PAGE), order: 'created_at', status: 'all' },
        token,
      })
      const domains = isRecord(value) && Array.isArray(value['domains']) ? value['domains'].filter(isRecord) : []
      const found = domains.find((one) => one['route'] === domain || one['alias'] === domain)
      if (found !== undefined) return String(found['id'])
      if (domains.length < PAGE) break
    }
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
  }
  return domain
}
