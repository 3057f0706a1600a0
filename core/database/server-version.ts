/** Which versions of PostgreSQL Skein runs on. An older one lacks SQL that the schema needs. */
import type { Client } from 'pg'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'

/** MERGE and UNIQUE NULLS NOT DISTINCT came with it. */
const OLDEST = 15
/** The newest that the tests run on, which is also the embedded one. */
const NEWEST_TESTED = 18
/** `server_version_num` is the major version times this, plus the minor one. */
const PER_MAJOR = 10_000

/** Throws `invalid_state` for a server that is too old; warns about one that is newer than the tests know. */
export async function checkServerVersion(client: Client, logger: Logger): Promise<void> {
  const { rows } = await client.query<{ version: number }>(
    "SELECT current_setting('server_version_num')::int AS version",
  )
  const warning = judgeServerVersion(rows[0]?.version ?? 0)
  if (warning !== undefined) logger.warn(warning)
}

/** What there is to say about a version, by its number (`server_version_num`). */
export function judgeServerVersion(number: number): string | undefined {
  const major = Math.floor(number / PER_MAJOR)
  if (major < OLDEST) {
    throw new ServiceError(
      'invalid_state',
      `the database server is PostgreSQL ${major}, which is too old: Skein needs PostgreSQL ${OLDEST} or newer`,
    )
  }
  if (major <= NEWEST_TESTED) return undefined
  return `the database server is PostgreSQL ${major}, which Skein was not tested on: it was with ${OLDEST} to ${NEWEST_TESTED}`
}
