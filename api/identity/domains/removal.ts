/** SQL of the end of a domain: which one is due, and its rows in bounded parts. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

export type DueDomain = { key: number; id: string; name: string }

/** The next domain whose grace is over, or whose removal was begun and not finished. */
export async function findDueDomain(db: Queryable, graceHours: number): Promise<DueDomain | undefined> {
  const { rows } = await sql<DueDomain>`SELECT key, id, name FROM domains
    WHERE status = 'deleted' AND deleted_at <= now() - make_interval(hours => ${graceHours})
    ORDER BY deleted_at LIMIT 1`.execute(db)
  return rows[0]
}

/** From here on nothing brings the domain back. False: it was restored just now. */
export async function beginRemoval(db: Queryable, key: number): Promise<boolean> {
  const { rows } = await sql`UPDATE domains SET purge_started_at = coalesce(purge_started_at, now())
    WHERE key = ${key} AND status = 'deleted' RETURNING key`.execute(db)
  return rows.length > 0
}

/** Removes the row itself, and by cascade whatever is left. */
export async function deleteDomain(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM domains WHERE key = ${key} AND purge_started_at IS NOT NULL`.execute(tx)
}

export type DependentTable = { table: string; column: string }

/**
 * The tables whose rows belong to a domain, as their foreign keys say: what a domain owns is what would go with it by
 * cascade, so nobody has to keep a list of it. The youngest first: what refers to something is younger than that.
 */
export async function listDependents(db: Queryable): Promise<DependentTable[]> {
  const { rows } = await sql<DependentTable>`
    SELECT c.conrelid::regclass::text AS "table", a.attname::text AS "column"
      FROM pg_constraint c
      JOIN pg_class t ON t.oid = c.conrelid AND t.relkind = 'r'
      JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
     WHERE c.contype = 'f' AND c.confdeltype = 'c' AND c.confrelid = 'domains'::regclass AND cardinality(c.conkey) = 1
     ORDER BY c.oid DESC`.execute(db)
  return rows
}

/** At most `limit` rows of the table; gives how many went. What refers to them goes by cascade. */
export async function deleteRows(
  db: Queryable,
  { table, column }: DependentTable,
  domainKey: number,
  limit: number,
): Promise<number> {
  const result = await sql`DELETE FROM ${sql.table(table)} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ${sql.table(table)} WHERE ${sql.ref(column)} = ${domainKey} LIMIT ${limit}))`.execute(db)
  return Number(result.numAffectedRows ?? 0)
}

/** Takes groups out of the hierarchy: none can be removed while another one has it for a parent. */
export async function detachGroups(db: Queryable, domainKey: number, limit: number): Promise<number> {
  const result = await sql`UPDATE groups SET parent_key = NULL WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM groups WHERE domain_key = ${domainKey} AND parent_key IS NOT NULL LIMIT ${limit}))`.execute(db)
  return Number(result.numAffectedRows ?? 0)
}
