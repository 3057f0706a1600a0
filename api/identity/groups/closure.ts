/**
 * The hierarchy of groups in SQL. `groups.parent_key` is the parent; `group_closure` contains every pair of a group and
 * itself or a descendant. A transaction that changes either holds the lock of the domain, so its reads stay valid until
 * it writes (mechanisms section 4). Each change takes one or two statements, independent of the number of moved groups.
 */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** Serializes changes of a domain's hierarchy until the transaction ends. */
export async function lockHierarchy(tx: Transaction, domainKey: number): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`groups of ${domainKey}`}, 0))`.execute(tx)
}

/** The attributes of a group for a move: its current parent, and the caller's permissions on it. */
export type Movable = {
  key: number
  id: string
  parentKey: number | null
  parentId: string | null
  isReadable: boolean
  isAllowed: boolean
}

/** Locks the selected groups in the order of their keys. `g` is the table of the two conditions. */
async function lockMovable(
  tx: Transaction,
  which: Sql<boolean>,
  isReadable: Sql<boolean>,
  isAllowed: Sql<boolean>,
): Promise<Movable[]> {
  const { rows } = await sql<Movable>`
    SELECT g.key, g.id, g.parent_key AS "parentKey", (SELECT p.id FROM groups p WHERE p.key = g.parent_key) AS "parentId",
           ${isReadable} AS "isReadable", ${isAllowed} AS "isAllowed"
      FROM groups g WHERE ${which} ORDER BY g.key FOR NO KEY UPDATE OF g`.execute(tx)
  return rows
}

export type Conditions = { isReadable: Sql<boolean>; isAllowed: Sql<boolean> }

/** Conditions for groups that a permission on another group covers. */
const ANYWAY: Conditions = { isReadable: sql<boolean>`true`, isAllowed: sql<boolean>`true` }

export function lockNamed(
  tx: Transaction,
  domainKey: number,
  ids: readonly string[],
  { isReadable, isAllowed }: Conditions,
): Promise<Movable[]> {
  return lockMovable(
    tx,
    sql<boolean>`g.domain_key = ${domainKey} AND g.id = ANY (${ids}::uuid[])`,
    isReadable,
    isAllowed,
  )
}

export function lockChildren(
  tx: Transaction,
  parentKey: number,
  { isReadable, isAllowed }: Conditions = ANYWAY,
): Promise<Movable[]> {
  return lockMovable(tx, sql<boolean>`g.parent_key = ${parentKey}`, isReadable, isAllowed)
}

/** Returns the keys of the group and its ancestors, nearest first. Their number is the level of the group. */
export async function findLineage(tx: Transaction, key: number): Promise<number[]> {
  const { rows } = await sql<{ ancestor_key: number }>`
    SELECT ancestor_key FROM group_closure WHERE descendant_key = ${key} ORDER BY depth`.execute(tx)
  return rows.map((row) => row.ancestor_key)
}

/** Returns the number of levels of the highest of these subtrees, including its top. */
export async function findHeight(tx: Transaction, keys: readonly number[]): Promise<number> {
  const { rows } = await sql<{ height: number | null }>`
    SELECT max(depth) + 1 AS height FROM group_closure WHERE ancestor_key = ANY (${keys}::bigint[])`.execute(tx)
  return rows[0]?.height ?? 0
}

/** Moves root groups and their subtrees below a parent. */
export async function attach(
  tx: Transaction,
  parentKey: number,
  childKeys: readonly number[],
  updatedBy: string,
): Promise<void> {
  await sql`INSERT INTO group_closure (ancestor_key, descendant_key, depth)
    SELECT up.ancestor_key, down.descendant_key, up.depth + down.depth + 1
      FROM group_closure up CROSS JOIN group_closure down
     WHERE up.descendant_key = ${parentKey} AND down.ancestor_key = ANY (${childKeys}::bigint[])
     ORDER BY 1, 2`.execute(tx)
  await setParent(tx, parentKey, childKeys, updatedBy)
}

/** Makes children of one parent root groups. Their subtrees are unchanged. */
export async function detach(tx: Transaction, childKeys: readonly number[], updatedBy: string): Promise<void> {
  await sql`DELETE FROM group_closure link USING group_closure up, group_closure down
     WHERE up.descendant_key = ANY (${childKeys}::bigint[]) AND up.depth > 0 AND down.ancestor_key = up.descendant_key
       AND link.ancestor_key = up.ancestor_key AND link.descendant_key = down.descendant_key`.execute(tx)
  await setParent(tx, null, childKeys, updatedBy)
}

async function setParent(
  tx: Transaction,
  parentKey: number | null,
  keys: readonly number[],
  updatedBy: string,
): Promise<void> {
  await sql`UPDATE groups SET parent_key = ${parentKey}, updated_at = now(), updated_by = ${updatedBy}
    WHERE key = ANY (${keys}::bigint[])`.execute(tx)
}
