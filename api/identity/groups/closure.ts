/**
 * The hierarchy in SQL: `groups.parent_key` says where a group stands, `group_closure` holds every pair of a group and one
 * at or below it. Whoever changes either holds the lock of the domain, so what he has read stays true until he writes
 * (mechanisms section 4). Each change is one or two statements, however many groups move.
 */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** One change of a domain's hierarchy at a time; until the transaction ends. */
export async function lockHierarchy(tx: Transaction, domainKey: number): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`groups of ${domainKey}`}, 0))`.execute(tx)
}

/** A group as a move must see it: where it stands now, and what the caller may do with it. */
export type Movable = {
  key: number
  id: string
  parentKey: number | null
  parentId: string | null
  isReadable: boolean
  isAllowed: boolean
}

type MovableRow = {
  key: number
  id: string
  parent_key: number | null
  parent_id: string | null
  is_readable: boolean
  is_allowed: boolean
}

/** The named groups and the rows locked, in the order of their keys. `g` is the table of the two conditions. */
async function lockMovable(
  tx: Transaction,
  which: Sql<boolean>,
  isReadable: Sql<boolean>,
  isAllowed: Sql<boolean>,
): Promise<Movable[]> {
  const { rows } = await sql<MovableRow>`
    SELECT g.key, g.id, g.parent_key, (SELECT p.id FROM groups p WHERE p.key = g.parent_key) AS parent_id,
           ${isReadable} AS is_readable, ${isAllowed} AS is_allowed
      FROM groups g WHERE ${which} ORDER BY g.key FOR NO KEY UPDATE OF g`.execute(tx)
  return rows.map((row) => ({
    key: row.key,
    id: row.id,
    parentKey: row.parent_key,
    parentId: row.parent_id,
    isReadable: row.is_readable,
    isAllowed: row.is_allowed,
  }))
}

export type Conditions = { isReadable: Sql<boolean>; isAllowed: Sql<boolean> }

/** Where the right to something else already covers it. */
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

/** Keys of the group and of everything above it, nearest first. Its level is their number. */
export async function findLineage(tx: Transaction, key: number): Promise<number[]> {
  const { rows } = await sql<{ ancestor_key: number }>`
    SELECT ancestor_key FROM group_closure WHERE descendant_key = ${key} ORDER BY depth`.execute(tx)
  return rows.map((row) => row.ancestor_key)
}

/** Levels of the highest of these subtrees, its top included. */
export async function findHeight(tx: Transaction, keys: readonly number[]): Promise<number> {
  const { rows } = await sql<{ height: number | null }>`
    SELECT max(depth) + 1 AS height FROM group_closure WHERE ancestor_key = ANY (${keys}::bigint[])`.execute(tx)
  return rows[0]?.height ?? 0
}

/** Puts roots, with everything below them, under a parent. */
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

/** Makes roots of children of one parent; what is below them stays below them. */
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
