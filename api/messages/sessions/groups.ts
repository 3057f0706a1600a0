/**
 * Shared subscriptions (MQTT 5.0 section 4.8.2) in their rows: a group is one reader of the log, and one node at a time reads for it. That
 * node's epoch fences every other: who holds an older one moves nothing.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { parseToken } from '../live/token.ts'
import type { GroupName, GroupPosition, GroupRef, HeldGroup, PassedMessage } from './rows.ts'

/** Groups without subscribers that are removed by one statement. */
const STEP_ROWS = 1000

/** One to which nobody subscribes begins anew with whoever does; what came meanwhile is nobody's. */
const HAS_SUBSCRIBERS = sql`EXISTS (SELECT FROM mqtt_subscriptions u WHERE u.share_group_key = mqtt_share_groups.key)`

/** The order in which every statement locks rows of groups; their keys are not known to those that make them. */
const IN_ORDER = sql`channel_key, name COLLATE "C", filter COLLATE "C"`

/** As the id of an event of the message log: everything that commits after this moment lies behind it. */
const HERE = sql<string>`(SELECT split_part(seen, ':', 2) || coalesce(':' || nullif(split_part(seen, ':', 3), ''), '')
  FROM (SELECT pg_current_snapshot()::text AS seen) AS present)`

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
 * The keys of these groups by `groupIdOf`; a new one begins where `position` says, or here. Their rows are locked: none is removed
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

/** Those that nobody reads for are read for by this node from now on. */
export async function claimGroups(
  database: Database,
  node: string,
  wanted: readonly GroupName[],
): Promise<HeldGroup[]> {
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

/** The keys of the groups that this node reads for. */
export async function heldGroups(database: Database, node: string): Promise<GroupRef[]> {
  const { rows } = await sql<GroupRef>`SELECT key, epoch FROM mqtt_share_groups WHERE node = ${node}`.execute(
    database.db,
  )
  return rows
}

/** Of those that are still this node's. */
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
  // Whoever stands with the node has nothing beyond its position.
  const clear = mine.flatMap(({ key, position, isReleased }) => (position === undefined && !isReleased ? [key] : []))
  if (clear.length > 0)
    await sql`DELETE FROM mqtt_share_group_deliveries WHERE share_group_key = ANY (${clear}::bigint[])`.execute(tx)
  for (const { key, position, isExact } of mine) if (isExact && position !== undefined) await forget(tx, key, position)
}

/** What the position passed need not be known any more. */
async function forget(tx: Transaction, key: number, position: string): Promise<void> {
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

/** The keys of those that are this node's; none is another's before the end of the transaction. */
export async function lockGroups(tx: Transaction, node: string, groups: readonly GroupRef[]): Promise<Set<number>> {
  if (groups.length === 0) return new Set()
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM mqtt_share_groups
     WHERE node = ${node} AND (key, epoch) IN (SELECT * FROM unnest(${groups.map(({ key }) => key)}::bigint[], ${groups.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY ${IN_ORDER} FOR NO KEY UPDATE`.execute(tx)
  return new Set(rows.map(({ key }) => key))
}

/** Nobody reads for the groups of this node any more; they stand where it stood. */
export async function partGroups(tx: Transaction, node: string): Promise<void> {
  await sql`SELECT FROM mqtt_share_groups WHERE node = ${node} ORDER BY ${IN_ORDER} FOR NO KEY UPDATE`.execute(tx)
  await sql`
    UPDATE mqtt_share_groups SET node = NULL, position = coalesce(position, (SELECT n.position FROM mqtt_nodes n WHERE n.node = ${node}), ${HERE})
     WHERE node = ${node}`.execute(tx)
}

/** Groups to which nobody subscribes any more, and for which nobody reads. */
export async function removeEmptyGroups(database: Database): Promise<void> {
  await database.transaction(async (tx) => {
    const { rows } = await sql<{ key: number }>`
      SELECT key FROM mqtt_share_groups g WHERE node IS NULL AND NOT EXISTS (SELECT FROM mqtt_subscriptions u WHERE u.share_group_key = g.key)
       ORDER BY key LIMIT ${STEP_ROWS} FOR UPDATE SKIP LOCKED`.execute(tx)
    if (rows.length === 0) return
    // Another look, now that nobody can subscribe to them.
    await sql`
      DELETE FROM mqtt_share_groups g WHERE key = ANY (${rows.map(({ key }) => key)}::bigint[])
         AND NOT EXISTS (SELECT FROM mqtt_subscriptions u WHERE u.share_group_key = g.key)`.execute(tx)
  })
}
