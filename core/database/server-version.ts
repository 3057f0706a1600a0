/** The supported versions of PostgreSQL. An older one lacks SQL that the schema needs. */
import type { Client } from 'pg'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'

/** The first version with UNIQUE NULLS NOT DISTINCT and MERGE. */
const OLDEST = 15
/** The newest version that the tests use, which is the embedded one. */
const NEWEST_TESTED = 18
/** `server_version_num` is the major version times this, plus the minor one. */
const PER_MAJOR = 10_000

/** Throws `invalid_state` for an unsupported server; warns about a version that was not tested. */
export async function checkServerVersion(client: Client, logger: Logger): Promise<void> {
  const { rows } = await client.query<{ version: number }>(
    "SELECT current_setting('server_version_num')::int AS version",
  )
  const warning = checkVersionNumber(rows[0]?.version ?? 0)
  if (warning !== undefined) logger.warn(warning)
}

/** The message about a version, by its number (`server_version_num`); undefined for a tested one. */
export function checkVersionNumber(number: number): string | undefined {
  const major = Math.floor(number / PER_MAJOR)
  if (major < OLDEST) {
    throw new ServiceError(
      'invalid_state',
      `the database server is PostgreSQL ${major}, which is too old; Skein requires PostgreSQL ${OLDEST} or newer`,
    )
  }
  if (major <= NEWEST_TESTED) return undefined
  return `the database server is PostgreSQL ${major}, which was not tested with Skein; tested versions are ${OLDEST} to ${NEWEST_TESTED}`
}
