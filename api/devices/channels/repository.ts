/** SQL of channels. */
import { grantingAdmin } from '#api/identity/index.ts'
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import { prepared, refusing } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { RECORD_COLUMNS, connectableTable } from '../connectable/repository.ts'
import type { ConnectableRecord } from '../connectable/record.ts'
import type { Computed, ConnectableChange } from '../connectable/repository.ts'

type ChannelFields = { description: string | null; route: string | null; retentionDays: number | null }
export type ChannelRecord = ConnectableRecord<'channel'> & ChannelFields

const COLUMNS = {
  ...RECORD_COLUMNS,
  description: 'description',
  route: 'route',
  retentionDays: 'retention_days',
} satisfies ColumnsOf<Omit<ChannelRecord, Computed>>

const CONFLICTS = {
  channels_id_key: () => takenField('/id', 'a channel with this id exists in the domain'),
  channels_route_key: () => takenField('/route', 'a channel with this route exists in the domain'),
}

type InsertedRow = { key: number; id: string; created_at: string }

export type NewChannelRow = Pick<
  ChannelRecord,
  | 'id'
  | 'name'
  | 'description'
  | 'route'
  | 'tags'
  | 'metadata'
  | 'status'
  | 'retentionDays'
  | 'parentGroupKey'
  | 'parentGroupId'
>

const INSERT = prepared<InsertedRow>(
  'insert_channels',
  `WITH made AS (
   INSERT INTO channels (domain_key, id, name, description, route, tags, metadata, status, retention_days, parent_group_key, created_by)
   SELECT $1, (item ->> 'id')::uuid, item ->> 'name', item ->> 'description', item ->> 'route',
          ARRAY(SELECT jsonb_array_elements_text(item -> 'tags')), item -> 'metadata', item ->> 'status', (item ->> 'retentionDays')::integer,
          (item ->> 'parentGroupKey')::bigint, $2
     FROM jsonb_array_elements($3::jsonb) AS list (item) ORDER BY item ->> 'id'
   RETURNING key, id, created_at),
   granted AS (${grantingAdmin('channel', { made: 'made', user: '$4', domain: '$1' })})
   SELECT key, id, created_at FROM made`,
)

/**
 * Inserts any number of channels in one statement, all or none. Returns them in the order given. Rows are inserted in
 * the order of their ids. Bulk creations with routes are serialized per domain by an advisory lock, like bulk creations
 * of clients with secrets.
 */
export async function insertChannels(
  db: Transaction,
  domain: { domainKey: number; domainId: string },
  channels: readonly NewChannelRow[],
  creator: { id: string; key: number },
): Promise<ChannelRecord[]> {
  const { domainKey, domainId } = domain
  if (channels.length > 1 && channels.some(({ route }) => route !== null))
    await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`channels of ${domainKey}`}, 0))`.execute(db)
  const { rows } = await refusing(CONFLICTS, INSERT(db, [domainKey, creator.id, JSON.stringify(channels), creator.key]))
  const inserted = new Map(rows.map((row) => [row.id, row]))
  return channels.map((channel) => {
    const { key, created_at: createdAt } = inserted.get(channel.id) as InsertedRow
    return {
      ...channel,
      type: 'channel',
      key,
      domainKey,
      domainId,
      createdBy: creator.id,
      createdAt,
      updatedBy: null,
      updatedAt: null,
    }
  })
}

/** Returns which of these ids and routes channels of the domain already use. Routes are in lower case. */
export async function findTaken(
  db: Queryable,
  domainKey: number,
  ids: readonly string[],
  routes: readonly string[],
): Promise<{ ids: ReadonlySet<string>; routes: ReadonlySet<string | undefined> }> {
  const { rows } = await sql<{ id: string; route: string | null }>`
    SELECT id, lower(route) AS route FROM channels WHERE domain_key = ${domainKey}
       AND (id = ANY (${ids}::uuid[]) OR lower(route) = ANY (${routes}::text[]))`.execute(db)
  return { ids: new Set(rows.map(({ id }) => id)), routes: new Set(rows.flatMap(({ route }) => route ?? [])) }
}

export type ChannelChange = ConnectableChange & Partial<ChannelFields>

export const channelTable = connectableTable<ChannelRecord, ChannelChange>({
  type: 'channel',
  columns: COLUMNS,
  conflicts: CONFLICTS,
})
