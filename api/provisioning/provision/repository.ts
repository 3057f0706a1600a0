/** SQL of provisioning. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/**
 * True when the domain has another gateway with this external id. Requests with the same external id are serialized, so
 * that the second sees the entities of the first.
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
