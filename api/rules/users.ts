/** Keys of users. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

export async function findUserKey(db: Queryable, id: string): Promise<number | undefined> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM users WHERE id = ${id}::uuid`.execute(db)
  return rows[0]?.key
}
