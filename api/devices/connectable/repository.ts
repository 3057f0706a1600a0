/** The shared record and the shared SQL of clients and channels. */
import type { DomainAccess } from '#api/identity/index.ts'
import { assigned, prepared, refusing, selected, withinPage } from '#core/database/index.ts'
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { ConnectableRecord, ConnectableType, EnabledStatus } from './record.ts'

/** The fields of a record that are no columns of its table. */
export type Computed = 'type' | 'domainId' | 'parentGroupId'

/** The columns of the fields that both records share. */
export const RECORD_COLUMNS = {
  key: 'key',
  domainKey: 'domain_key',
  id: 'id',
  name: 'name',
  tags: 'tags',
  metadata: 'metadata',
  status: 'status',
  parentGroupKey: 'parent_group_key',
  createdBy: 'created_by',
  createdAt: 'created_at',
  updatedBy: 'updated_by',
  updatedAt: 'updated_at',
} satisfies ColumnsOf<Omit<ConnectableRecord, Computed>>

/** The ids of the domain and the parent group of a row `e`. */
const PLACE_IDS = `(SELECT d.id FROM domains d WHERE d.key = e.domain_key) AS "domainId",
  (SELECT g.id FROM groups g WHERE g.key = e.parent_group_key) AS "parentGroupId"`

/** Columns of lists and views of a table that `join` adds. */
export type JoinedColumns = { columns: string; join: string }

/** Statements that read rows: one of a domain by its id, and a page of keys in its order. */
function reading<Row extends object>(type: ConnectableType, own: string, joined?: JoinedColumns) {
  const columns = joined === undefined ? own : `${own}, ${joined.columns}`
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

/**
 * `columns` are those of the record, `writeOnly` those that only a change has. `conflicts` maps each unique constraint to its error. The
 * columns are listed by name: PostgreSQL rejects a cached plan of `SELECT *` once the table gets another column.
 */
export function connectableTable<R extends ConnectableRecord, C extends ConnectableChange>(options: {
  type: R['type']
  columns: Readonly<Record<string, string>>
  writeOnly?: Readonly<Record<string, string>>
  joined?: JoinedColumns
  conflicts: Readonly<Record<string, () => ServiceError>>
}): ConnectableTable<R, C> {
  const { type, joined, conflicts } = options
  const table = sql.table(`${type}s`)
  const columns = sql`${sql.raw(`'${type}' AS type, ${PLACE_IDS}`)}, ${selected(options.columns, 'e')}`
  const writable = { ...options.columns, ...options.writeOnly } as ColumnsOf<C>
  const { byId, byKeys } = reading<R>(type, columns.statement().text, joined)
  return {
    type,
    find: async (db, domainKey, id) => (await byId(db, [domainKey, id])).rows[0],
    findByKeys: async (db, keys) => (await byKeys(db, [keys])).rows,
    async lock(tx, key) {
      const { rows } =
        await sql<R>`SELECT ${columns} FROM ${table} e WHERE e.key = ${key} FOR NO KEY UPDATE OF e`.execute(tx)
      return rows[0]
    },
    async update(tx, key, change, updatedBy) {
      const sets = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`, ...assigned(change, writable)]
      const { rows } = await refusing(
        conflicts,
        sql<R>`WITH e AS (UPDATE ${table} SET ${sql.join(sets)} WHERE key = ${key} RETURNING *) SELECT ${columns} FROM e`.execute(
          tx,
        ),
      )
      return rows[0] as R
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
  const { rows } = await sql<ParentGroup>`
    SELECT g.key, g.id, g.status, ${domain.reachable('group', 'read', 'g', 'row')} AS "isReadable",
           ${domain.reachable('group', 'set_child', 'g', 'row')} AS "canSetChild",
           ${domain.reachable('group', `${type}_create`, 'g', 'row')} AS "mayCreateIn"
      FROM groups g WHERE g.domain_key = ${domain.domainKey} AND g.id = ANY (${ids}::uuid[])
     ORDER BY g.key FOR KEY SHARE OF g`.execute(tx)
  return rows
}
