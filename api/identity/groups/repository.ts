/** SQL of groups. `closure.ts` contains the SQL of the hierarchy. */
import { Keyset, assigned, pageOf, rangeOf, selected, withinPage } from '#core/database/index.ts'
import type { ColumnsOf, Queryable, SortColumn, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { orderedBy } from '../listing/index.ts'

export type GroupRecord = {
  type: 'group'
  key: number
  domainKey: number
  domainId: string
  id: string
  parentGroupKey: number | null
  parentGroupId: string | null
  name: string
  description: string | null
  tags: string[]
  metadata: Record<string, unknown>
  status: 'enabled' | 'disabled'
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
  /** Ids from the root to the group itself. */
  path: string[]
}

const COLUMNS = {
  key: 'key',
  domainKey: 'domain_key',
  id: 'id',
  parentGroupKey: 'parent_key',
  name: 'name',
  description: 'description',
  tags: 'tags',
  metadata: 'metadata',
  status: 'status',
  createdBy: 'created_by',
  createdAt: 'created_at',
  updatedBy: 'updated_by',
  updatedAt: 'updated_at',
} satisfies ColumnsOf<Omit<GroupRecord, 'type' | 'domainId' | 'parentGroupId' | 'path'>>

/** A record, from a table with the alias `g`. */
const RECORD = sql`'group' AS type, ${selected(COLUMNS, 'g')},
  (SELECT d.id FROM domains d WHERE d.key = g.domain_key) AS "domainId",
  (SELECT p.id FROM groups p WHERE p.key = g.parent_key) AS "parentGroupId",
  (SELECT array_agg(a.id::text ORDER BY c.depth DESC) FROM group_closure c JOIN groups a ON a.key = c.ancestor_key
    WHERE c.descendant_key = g.key) AS path`

export type NewGroupRow = Pick<GroupRecord, 'id' | 'name' | 'description' | 'tags' | 'metadata' | 'status'>

/** Inserts a group as a root or below a parent, with its rows in the closure table. */
export async function insertGroup(
  tx: Transaction,
  domainKey: number,
  group: NewGroupRow,
  parentKey: number | null,
  createdBy: string,
): Promise<GroupRecord> {
  const { rows } = await sql<{ key: number }>`
    WITH g AS (
      INSERT INTO groups (domain_key, id, parent_key, name, description, tags, metadata, status, created_by)
      VALUES (${domainKey}, ${group.id}, ${parentKey}, ${group.name}, ${group.description}, ${group.tags},
              ${JSON.stringify(group.metadata)}::jsonb, ${group.status}, ${createdBy}) RETURNING key),
    own AS (INSERT INTO group_closure (ancestor_key, descendant_key, depth) SELECT key, key, 0 FROM g),
    above AS (
      INSERT INTO group_closure (ancestor_key, descendant_key, depth)
      SELECT up.ancestor_key, g.key, up.depth + 1 FROM g JOIN group_closure up ON up.descendant_key = ${parentKey}::bigint)
    SELECT key FROM g`.execute(tx)
  return (await findGroupByKey(tx, (rows[0] as { key: number }).key)) as GroupRecord
}

export async function findGroup(db: Queryable, domainKey: number, id: string): Promise<GroupRecord | undefined> {
  const { rows } =
    await sql<GroupRecord>`SELECT ${RECORD} FROM groups g WHERE g.domain_key = ${domainKey} AND g.id = ${id}`.execute(
      db,
    )
  return rows[0]
}

export async function findGroupByKey(db: Queryable, key: number): Promise<GroupRecord | undefined> {
  const { rows } = await sql<GroupRecord>`SELECT ${RECORD} FROM groups g WHERE g.key = ${key}`.execute(db)
  return rows[0]
}

/** Returns the group, locked against changes until the transaction ends. Members can still be added and removed. */
export function lockGroup(tx: Transaction, key: number): Promise<GroupRecord | undefined> {
  return findLocked(tx, key, sql`FOR NO KEY UPDATE OF g`)
}

/**
 * Returns the group, locked against changes and against new members. It waits for transactions that are adding members.
 */
export function lockForDeletion(tx: Transaction, key: number): Promise<GroupRecord | undefined> {
  return findLocked(tx, key, sql`FOR UPDATE OF g`)
}

async function findLocked(tx: Transaction, key: number, lock: Sql<unknown>): Promise<GroupRecord | undefined> {
  const { rows } = await sql<GroupRecord>`SELECT ${RECORD} FROM groups g WHERE g.key = ${key} ${lock}`.execute(tx)
  return rows[0]
}

export type GroupChange = Partial<Pick<GroupRecord, 'name' | 'description' | 'tags' | 'metadata' | 'status'>>

/** Writes the given fields of a locked group. */
export async function updateGroup(
  tx: Transaction,
  key: number,
  change: GroupChange,
  updatedBy: string,
): Promise<GroupRecord> {
  const sets = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`, ...assigned(change, COLUMNS)]
  const { rows } =
    await sql<GroupRecord>`WITH g AS (UPDATE groups SET ${sql.join(sets)} WHERE key = ${key} RETURNING *) SELECT ${RECORD} FROM g`.execute(
      tx,
    )
  return rows[0] as GroupRecord
}

/** Removes a group without children. Foreign keys remove the parent of its clients and channels (decision 46). */
export async function deleteGroup(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM groups WHERE key = ${key}`.execute(tx)
}

/** The descendants or ancestors of a group. Levels are relative to it. */
export type HierarchyFilter = { side: 'below' | 'above'; key: number; fromLevel: number; toLevel: number }

export type GroupListing = PageRange & {
  where: Sql<boolean>
  /** Lists the relatives of a group. Undefined lists all groups. */
  hierarchy: HierarchyFilter | undefined
  order: string
  dir: 'asc' | 'desc'
  /** Primary sort order by level. Undefined sorts without regard to levels. */
  levels: 'upper first' | 'lower first' | undefined
}

export type ListedGroup = GroupRecord & { level: number }

/** Returns the listed table `g` and the expression of its level. */
function tableOf(hierarchy: HierarchyFilter | undefined): { from: Sql<unknown>; level: Sql<number> } {
  if (hierarchy === undefined) {
    return {
      from: sql`groups g`,
      level: sql<number>`(SELECT max(c.depth) + 1 FROM group_closure c WHERE c.descendant_key = g.key)`,
    }
  }
  const [own, other] =
    hierarchy.side === 'below' ? ['ancestor_key', 'descendant_key'] : ['descendant_key', 'ancestor_key']
  return {
    from: sql`group_closure kin JOIN groups g ON g.key = ${sql.ref(`kin.${other}`)} AND ${sql.ref(`kin.${own}`)} = ${hierarchy.key}
      AND kin.depth BETWEEN ${hierarchy.fromLevel} AND ${hierarchy.toLevel}`,
    level: hierarchy.side === 'below' ? sql<number>`kin.depth` : sql<number>`-kin.depth`,
  }
}

/**
 * Finds the page first. The subqueries of `RECORD` run for the rows of the page only. Throws `malformed` for a cursor of another
 * order.
 */
export async function listGroups(
  db: Queryable,
  listing: GroupListing,
): Promise<{ groups: ListedGroup[]; next: PageEnd }> {
  const { from, level } = tableOf(listing.hierarchy)
  const keyset = keysetOf(listing, level)
  const { rows } = await withinPage(sql<ListedGroup & { row_place: string }>`
    SELECT ${RECORD}, page.level, ${keysetOf(listing, sql`page.level`).place}::text AS row_place FROM (
      SELECT found.*, row_number() OVER () AS place FROM (
        SELECT g.key, ${level} AS level FROM ${from} WHERE (${listing.where}) AND ${keyset.after(listing.cursor)}
         ${rangeOf(keyset, listing)}) found
      ) page JOIN groups g ON g.key = page.key ORDER BY page.place`).execute(db)
  const page = pageOf(rows, listing.limit)
  return { groups: page.rows, next: page.next }
}

function keysetOf({ levels, order, dir }: GroupListing, level: Sql<unknown>): Keyset {
  const byLevel: SortColumn[] =
    levels === undefined ? [] : [{ by: level, type: 'number', dir: levels === 'upper first' ? 'asc' : 'desc' }]
  return new Keyset([...byLevel, ...orderedBy('g', order, dir).columns])
}

export function countGroups({ where, hierarchy }: Pick<GroupListing, 'where' | 'hierarchy'>): Sql<{ total: number }> {
  return sql<{ total: number }>`SELECT count(*) AS total FROM ${tableOf(hierarchy).from} WHERE ${where}`
}

export async function countRelatives(db: Queryable, hierarchy: HierarchyFilter): Promise<number> {
  const { rows } = await countGroups({ where: sql<boolean>`true`, hierarchy }).execute(db)
  return rows[0]?.total ?? 0
}

/**
 * Returns the relatives of a group, readable or not, in the order of their paths, up to the size limit of a page.
 * `total` is the number of all relatives.
 */
export async function listRelatives(
  db: Queryable,
  hierarchy: HierarchyFilter,
  isReadable: Sql<boolean>,
): Promise<{ total: number; groups: (GroupRecord & { isReadable: boolean })[] }> {
  const { from } = tableOf(hierarchy)
  const { rows } = await withinPage(
    sql<
      GroupRecord & { isReadable: boolean }
    >`SELECT ${RECORD}, ${isReadable} AS "isReadable" FROM ${from} ORDER BY path`,
  ).execute(db)
  return { total: rows[0]?.page_rows ?? 0, groups: rows }
}
