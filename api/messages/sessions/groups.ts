/**
 * The rows of shared subscriptions (MQTT 5.0 section 4.8.2). A group is one consumer of the changelog, and one node at a time consumes
 * for it. The epoch of that node is a fence: a node with an older one cannot write.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { parseToken } from '../live/token.ts'
import type { GroupName, GroupPosition, GroupRef, ServedGroup, PassedMessage } from './rows.ts'

/** The number of groups without subscribers that one statement removes. */
const STEP_ROWS = 1000

/** A group without subscribers starts again at the present with its next subscriber; messages in between are not delivered. */
const HAS_SUBSCRIBERS = sql`EXISTS (SELECT FROM mqtt_subscriptions u WHERE u.share_group_key = mqtt_share_groups.key)`

/** The order in which every statement locks rows of groups, because the keys of new groups are not known. */
const IN_ORDER = sql`channel_key, name COLLATE "C", filter COLLATE "C"`

/** The present position as the id of an event of the changelog: everything that commits from now on is after it. */
const HERE = sql<string>`(SELECT split_part(seen, ':', 2) || coalesce(':' || nullif(split_part(seen, ':', 3), ''), '')
  FROM (SELECT position_snapshot()::text AS seen) AS present)`

const idOf = ({ channelKey, name, filter }: GroupName) => `${channelKey}\n${name}\n${filter}`

function sorted<T extends GroupName>(names: readonly T[]): T[] {
  const byId = new Map(names.map((name) => [idOf(name), name]))
  return [...byId.values()].toSorted(
    (one, other) =>
      one.channelKey - other.channelKey || compare(one.name, other.name) || compare(one.filter, other.filter),
  )
}

const compare = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0)

/**
 * The keys of these groups by `groupIdOf`; a new one begins at `position`, or at the present. Their rows are locked, so none is removed
 * before the end of the transaction.
 */
export async function ensureGroups(
  tx: Transaction,
  wanted: readonly (GroupName & { position: string | undefined })[],
): Promise<Map<string, number>> {
  const rows = sorted(wanted)
  if (rows.length === 0) return new Map()
  const { rows: found } = await sql<{ key: number; channel_key: number; name: string; filter: string }>`
    INSERT INTO mqtt_share_groups (channel_key, name, filter, position)
    SELECT wanted.channel_key, wanted.name, wanted.filter, coalesce(wanted.position, ${HERE}) FROM unnest(
      ${rows.map(({ channelKey }) => channelKey)}::bigint[], ${rows.map(({ name }) => name)}::text[], ${rows.map(({ filter }) => filter)}::text[],
      ${rows.map(({ position }) => position ?? null)}::text[]) AS wanted (channel_key, name, filter, position)
     WHERE EXISTS (SELECT FROM channels c WHERE c.key = wanted.channel_key)
     ORDER BY ${IN_ORDER}
    ON CONFLICT ON CONSTRAINT mqtt_share_groups_name_key DO UPDATE
       SET position = CASE WHEN ${HAS_SUBSCRIBERS} THEN mqtt_share_groups.position ELSE EXCLUDED.position END,
           node = CASE WHEN ${HAS_SUBSCRIBERS} THEN mqtt_share_groups.node END
    RETURNING key, channel_key, name, filter`.execute(tx)
  return new Map(found.map(({ channel_key: channelKey, ...group }) => [idOf({ channelKey, ...group }), group.key]))
}

export const groupIdOf = idOf

/** Assigns groups without a node to this node. */
export async function claimGroups(
  database: Database,
  node: string,
  wanted: readonly GroupName[],
): Promise<ServedGroup[]> {
  const names = sorted(wanted)
  if (names.length === 0) return []
  return await database.transaction(async (tx) => {
    const { rows } = await sql<{
      key: number
      epoch: number
      position: string | null
      channel_key: number
      name: string
      filter: string
    }>`
      INSERT INTO mqtt_share_groups (channel_key, name, filter, node, position)
      SELECT wanted.channel_key, wanted.name, wanted.filter, ${node}, ${HERE} FROM unnest(
        ${names.map(({ channelKey }) => channelKey)}::bigint[], ${names.map(({ name }) => name)}::text[], ${names.map(({ filter }) => filter)}::text[])
        AS wanted (channel_key, name, filter)
       WHERE EXISTS (SELECT FROM channels c WHERE c.key = wanted.channel_key)
         AND NOT EXISTS (SELECT FROM mqtt_share_groups g WHERE g.channel_key = wanted.channel_key AND g.name = wanted.name
                            AND g.filter = wanted.filter AND g.node <> ${node})
       ORDER BY ${IN_ORDER}
      ON CONFLICT ON CONSTRAINT mqtt_share_groups_name_key DO UPDATE
         SET node = EXCLUDED.node, epoch = mqtt_share_groups.epoch + 1,
             position = CASE WHEN ${HAS_SUBSCRIBERS} THEN coalesce(mqtt_share_groups.position, EXCLUDED.position) ELSE EXCLUDED.position END
       WHERE mqtt_share_groups.node IS NULL OR mqtt_share_groups.node = EXCLUDED.node
      RETURNING key, epoch, position, channel_key, name, filter`.execute(tx)
    const { rows: passed } = await sql<{ share_group_key: number; batch_seq: number; message: number }>`
      SELECT share_group_key, batch_seq, message FROM mqtt_share_group_deliveries WHERE share_group_key = ANY (${rows.map(({ key }) => key)}::bigint[])`.execute(
      tx,
    )
    const byGroup = Map.groupBy(passed, (row) => row.share_group_key)
    return rows.map(({ key, epoch, position, channel_key: channelKey, name, filter }) => ({
      key,
      epoch,
      name: { channelKey, name, filter },
      position: position ?? undefined,
      passed: (byGroup.get(key) ?? []).map(({ batch_seq: batchSeq, message }) => ({ batchSeq, message })),
    }))
  })
}

