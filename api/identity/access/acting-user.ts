/** The principal of a user on whose behalf a background job acts, with their current permissions. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { UserPrincipal } from './principal.ts'

/** Undefined when the user was deleted or disabled. */
export async function findActingUser(db: Queryable, key: number): Promise<UserPrincipal | undefined> {
  const { rows } = await sql<{ id: string; role: string }>`
    SELECT id, role FROM users WHERE key = ${key} AND status = 'enabled'`.execute(db)
  const [row] = rows
  if (row === undefined) return undefined
  return {
    kind: 'user',
    key,
    id: row.id,
    isPlatformAdmin: row.role === 'admin',
    boundDomainKey: undefined,
    credential: 'api_key',
    scope: undefined,
    sessionId: undefined,
    origin: undefined,
  }
}
