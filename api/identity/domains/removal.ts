/** SQL of the removal of a domain: the next domain that is due, and its rows in bounded batches. */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { countedRows, deletedRows } from '../journal/index.ts'

/** Tables of entities that a report on the deletion of a domain counts. */
const ENTITY_TABLES = [
  'clients',
  'channels',
  'groups',
  'roles',
  'certificates',
  'bootstrap_configs',
  'tasks',
  'workflows',
]
/** The deadline of the counts, which are limited. */
const COUNT_DEADLINE_MS = 2_000

export type DueDomain = { key: number; id: string; name: string }

/** Returns the next domain whose grace period is over, or whose removal was interrupted. */
export async function findDueDomain(db: Queryable, graceHours: number): Promise<DueDomain | undefined> {
  const { rows } = await sql<DueDomain>`SELECT key, id, name FROM domains
    WHERE status = 'deleted' AND deleted_at <= now() - make_interval(hours => ${graceHours})
    ORDER BY deleted_at LIMIT 1`.execute(db)
  return rows[0]
}

/**
 * Marks the domain as being removed. It cannot be restored afterwards. Returns false when it was restored meanwhile.
 */
export async function beginRemoval(db: Queryable, key: number): Promise<boolean> {
  const { rows } = await sql`UPDATE domains SET purge_started_at = coalesce(purge_started_at, now())
    WHERE key = ${key} AND status = 'deleted' RETURNING key`.execute(db)
  return rows.length > 0
}

/** Removes the row of the domain. Foreign keys cascade to the remaining rows. */
export async function deleteDomain(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM domains WHERE key = ${key} AND purge_started_at IS NOT NULL`.execute(tx)
}

export type DependentTable = { table: string; column: string }

/**
 * Returns the tables whose foreign keys to a domain cascade, so that no list of tables must be maintained. The newest
 * constraint is first: tables that refer to others were created later.
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

/** Counts the entities of a domain for the trial of its deletion. */
export async function countEntities(
  database: Pick<Database, 'snapshot'>,
  domainKey: number,
): Promise<ReturnType<typeof deletedRows>> {
  return await database.snapshot(async (tx) => {
    const counts = ENTITY_TABLES.map((table) => {
      const entities = sql`SELECT FROM ${sql.table(table)} WHERE domain_key = ${domainKey}`
      return sql`${countedRows(entities)} AS ${sql.ref(table)}`
    })
    const { rows } = await sql<Record<string, number>>`SELECT ${sql.join(counts)}`.execute(tx)
    return deletedRows(rows[0] ?? {})
  }, COUNT_DEADLINE_MS)
}

/**
 * Removes at most `limit` rows of the table and returns their number. Rows that refer to them are removed by cascade.
 */
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

/** Removes groups from the hierarchy: a group cannot be removed while it is the parent of another. */
export async function detachGroups(db: Queryable, domainKey: number, limit: number): Promise<number> {
  const result = await sql`UPDATE groups SET parent_key = NULL WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM groups WHERE domain_key = ${domainKey} AND parent_key IS NOT NULL LIMIT ${limit}))`.execute(db)
  return Number(result.numAffectedRows ?? 0)
}