/** The keys of the groups that are assigned to this node. */
export async function heldGroups(database: Database, node: string): Promise<GroupRef[]> {
  const { rows } = await sql<GroupRef>`SELECT key, epoch FROM mqtt_share_groups WHERE node = ${node}`.execute(
    database.db,
  )
  return rows
}

/** Writes the positions of those that are still assigned to this node. */
export async function writeGroups(tx: Transaction, node: string, told: readonly GroupPosition[]): Promise<void> {
  if (told.length === 0) return
  const owned = await lockGroups(tx, node, told)
  const mine = told.filter(({ key }) => owned.has(key)).toSorted((one, other) => one.key - other.key)
  if (mine.length === 0) return
  await sql`
    UPDATE mqtt_share_groups g SET position = CASE WHEN told.is_released THEN coalesce(told.position, g.position) ELSE told.position END, node = CASE WHEN told.is_released THEN NULL ELSE g.node END
      FROM (SELECT * FROM unnest(${mine.map(({ key }) => key)}::bigint[], ${mine.map(({ position }) => position ?? null)}::text[],
                   ${mine.map(({ isReleased }) => isReleased)}::boolean[]) AS told (key, position, is_released) ORDER BY 1) told
     WHERE g.key = told.key`.execute(tx)
  await writePassed(
    tx,
    mine.flatMap(({ key, passed }) => passed.map((message) => ({ key, ...message }))),
  )
  // A group at the node's position has nothing beyond it.
  const clear = mine.flatMap(({ key, position, isReleased }) => (position === undefined && !isReleased ? [key] : []))
  if (clear.length > 0)
    await sql`DELETE FROM mqtt_share_group_deliveries WHERE share_group_key = ANY (${clear}::bigint[])`.execute(tx)
  for (const { key, position, isExact } of mine)
    if (isExact && position !== undefined) await deletePassed(tx, key, position)
}

/** Deletes deliveries that the position has passed. */
async function deletePassed(tx: Transaction, key: number, position: string): Promise<void> {
  const { xmax, running } = parseToken(position).snapshot
  const xmin = running.reduce((one, other) => (BigInt(other) < BigInt(one) ? other : one), xmax)
  await sql`
    DELETE FROM mqtt_share_group_deliveries p WHERE p.share_group_key = ${key} AND NOT EXISTS (
      SELECT FROM ingest_batches b WHERE b.seq = p.batch_seq
         AND NOT pg_visible_in_snapshot(b.xid, ${`${xmin}:${xmax}:${running.join(',')}`}::pg_snapshot))`.execute(tx)
}

export async function writePassed(
  tx: Transaction,
  messages: readonly (PassedMessage & { key: number })[],
): Promise<void> {
  if (messages.length === 0) return
  const rows = messages.toSorted(
    (one, other) => one.key - other.key || one.batchSeq - other.batchSeq || one.message - other.message,
  )
  await sql`
    INSERT INTO mqtt_share_group_deliveries (share_group_key, batch_seq, message) SELECT DISTINCT * FROM unnest(
      ${rows.map(({ key }) => key)}::bigint[], ${rows.map(({ batchSeq }) => batchSeq)}::bigint[], ${rows.map(({ message }) => message)}::integer[])
     ORDER BY 1, 2, 3 ON CONFLICT ON CONSTRAINT mqtt_share_group_deliveries_pkey DO NOTHING`.execute(tx)
}

/** The keys of the groups that are assigned to this node; the assignment cannot change before the end of the transaction. */
export async function lockGroups(tx: Transaction, node: string, groups: readonly GroupRef[]): Promise<Set<number>> {
  if (groups.length === 0) return new Set()
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM mqtt_share_groups
     WHERE node = ${node} AND (key, epoch) IN (SELECT * FROM unnest(${groups.map(({ key }) => key)}::bigint[], ${groups.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY ${IN_ORDER} FOR NO KEY UPDATE`.execute(tx)
  return new Set(rows.map(({ key }) => key))
}

/** Releases the groups of this node, which keep its position. */
export async function partGroups(tx: Transaction, node: string): Promise<void> {
  await sql`SELECT FROM mqtt_share_groups WHERE node = ${node} ORDER BY ${IN_ORDER} FOR NO KEY UPDATE`.execute(tx)
  await sql`
    UPDATE mqtt_share_groups SET node = NULL, position = coalesce(position, (SELECT n.position FROM nodes n WHERE n.id = ${node}), ${HERE})
     WHERE node = ${node}`.execute(tx)
}

/** Removes groups without subscribers and without a node. */
export async function removeEmptyGroups(database: Database): Promise<void> {
  await database.transaction(async (tx) => {
    const { rows } = await sql<{ key: number }>`
      SELECT key FROM mqtt_share_groups g WHERE node IS NULL AND NOT EXISTS (SELECT FROM mqtt_subscriptions u WHERE u.share_group_key = g.key)
       ORDER BY key LIMIT ${STEP_ROWS} FOR UPDATE SKIP LOCKED`.execute(tx)
    if (rows.length === 0) return
    // Checked again, now that no subscription can be added.
    await sql`
      DELETE FROM mqtt_share_groups g WHERE key = ANY (${rows.map(({ key }) => key)}::bigint[])
         AND NOT EXISTS (SELECT FROM mqtt_subscriptions u WHERE u.share_group_key = g.key)`.execute(tx)
  })
}
