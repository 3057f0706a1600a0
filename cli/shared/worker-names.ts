/** Resolves the name of a worker where the API requires the id. */
import type { Cli } from './command.ts'
import { RefusedError, UsageError } from './failures.ts'
import { isRecord } from './values.ts'

const PAGE = 100
/** A caller with more workers must use ids. */
const MAX_PAGES = 50
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/**
 * The id of the worker with this name; a text that is no name is returned unchanged, and the server validates it.
 * Throws UsageError with the ids when several workers have the name.
 */
export async function workerIdOf(cli: Cli, worker: string, token: string | undefined): Promise<string> {
  if (UUID.test(worker)) return worker
  const found: string[] = []
  try {
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const { value } = await cli.request({
        method: 'GET',
        service: 'manager',
        path: '/workers',
        query: { limit: String(PAGE), offset: String(page * PAGE) },
        authorization: 'optional',
        token,
      })
      const workers = isRecord(value) && Array.isArray(value['workers']) ? value['workers'].filter(isRecord) : []
      found.push(...workers.filter((one) => one['name'] === worker).map((one) => String(one['id'])))
      if (workers.length < PAGE) break
    }
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
  }
  if (found.length > 1)
    throw new UsageError(`${found.length} workers are named ${worker}: use an id, one of ${found.join(', ')}`)
  return found[0] ?? worker
}
