/** The rows of subscriptions. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ensureGroups, groupIdOf } from './groups.ts'
import type { SessionName, StoredSubscription, SubscriptionPosition } from './rows.ts'

type Subscribing = { name: SessionName; clientKey: number; subscriptions: readonly StoredSubscription[] }

/** A repeated filter replaces its subscription [MQTT-3.8.4-3]. Subscriptions of an ended connection are removed with it. */
export async function writeSubscriptions(tx: Transaction, writes: readonly Subscribing[]): Promise<void> {
  const last = new Map<string, StoredSubscription & { sessionKey: number; clientKey: number }>()
  for (const { name, clientKey, subscriptions } of writes) {
    for (const one of subscriptions) last.set(`${name.key} ${one.filter}`, { ...one, sessionKey: name.key, clientKey })
  }
  if (last.size === 0) return
  const rows = [...last.values()].toSorted(
    (one, other) => one.sessionKey - other.sessionKey || (one.filter < other.filter ? -1 : 1),
  )
  const groups = await ensureGroups(
    tx,
    rows.flatMap(({ channelKey, group, position }) =>
      group === undefined || channelKey === null ? [] : [{ channelKey, ...group, position }],
    ),
  )
  const groupKeyOf = ({ channelKey, group }: StoredSubscription) =>
    group === undefined || channelKey === null ? null : (groups.get(groupIdOf({ channelKey, ...group })) ?? null)
  await sql`
    INSERT INTO mqtt_subscriptions (session_key, filter, client_key, channel_key, options, identifier, position, share_group_key)
    SELECT wanted.* FROM unnest(
      ${rows.map(({ sessionKey }) => sessionKey)}::bigint[], ${rows.map(({ filter }) => filter)}::text[],
      ${rows.map(({ clientKey }) => clientKey)}::bigint[], ${rows.map(({ channelKey }) => channelKey)}::bigint[],
      ${rows.map(({ options }) => options)}::smallint[], ${rows.map(({ identifier }) => identifier ?? null)}::integer[],
      ${rows.map(({ position, group }) => (group === undefined ? (position ?? null) : null))}::text[], ${rows.map(groupKeyOf)}::bigint[])
      AS wanted (session_key, filter, client_key, channel_key, options, identifier, position, share_group_key)
      LEFT JOIN connections c ON c.client_key = wanted.client_key AND c.channel_key = wanted.channel_key
     WHERE wanted.channel_key IS NULL OR c.channel_key IS NOT NULL
     ORDER BY wanted.session_key, wanted.filter
    ON CONFLICT ON CONSTRAINT mqtt_subscriptions_pkey DO UPDATE
       SET channel_key = EXCLUDED.channel_key, options = EXCLUDED.options, identifier = EXCLUDED.identifier, share_group_key = EXCLUDED.share_group_key,
           position = coalesce(mqtt_subscriptions.position, EXCLUDED.position)`.execute(tx)
}

export async function deleteSubscriptions(
  tx: Transaction,
  writes: readonly { name: SessionName; filters: readonly string[] }[],
): Promise<void> {
  const rows = writes.flatMap(({ name, filters }) => filters.map((filter) => ({ key: name.key, filter })))
  if (rows.length === 0) return
  await sql`
    DELETE FROM mqtt_subscriptions WHERE (session_key, filter) IN (
      SELECT * FROM unnest(${rows.map(({ key }) => key)}::bigint[], ${rows.map(({ filter }) => filter)}::text[]))`.execute(
    tx,
  )
}

export async function writePositions(
  tx: Transaction,
  positions: readonly (SubscriptionPosition & { sessionKey: number })[],
): Promise<void> {
  if (positions.length === 0) return
  await sql`
    UPDATE mqtt_subscriptions s SET position = moved.position
      FROM (SELECT * FROM unnest(${positions.map(({ sessionKey }) => sessionKey)}::bigint[], ${positions.map(({ filter }) => filter)}::text[],
                   ${positions.map(({ position }) => position ?? null)}::text[])
              AS moved (session_key, filter, position) ORDER BY 1, 2) moved
     WHERE s.session_key = moved.session_key AND s.filter = moved.filter`.execute(tx)
}

/** Copies the node's position to subscriptions that share it, because the session moves to another node. */
export async function partFromNode(tx: Transaction, sessionKeys: readonly number[]): Promise<void> {
  if (sessionKeys.length === 0) return
  await sql`
    UPDATE mqtt_subscriptions u SET position = n.position FROM mqtt_sessions s JOIN nodes n ON n.id = s.node
     WHERE s.key = ANY (${[...sessionKeys]}::bigint[]) AND u.session_key = s.key AND u.position IS NULL`.execute(tx)
}

/** Returns the subscriptions by session. */
export async function loadSubscriptions(
  tx: Transaction,
  sessionKeys: readonly number[],
): Promise<Map<number, StoredSubscription[]>> {
  const found = new Map<number, StoredSubscription[]>()
  if (sessionKeys.length === 0) return found
  const { rows } = await sql<{
    session_key: number
    filter: string
    channel_key: number | null
    options: number
    identifier: number | null
    position: string | null
    name: string | null
    group_filter: string | null
  }>`
    SELECT u.session_key, u.filter, u.channel_key, u.options, u.identifier, u.position, g.name, g.filter AS group_filter
      FROM mqtt_subscriptions u LEFT JOIN mqtt_share_groups g ON g.key = u.share_group_key
     WHERE u.session_key = ANY (${[...sessionKeys]}::bigint[]) ORDER BY u.session_key, u.filter`.execute(tx)
  for (const row of rows) {
    const subscription = {
      filter: row.filter,
      channelKey: row.channel_key,
      options: row.options,
      identifier: row.identifier ?? undefined,
      position: row.position ?? undefined,
      group: row.name === null || row.group_filter === null ? undefined : { name: row.name, filter: row.group_filter },
    }
    const mine = found.get(row.session_key)
    if (mine === undefined) found.set(row.session_key, [subscription])
    else mine.push(subscription)
  }
  return found
}
