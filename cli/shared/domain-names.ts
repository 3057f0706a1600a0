/**
 * Resolves the route or alias of a domain where the API requires the id: routes are accepted in message paths only
 * (decision 23).
 */
import type { Cli } from './command.ts'
import { RefusedError } from './failures.ts'
import { rowsOf } from './pages.ts'

/** A caller with more domains must use ids. */
const MAX_READ = 2000
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** The id of a route; a text that is not a route of the caller is returned unchanged, and the server validates it. */
export async function domainIdOf(cli: Cli, domain: string, token: string | undefined): Promise<string> {
  if (UUID.test(domain) || (token === undefined && !cli.session.hasToken())) return domain
  let read = 0
  try {
    const query = { order: 'created_at', status: 'all' }
    for await (const one of rowsOf(
      cli,
      { method: 'GET', service: 'domains', path: '/domains', query, token },
      'domains',
    )) {
      if (one['route'] === domain || one['alias'] === domain) return String(one['id'])
      if ((read += 1) >= MAX_READ) break
    }
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
  }
  return domain
}
