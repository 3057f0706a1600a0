/** Resolves the name of a worker where the API requires the id. */
import type { Cli } from './command.ts'
import { RefusedError, UsageError } from './failures.ts'
import { rowsOf } from './pages.ts'

/** A caller with more workers must use ids. */
const MAX_READ = 5000
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/**
 * The id of the worker with this name; a text that is no name is returned unchanged, and the server validates it.
 * Throws UsageError with the ids when several workers have the name.
 */
export async function workerIdOf(cli: Cli, worker: string, token: string | undefined): Promise<string> {
  if (UUID.test(worker)) return worker
  const found: string[] = []
  let read = 0
  try {
    const request = { method: 'GET', service: 'manager', path: '/workers', authorization: 'optional', token } as const
    for await (const one of rowsOf(cli, request, 'workers')) {
      if (one['name'] === worker) found.push(String(one['id']))
      if ((read += 1) >= MAX_READ) break
    }
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
  }
  if (found.length > 1)
    throw new UsageError(`${found.length} workers are named ${worker}: use an id, one of ${found.join(', ')}`)
  return found[0] ?? worker
}
