/** Writes the positions of the sessions of a node, and what changed with them. */
import type { Transaction } from '#core/database/index.ts'
import type { LivingNode } from '#core/nodes/index.ts'
import { sql } from '#core/sql.ts'
import { writeGroups } from './groups.ts'
import type { GroupPosition, SessionName, SubscriptionPosition } from './rows.ts'
import { writePositions } from './subscriptions.ts'

/** The positions of a node's sessions: sessions without messages in flight share the node's position, others have their own. */
export type SessionPositions = {
  node: string | undefined
  moved: readonly (SubscriptionPosition & { session: SessionName })[]
  /** Messages sent with QoS 2 that the positions have passed. */
  done: readonly { session: SessionName; ordinal: number }[]
  /** Messages that sessions missed and that exceeded the limit. */
  skipped: readonly { session: SessionName; messages: number }[]
  groups: readonly GroupPosition[]
  /** The write failed: all of this must be reported again. */
  undo(): void
}

/**
 * Writes the positions with the sign of life of the node. If `isOwed` is true, the sign of life is also written when no position has
 * changed.
 */
export async function writeSessionPositions(
  node: LivingNode,
  told: SessionPositions,
  { isOwed }: { isOwed: boolean },
): Promise<void> {
  if (!isOwed && told.node === node.position && isEmpty(told)) return
  try {
    await node.beat({ position: told.node, also: (tx) => writeChanges(tx, node.id, told) })
  } catch (error) {
    told.undo()
    throw error
  }
}

const isEmpty = ({ moved, done, skipped, groups }: SessionPositions) =>
  moved.length + done.length + skipped.length + groups.length === 0

async function writeChanges(tx: Transaction, node: string, told: SessionPositions): Promise<void> {
  // A session that was closed or taken over meanwhile has its position already: a late write must not change it.
  const names = new Map([...told.moved, ...told.done, ...told.skipped].map(({ session }) => [session.key, session]))
  const owned = await lockSessions(tx, node, [...names.values()])
  const mine = <T extends { session: SessionName }>(one: T) =>
    owned.has(one.session.key) ? [{ ...one, sessionKey: one.session.key }] : []
  const [moved, done, skipped] = [told.moved.flatMap(mine), told.done.flatMap(mine), told.skipped.flatMap(mine)]
  await writePositions(tx, moved)
  if (skipped.length > 0) {
    await sql`
      UPDATE mqtt_sessions s SET skipped_messages = s.skipped_messages + missed.messages
        FROM (SELECT * FROM unnest(${skipped.map(({ sessionKey }) => sessionKey)}::bigint[], ${skipped.map(({ messages }) => messages)}::bigint[])
                AS missed (key, messages) ORDER BY 1) missed WHERE s.key = missed.key`.execute(tx)
  }
  if (done.length > 0) {
    await sql`
      DELETE FROM mqtt_outbound WHERE (session_key, ordinal) IN (
        SELECT * FROM unnest(${done.map(({ sessionKey }) => sessionKey)}::bigint[], ${done.map(({ ordinal }) => ordinal)}::bigint[]))`.execute(
      tx,
    )
  }
  await writeGroups(tx, node, told.groups)
}

/** The sessions that still belong to these connections; none is closed or taken over before the end of the transaction. */
async function lockSessions(tx: Transaction, node: string, names: readonly SessionName[]): Promise<Set<number>> {
  if (names.length === 0) return new Set()
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM mqtt_sessions
     WHERE node = ${node} AND is_connected AND (key, epoch) IN (SELECT * FROM unnest(${names.map(({ key }) => key)}::bigint[], ${names.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY key FOR SHARE`.execute(tx)
  return new Set(rows.map(({ key }) => key))
}
