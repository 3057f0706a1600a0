/** SQL of clients. */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import { orderOf } from '#api/identity/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { refusing } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'

export type ClientRecord = {
  type: 'client'
  key: number
  domainKey: number
  domainId: string
  id: string
  name: string
  tags: string[]
  identity: string
  secretSealed: Buffer
  metadata: Record<string, unknown>
  status: 'enabled' | 'disabled'
  parentGroupKey: number | null
  parentGroupId: string | null
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
}

type Row = {
  key: number
  domain_key: number
  domain_id: string
  id: string
  name: string
  tags: string[]
  identity: string
  secret_sealed: Buffer
  metadata: Record<string, unknown>
  status: ClientRecord['status']
  parent_group_key: number | null
  parent_group_id: string | null
  created_by: string | null
  created_at: string
  updated_by: string | null
  updated_at: string | null
}

function fromRow(row: Row): ClientRecord {
  return {
    type: 'client',
    key: row.key,
    domainKey: row.domain_key,
    domainId: row.domain_id,
    id: row.id,
    name: row.name,
    tags: row.tags,
    identity: row.identity,
    secretSealed: row.secret_sealed,
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

/** The record as every query of this file returns it, from a table or CTE called `c`. */
const COLUMNS = sql`c.*, (SELECT d.id FROM domains d WHERE d.key = c.domain_key) AS domain_id,
  (SELECT g.id FROM groups g WHERE g.key = c.parent_group_key) AS parent_group_id`

const CONFLICTS = {
  clients_id_key: () => new ServiceError('conflict', 'a client with this id exists in the domain'),
  clients_secret_key: () => new ServiceError('conflict', 'a client with this secret exists in the domain'),
}

type InsertedRow = { key: number; id: string; created_at: string }

export type NewClientRow = {
  id: string
  name: string
  tags: string[]
  identity: string
  secretMac: Buffer
  secretSealed: Buffer
  metadata: Record<string, unknown>
  status: 'enabled' | 'disabled'
}

/**
 * Inserts any number of clients in one statement, all or none. Returns them in the order given. Bulks of one
 * domain follow each other: two that want the same ids and secrets crosswise would wait for each other, and no order of
 * the rows is right for both constraints.
 */
export async function insertClients(
  db: Transaction,
  domain: { domainKey: number; domainId: string },
  clients: readonly NewClientRow[],
  createdBy: string,
): Promise<ClientRecord[]> {
  const { domainKey, domainId } = domain
  if (clients.length > 1)
    await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`clients of ${domainKey}`}, 0))`.execute(db)
  const items = clients.map((client) => ({
    ...client,
    secretMac: client.secretMac.toString('base64'),
    secretSealed: client.secretSealed.toString('base64'),
  }))
  const { rows } = await refusing(
    CONFLICTS,
    sql<InsertedRow>`INSERT INTO clients (domain_key, id, name, tags, identity, secret_mac, secret_sealed, metadata, status, created_by)
      SELECT ${domainKey}, (item ->> 'id')::uuid, item ->> 'name', ARRAY(SELECT jsonb_array_elements_text(item -> 'tags')), item ->> 'identity',
             decode(item ->> 'secretMac', 'base64'), decode(item ->> 'secretSealed', 'base64'), item -> 'metadata', item ->> 'status', ${createdBy}
        FROM jsonb_array_elements(${JSON.stringify(items)}::jsonb) AS list (item) ORDER BY item ->> 'id'
      RETURNING key, id, created_at`.execute(db),
  )
  // What was given is not read back: of ten thousand rows that takes longer than to write them.
  const inserted = new Map(rows.map((row) => [row.id, row]))
  return clients.map((client) => {
    const { key, created_at: createdAt } = inserted.get(client.id) as InsertedRow
    return {
      ...client,
      type: 'client',
      key,
      domainKey,
      domainId,
      parentGroupKey: null,
      parentGroupId: null,
      createdBy,
      createdAt,
      updatedBy: null,
      updatedAt: null,
    }
  })
}

export async function findClient(db: Queryable, domainKey: number, id: string): Promise<ClientRecord | undefined> {
  const { rows } =
    await sql<Row>`SELECT ${COLUMNS} FROM clients c WHERE c.domain_key = ${domainKey} AND c.id = ${id}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export type ClientChange = Partial<Pick<ClientRecord, 'name' | 'tags' | 'metadata' | 'status'>> & {
  secret?: { mac: Buffer; sealed: Buffer }
}

/** Writes the given fields; undefined when the client was deleted meanwhile. */
export async function updateClient(
  db: Queryable,
  key: number,
  change: ClientChange,
  updatedBy: string,
): Promise<ClientRecord | undefined> {
  const sets: RawBuilder<unknown>[] = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`]
  if (change.name !== undefined) sets.push(sql`name = ${change.name}`)
  if (change.tags !== undefined) sets.push(sql`tags = ${change.tags}`)
  if (change.metadata !== undefined) sets.push(sql`metadata = ${JSON.stringify(change.metadata)}::jsonb`)
  if (change.status !== undefined) sets.push(sql`status = ${change.status}`)
  if (change.secret !== undefined)
    sets.push(sql`secret_mac = ${change.secret.mac}, secret_sealed = ${change.secret.sealed}`)
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`WITH c AS (UPDATE clients SET ${sql.join(sets)} WHERE key = ${key} RETURNING *) SELECT ${COLUMNS} FROM c`.execute(
      db,
    ),
  )
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** Removes the client; its connections go with it. False when it was gone already. */
export async function deleteClient(db: Queryable, key: number): Promise<boolean> {
  const { rows } = await sql`DELETE FROM clients WHERE key = ${key} RETURNING key`.execute(db)
  return rows.length > 0
}

export type ClientListing = {
  where: RawBuilder<SqlBool>
  order: string
  dir: 'asc' | 'desc'
  offset: number
  limit: number
}

export async function listClients(
  db: Queryable,
  { where, order, dir, offset, limit }: ClientListing,
): Promise<ClientRecord[]> {
  const { rows } =
    await sql<Row>`SELECT ${COLUMNS} FROM clients c WHERE ${where} ORDER BY ${orderOf('c', order, dir)} OFFSET ${offset} LIMIT ${limit}`.execute(
      db,
    )
  return rows.map(fromRow)
}

export async function countClients(db: Queryable, where: RawBuilder<SqlBool>): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM clients c WHERE ${where}`.execute(db)
  return rows[0]?.total ?? 0
}
