/** The shared record and the shared SQL of clients and channels. */
import type { DomainAccess } from '#api/identity/index.ts'
import { prepared, refusing, withinPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { ConnectableRecord, ConnectableType, EnabledStatus } from './record.ts'

/** A row of the table, with the ids of its domain and its parent group. */
export type ConnectableRow = {
  key: number
  domain_key: number
  domain_id: string
  id: string
  name: string
  tags: string[]
  metadata: Record<string, unknown>
  status: EnabledStatus
  parent_group_key: number | null
  parent_group_id: string | null
  created_by: string | null
  created_at: string
  updated_by: string | null
  updated_at: string | null
}

export function recordFromRow<T extends ConnectableType>(type: T, row: ConnectableRow): ConnectableRecord<T> {
  return {
    type,
    key: row.key,
    domainKey: row.domain_key,
    domainId: row.domain_id,
    id: row.id,
    name: row.name,
    tags: row.tags,
    metadata: row.metadata,
    status: row.status,
    parentGroupKey: row.parent_group_key,
    parentGroupId: row.parent_group_id,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedBy: row.updated_by,
    updatedAt: row.updated_at,
  }
}

/** The ids of the domain and the parent group of a row `e`. */
const PLACE_IDS = `(SELECT d.id FROM domains d WHERE d.key = e.domain_key) AS domain_id,
  (SELECT g.id FROM groups g WHERE g.key = e.parent_group_key) AS parent_group_id`

const RECORD_COLUMNS = [
  'key',
  'domain_key',
  'id',
  'name',
  'tags',
  'metadata',
  'status',
  'parent_group_key',
  'created_by',
  'created_at',
  'updated_by',
  'updated_at',
]

/** What lists and views read: columns of the table `e`, and of a table that `join` adds. */
export type ReadColumns = { own: readonly string[]; joined?: { columns: string; join: string } }

/**
 * Statements that read rows with their further columns: one of a domain by its id, and a page of keys in its order. The columns are
 * listed by name: PostgreSQL rejects a cached plan of `SELECT *` once the table gets another column.
 */
function reading<Row extends object>(type: ConnectableType, { own, joined }: ReadColumns) {
  const columns = [...[...RECORD_COLUMNS, ...own].map((column) => `e.${column}`), PLACE_IDS, joined?.columns]
    .filter((column) => column !== undefined)
    .join(', ')
  const join = joined?.join ?? ''
  return {
    byId: prepared<Row>(
      `find_${type}`,
      `SELECT ${columns} FROM ${type}s e ${join} WHERE e.domain_key = $1 AND e.id = $2`,
    ),
    byKeys: prepared<Row>(
      `find_${type}s_by_keys`,
      withinPage(
        sql.raw(`SELECT ${columns} FROM unnest($1::bigint[]) WITH ORDINALITY AS page (key, place)
        JOIN ${type}s e ON e.key = page.key ${join} ORDER BY page.place`),
      ).statement().text,
    ),
  }
}

/** Shared fields that a change may set. */
export type ConnectableChange = Partial<
  Pick<ConnectableRecord, 'name' | 'tags' | 'metadata' | 'status' | 'parentGroupKey'>
>

/** Returns the assignments of a change. Absent fields are unchanged. */
export function commonAssignments(change: ConnectableChange): Sql<unknown>[] {
  const sets: Sql<unknown>[] = []
  if (change.name !== undefined) sets.push(sql`name = ${change.name}`)
  if (change.tags !== undefined) sets.push(sql`tags = ${change.tags}`)
  if (change.metadata !== undefined) sets.push(sql`metadata = ${JSON.stringify(change.metadata)}::jsonb`)
  if (change.status !== undefined) sets.push(sql`status = ${change.status}`)
  if (change.parentGroupKey !== undefined) sets.push(sql`parent_group_key = ${change.parentGroupKey}`)
  return sets
}

/** Access to one of the two tables. */
export type ConnectableTable<R extends ConnectableRecord, C extends ConnectableChange> = {
  readonly type: R['type']
  find(db: Queryable, domainKey: number, id: string): Promise<R | undefined>
  /** Returns the records with these keys that still exist, in the order of the keys. */
  findByKeys(db: Queryable, keys: readonly number[]): Promise<R[]>
  /** Locks the row until the transaction ends. Undefined when it was deleted. */
  lock(tx: Transaction, key: number): Promise<R | undefined>
  /** Writes the given fields of a row that `lock` has locked. Throws `conflict`. */
  update(tx: Transaction, key: number, change: C, updatedBy: string): Promise<R>
  /** Removes the row and its connections. Stored messages are kept. Returns false when the row does not exist. */
  remove(tx: Transaction, key: number): Promise<boolean>
}

/** `conflicts` maps each unique constraint to its error. `assignments` returns the columns that a change writes. */
export function connectableTable<
  R extends ConnectableRecord,
  Row extends object,
  C extends ConnectableChange,
>(options: {
  type: R['type']
  read: ReadColumns
  fromRow: (row: Row) => R
  assignments: (change: C) => Sql<unknown>[]
  conflicts: Readonly<Record<string, () => ServiceError>>
}): ConnectableTable<R, C> {
  const { type, read, fromRow, assignments, conflicts } = options
  const table = sql.table(`${type}s`)
  const columns = sql.raw(`e.*, ${PLACE_IDS}`)
  const { byId, byKeys } = reading<Row>(type, read)
  return {
    type,
    async find(db, domainKey, id) {
      const { rows } = await byId(db, [domainKey, id])
      return rows[0] === undefined ? undefined : fromRow(rows[0])
    },
    async findByKeys(db, keys) {
      return (await byKeys(db, [keys])).rows.map(fromRow)
    },
    async lock(tx, key) {
      const { rows } =
        await sql<Row>`SELECT ${columns} FROM ${table} e WHERE e.key = ${key} FOR NO KEY UPDATE OF e`.execute(tx)
      return rows[0] === undefined ? undefined : fromRow(rows[0])
    },
    async update(tx, key, change, updatedBy) {
      const sets = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`, ...assignments(change)]
      const { rows } = await refusing(
        conflicts,
        sql<Row>`WITH e AS (UPDATE ${table} SET ${sql.join(sets)} WHERE key = ${key} RETURNING *) SELECT ${columns} FROM e`.execute(
          tx,
        ),
      )
      return fromRow(rows[0] as Row)
    },
    async remove(tx, key) {
      const { rows } = await sql`DELETE FROM ${table} WHERE key = ${key} RETURNING key`.execute(tx)
      return rows.length > 0
    },
  }
}

/** A requested parent group, and the caller's permissions on it. */
export type ParentGroup = {
  key: number
  id: string
  status: EnabledStatus
  isReadable: boolean
  /** The caller has `set_child` on the group. */
  canSetChild: boolean
  /** The caller has `client_create` or `channel_create` on the group. A role of the domain can grant it as well. */
  mayCreateIn: boolean
}

/**
 * Returns the groups of the domain with these ids, locked against deletion until the transaction ends. The same
 * statement checks the permissions: the access policy would need a second connection while this one is in use.
 */
export async function lockParentGroups(
  tx: Transaction,
  domain: DomainAccess,
  type: ConnectableType,
  ids: readonly string[],
): Promise<ParentGroup[]> {
  const { rows } = await sql<{
    key: number
    id: string
    status: EnabledStatus
    is_readable: boolean
    can_set_child: boolean
    may_create_in: boolean
  }>`
    SELECT g.key, g.id, g.status, ${domain.reachable('group', 'read', 'g', 'row')} AS is_readable,
           ${domain.reachable('group', 'set_child', 'g', 'row')} AS can_set_child,
           ${domain.reachable('group', `${type}_create`, 'g', 'row')} AS may_create_in
      FROM groups g WHERE g.domain_key = ${domain.domainKey} AND g.id = ANY (${ids}::uuid[])
     ORDER BY g.key FOR KEY SHARE OF g`.execute(tx)
  return rows.map((row) => ({
    key: row.key,
    id: row.id,
    status: row.status,
    isReadable: row.is_readable,
    canSetChild: row.can_set_child,
    mayCreateIn: row.may_create_in,
  }))
}
