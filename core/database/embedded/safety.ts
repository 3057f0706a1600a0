/** Refuses a server that would lose acknowledged messages, embedded or not: an answered COMMIT means stored. */
import { ServiceError } from '../../errors/index.ts'

/** What of a `pg` client or pool is needed. */
export type SafetyClient = { query(text: string): Promise<{ rows: Record<string, unknown>[] }> }

export const MIN_SERVER_VERSION = 15

/** Each must be on for an answered COMMIT to survive a loss of power. */
const REQUIRED = ['fsync', 'full_page_writes', 'synchronous_commit'] as const

/**
 * Throws `invalid_state` when the server is older than 15, or when one of its durability settings is off as this
 * client's session sees it. `isUnsafeAccepted` (SKEIN_DATABASE_UNSAFE) accepts the settings, never the version.
 */
export async function checkServerSafety(client: SafetyClient, isUnsafeAccepted: boolean): Promise<void> {
  const columns = REQUIRED.map((name) => `current_setting('${name}') AS ${name}`)
  const { rows } = await client.query(
    `SELECT current_setting('server_version_num')::int AS version, ${columns.join(', ')}`,
  )
  const row = rows[0] ?? {}
  const majorVersion = Math.floor(Number(row['version']) / 10_000)
  if (!(majorVersion >= MIN_SERVER_VERSION)) {
    throw new ServiceError(
      'invalid_state',
      `the database server is PostgreSQL ${majorVersion}; Skein needs ${MIN_SERVER_VERSION} or newer`,
    )
  }
  if (isUnsafeAccepted) return
  const off = REQUIRED.filter((name) => row[name] === 'off')
  if (off.length === 0) return
  throw new ServiceError(
    'invalid_state',
    `the database server has ${off.join(', ')} off and would lose acknowledged messages in a crash; switch ` +
      `${off.length === 1 ? 'it' : 'them'} on, or set SKEIN_DATABASE_UNSAFE=true to accept that`,
  )
}
