/** SQL of channels. */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import { orderOf } from '#api/identity/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { refusing } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'

export type ChannelRecord = {
  type: 'channel'
  key: number
  domainKey: number
  domainId: string
  id: string
  name: string
  description: string | null
  route: string | null
  tags: string[]
  metadata: Record<string, unknown>
  status: 'enabled' | 'disabled'
  parentGroupKey: number | null
  parentGroupId: string | null
  retentionDays: number | null
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
  description: string | null
  route: string | null
  tags: string[]
  metadata: Record<string, unknown>
  status: ChannelRecord['status']
  parent_group_key: number | null
  parent_group_id: string | null
  retention_days: number | null
  created_by: string | null
  created_at: string
  updated_by: string | null
  updated_at: string | null
}

function fromRow(row: Row): ChannelRecord {
  return {
    type: 'channel',
    key: row.key,
    domainKey: row.domain_key,
    domainId: row.domain_id,
    id: row.id,
    name: row.name,
    description: row.description,
    route: row.route,
    tags: row.tags,
    metadata: row.metadata,
    status: row.status,
    parentGroupKey: row.parent_group_key,
    parentGroupId: row.parent_group_id,
    retentionDays: row.retention_days,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedBy: row.updated_by,
    updatedAt: row.updated_at,
  }
}

/** The record as every query of this file returns it, from a table or CTE called `h`. */
const COLUMNS = sql`h.*, (SELECT d.id FROM domains d WHERE d.key = h.domain_key) AS domain_id,
  (SELECT g.id FROM groups g WHERE g.key = h.parent_group_key) AS parent_group_id`

const CONFLICTS = {
  channels_id_key: () => new ServiceError('conflict', 'a channel with this id exists in the domain'),
  channels_route_key: () => new ServiceError('conflict', 'a channel with this route exists in the domain'),
}

type InsertedRow = { key: number; id: string; created_at: string }

export type NewChannelRow = Pick<
  ChannelRecord,
  'id' | 'name' | 'description' | 'route' | 'tags' | 'metadata' | 'status' | 'retentionDays'
>

/**
 * Inserts any number of channels in one statement, all or none. Returns them in the order given. Bulks of one domain follow
 * each other, as with clients: ids and routes may be wanted crosswise.
 */
export async function insertChannels(
  db: Transaction,
  domain: { domainKey: number; domainId: string },
  channels: readonly NewChannelRow[],
  createdBy: string,
): Promise<ChannelRecord[]> {
  const { domainKey, domainId } = domain
  if (channels.length > 1)
    await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`channels of ${domainKey}`}, 0))`.execute(db)
  const { rows } = await refusing(
    CONFLICTS,
    sql<InsertedRow>`INSERT INTO channels (domain_key, id, name, description, route, tags, metadata, status, retention_days, created_by)
      SELECT ${domainKey}, (item ->> 'id')::uuid, item ->> 'name', item ->> 'description', item ->> 'route',
             ARRAY(SELECT jsonb_array_elements_text(item -> 'tags')), item -> 'metadata', item ->> 'status', (item ->> 'retentionDays')::integer, ${createdBy}
        FROM jsonb_array_elements(${JSON.stringify(channels)}::jsonb) AS list (item) ORDER BY item ->> 'id'
      RETURNING key, id, created_at`.execute(db),
  )
  const inserted = new Map(rows.map((row) => [row.id, row]))
  return channels.map((channel) => {
    const { key, created_at: createdAt } = inserted.get(channel.id) as InsertedRow
    return {
      ...channel,
      type: 'channel',
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

export async function findChannel(db: Queryable, domainKey: number, id: string): Promise<ChannelRecord | undefined> {
  const { rows } =
    await sql<Row>`SELECT ${COLUMNS} FROM channels h WHERE h.domain_key = ${domainKey} AND h.id = ${id}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export type ChannelChange = Partial<
  Pick<ChannelRecord, 'name' | 'description' | 'tags' | 'metadata' | 'status' | 'retentionDays'>
>

/** Writes the given fields; undefined when the channel was deleted meanwhile. */
export async function updateChannel(
  db: Queryable,
  key: number,
  change: ChannelChange,
  updatedBy: string,
): Promise<ChannelRecord | undefined> {
  const sets: RawBuilder<unknown>[] = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`]
  if (change.name !== undefined) sets.push(sql`name = ${change.name}`)
  if (change.description !== undefined) sets.push(sql`description = ${change.description}`)
  if (change.tags !== undefined) sets.push(sql`tags = ${change.tags}`)
  if (change.metadata !== undefined) sets.push(sql`metadata = ${JSON.stringify(change.metadata)}::jsonb`)
  if (change.status !== undefined) sets.push(sql`status = ${change.status}`)
  if (change.retentionDays !== undefined) sets.push(sql`retention_days = ${change.retentionDays}`)
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`WITH h AS (UPDATE channels SET ${sql.join(sets)} WHERE key = ${key} RETURNING *) SELECT ${COLUMNS} FROM h`.execute(
      db,
    ),
  )
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** Removes the channel and its connections; stored messages stay. False when it was gone already. */
export async function deleteChannel(db: Queryable, key: number): Promise<boolean> {
  const { rows } = await sql`DELETE FROM channels WHERE key = ${key} RETURNING key`.execute(db)
  return rows.length > 0
}

export type ChannelListing = {
  where: RawBuilder<SqlBool>
  order: string
  dir: 'asc' | 'desc'
  offset: number
  limit: number
}

export async function listChannels(
  db: Queryable,
  { where, order, dir, offset, limit }: ChannelListing,
): Promise<ChannelRecord[]> {
  const { rows } =
    await sql<Row>`SELECT ${COLUMNS} FROM channels h WHERE ${where} ORDER BY ${orderOf('h', order, dir)} OFFSET ${offset} LIMIT ${limit}`.execute(
      db,
    )
  return rows.map(fromRow)
}

export async function countChannels(db: Queryable, where: RawBuilder<SqlBool>): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM channels h WHERE ${where}`.execute(db)
  return rows[0]?.total ?? 0
}
