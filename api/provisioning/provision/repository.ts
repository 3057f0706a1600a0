/** What provisioning asks the database for itself. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/**
 * Whether the domain has another gateway of this external id. Calls with the same one follow each other: the second sees what the
 * first made.
 */
export async function hasOtherGateway(
  tx: Transaction,
  domainKey: number,
  externalId: string,
  clientKey: number,
): Promise<boolean> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gateway ${domainKey} ${externalId}`}, 0))`.execute(tx)
  const metadata = JSON.stringify({ type: 'gateway', external_id: externalId })
  const { rows } = await sql<{ found: boolean }>`SELECT EXISTS (
    SELECT FROM clients WHERE domain_key = ${domainKey} AND key <> ${clientKey} AND metadata @> ${metadata}::jsonb) AS found`.execute(
    tx,
  )
  return rows[0]?.found === true
}
