/** SQL of the quotas, which are columns of domains and users. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { QuotaValues } from './names.ts'

export type Owner = 'domain' | 'user'

const TABLES = { domain: 'domains', user: 'users' } as const satisfies Record<Owner, string>

/** `domainId`: null for a user. */
export type StoredQuotas = { domainId: string | null; values: QuotaValues }

/** The values of all domains and users that have any, or of those among `keys`. */
export async function findQuotas(db: Queryable, keys?: readonly number[]): Promise<Map<number, StoredQuotas>> {
  const among = keys === undefined ? sql`` : sql`AND key = ANY (${keys}::bigint[])`
  const { rows } = await sql<{ key: number; domain_id: string | null; quotas: QuotaValues }>`
    SELECT key, id AS domain_id, quotas FROM domains WHERE quotas <> '{}' ${among}
    UNION ALL SELECT key, NULL, quotas FROM users WHERE quotas <> '{}' ${among}`.execute(db)
  return new Map(rows.map(({ key, domain_id: domainId, quotas }) => [key, { domainId, values: quotas }]))
}

/** Locks the row until the transaction ends. Undefined when it does not exist, or is being removed. */
export async function lockQuotas(tx: Transaction, owner: Owner, key: number): Promise<QuotaValues | undefined> {
  const { rows } = await sql<{ quotas: QuotaValues }>`SELECT quotas FROM ${sql.table(TABLES[owner])}
    WHERE key = ${key} AND status <> 'deleted' FOR NO KEY UPDATE`.execute(tx)
  return rows[0]?.quotas
}

export async function updateQuotas(tx: Transaction, owner: Owner, key: number, quotas: QuotaValues): Promise<void> {
  await sql`UPDATE ${sql.table(TABLES[owner])} SET quotas = ${JSON.stringify(quotas)}::jsonb WHERE key = ${key}`.execute(
    tx,
  )
}

export async function findUserKey(db: Queryable, id: string): Promise<number | undefined> {
  const { rows } = await sql<{
    key: number
  }>`SELECT key FROM users WHERE id = ${id} AND status <> 'deleted'`.execute(db)
  return rows[0]?.key
}

/** Transactions that add to what a quota counts run one after another. */
export async function lockOwner(tx: Transaction, key: number): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`quota of ${key}`}, 0))`.execute(tx)
}
