/** Rejects a server, embedded or not, that could lose acknowledged messages: a successful COMMIT must be durable. */
import { DATABASE_UNAVAILABLE_RETRY_SECONDS } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'

/** The part of a `pg` client or pool that is used. */
export type SafetyClient = { query(text: string): Promise<{ rows: Record<string, unknown>[] }> }

/** Each must be on for a committed transaction to survive a power failure. */
const REQUIRED = ['fsync', 'full_page_writes', 'synchronous_commit'] as const
/** The values with which COMMIT returns after a standby has the transaction on its disk. */
const REPLICATED_COMMITS = new Set(['on', 'remote_apply'])

/**
 * Throws `invalid_state` when a durability setting of the server is off in this session. `isUnsafeAccepted`
 * (SKEIN_DATABASE_UNSAFE) accepts it.
 */
export async function checkServerSafety(client: SafetyClient, isUnsafeAccepted: boolean): Promise<void> {
  if (isUnsafeAccepted) return
  const columns = REQUIRED.map((name) => `current_setting('${name}') AS ${name}`)
  const { rows } = await client.query(`SELECT ${columns.join(', ')}`)
  const row = rows[0] ?? {}
  const off = REQUIRED.filter((name) => row[name] === 'off')
  if (off.length === 0) return
  throw new ServiceError(
    'invalid_state',
    `the database server has ${off.join(', ')} off and would lose acknowledged messages in a crash; switch ` +
      `${off.length === 1 ? 'it' : 'them'} on, or set SKEIN_DATABASE_UNSAFE=true to accept that`,
  )
}

/**
 * The reason why a COMMIT of this session could be lost with the machine of the primary; undefined: a synchronous standby has
 * each transaction before its COMMIT returns.
 */
export async function findReplicationFault(client: SafetyClient): Promise<string | undefined> {
  const { rows } = await client.query(
    "SELECT current_setting('synchronous_commit') AS commit, current_setting('synchronous_standby_names') AS names",
  )
  const { commit, names } = rows[0] as { commit: string; names: string }
  if (!REPLICATED_COMMITS.has(commit))
    return `the database server has synchronous_commit=${commit}; SKEIN_DATABASE_HA requires on or remote_apply`
  if (names.trim() === '')
    return 'synchronous_standby_names of the database server is empty; SKEIN_DATABASE_HA requires synchronous standbys'
  return undefined
}

/** Checks a connection that is made while the program runs: the server may be another one. Throws `unavailable`. */
export async function requireReplication(client: SafetyClient): Promise<void> {
  const fault = await findReplicationFault(client)
  if (fault !== undefined)
    throw new ServiceError('unavailable', fault, { retryAfterSeconds: DATABASE_UNAVAILABLE_RETRY_SECONDS })
}
