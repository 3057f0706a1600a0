/** A user for whom something acts while he is not there: with all of his rights, as they are now. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { UserPrincipal } from './principal.ts'

/** Undefined when he is gone or disabled. */
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
