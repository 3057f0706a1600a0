/** From which addresses a user has logged in: kept in the database, so that a restart or another node knows them too. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** An address that was not used for so long is a stranger again. */
const KNOWN_DAYS = 90
/** Addresses of one user; the one used longest ago makes room. */
const MAX_ADDRESSES_PER_USER = 50

export async function isKnownAddress(db: Queryable, userKey: number, address: string): Promise<boolean> {
  const { rows } = await sql`SELECT 1 FROM known_addresses
     WHERE user_key = ${userKey} AND address = ${address} AND last_success_at > now() - make_interval(days => ${KNOWN_DAYS})`.execute(
    db,
  )
  return rows.length > 0
}

/** Written once a day at the most, whatever the number of logins. */
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
