/**
 * The addresses from which a user has logged in. They are stored in the database, so that restarts and other nodes keep
 * them.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Days after which an unused address is no longer known. */
const KNOWN_DAYS = 90
/** Maximum number of addresses of one user. The least recently used one is removed. */
const MAX_ADDRESSES_PER_USER = 50

export async function isKnownAddress(db: Queryable, userKey: number, address: string): Promise<boolean> {
  const { rows } = await sql`SELECT 1 FROM known_addresses
     WHERE user_key = ${userKey} AND address = ${address} AND last_success_at > now() - make_interval(days => ${KNOWN_DAYS})`.execute(
    db,
  )
  return rows.length > 0
}

/** Written at most once a day for each address. */
export async function rememberAddress(db: Queryable, userKey: number, address: string): Promise<void> {
  const { rows } = await sql`INSERT INTO known_addresses AS k (user_key, address) VALUES (${userKey}, ${address})
    ON CONFLICT ON CONSTRAINT known_addresses_pkey DO UPDATE SET last_success_at = now() WHERE k.last_success_at < now() - interval '1 day'
    RETURNING 1`.execute(db)
  if (rows.length === 0) return
  await sql`DELETE FROM known_addresses WHERE user_key = ${userKey} AND address IN (
    SELECT address FROM known_addresses WHERE user_key = ${userKey} ORDER BY last_success_at DESC, address OFFSET ${MAX_ADDRESSES_PER_USER})`.execute(
    db,
  )
}

export async function purgeKnownAddresses(db: Queryable): Promise<void> {
  await sql`DELETE FROM known_addresses WHERE last_success_at < now() - make_interval(days => ${KNOWN_DAYS})`.execute(
    db,
  )
}
