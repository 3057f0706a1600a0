/** Refuses a server that would lose acknowledged messages, embedded or not: an answered COMMIT means stored. */
import { ServiceError } from '../../errors/index.ts'

/** What of a `pg` client or pool is needed. */
export type SafetyClient = { query(text: string): Promise<{ rows: Record<string, unknown>[] }> }

/** Each must be on for an answered COMMIT to survive a loss of power. */
const REQUIRED = ['fsync', 'full_page_writes', 'synchronous_commit'] as const

/**
 * Throws `invalid_state` when one of the server's durability settings is off as this client's session sees it.
 * `isUnsafeAccepted` (SKEIN_DATABASE_UNSAFE) accepts that.
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
