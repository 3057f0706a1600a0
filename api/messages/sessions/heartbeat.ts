/** The heartbeat of a node: one row with its time and the position of its sessions. */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { writeGroups } from './groups.ts'
import type { GroupPosition, SessionName, SubscriptionPosition } from './rows.ts'
import { writePositions } from './subscriptions.ts'

/** An idle node writes its heartbeat only this often: each write is a commit, which an idle disk should not have twice a second. */
const WRITE_SHARE = 1 / 5

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

export type HeartbeatOptions = {
  database: Database
  node: string
  deadAfterMs: number
  positions: () => SessionPositions
  /** The node was considered dead: others may have taken its sessions and groups, and sent its wills. */
  onDeclaredDead: () => void
}

export class Heartbeat {
  readonly #options: HeartbeatOptions
  /** Time and position of the last heartbeat. */
  #written: { atMs: number; position: string | undefined } | undefined

  constructor(options: HeartbeatOptions) {
    this.#options = options
  }

  /** Monotonic milliseconds of the last heartbeat; undefined before the first. */
  get writtenAtMs(): number | undefined {
    return this.#written?.atMs
  }

  /** `isOwed`: writes also when the last heartbeat is still valid. */
  async beat({ isOwed }: { isOwed: boolean }): Promise<void> {
    const positions = this.#options.positions()
    const atMs = monotonicMs()
    if (!isOwed && this.#isWritten(positions, atMs)) return
    try {
      const isNew = await writeAlive(this.#options.database, this.#options.node, positions)
      if (isNew && this.#written !== undefined) this.#options.onDeclaredDead()
      this.#written = { atMs, position: positions.node }
    } catch (error) {
      positions.undo()
      throw error
    }
  }

  /** The last heartbeat is still valid, and there is nothing to add. */
  #isWritten({ node: position, moved, done, skipped, groups }: SessionPositions, atMs: number): boolean {
    return (
      this.#written !== undefined &&
      atMs - this.#written.atMs < this.#options.deadAfterMs * WRITE_SHARE &&
      position === this.#written.position &&
      moved.length + done.length + skipped.length + groups.length === 0
    )
  }
}

/** True when the row of the node did not exist. */
async function writeAlive(
  database: Database,
  node: string,
  { node: position, ...told }: SessionPositions,
): Promise<boolean> {
  return await database.transaction(async (tx) => {
    const { rows } = await sql<{ is_new: boolean }>`
      INSERT INTO mqtt_nodes (node, position) VALUES (${node}, ${position ?? null})
      ON CONFLICT ON CONSTRAINT mqtt_nodes_pkey DO UPDATE SET seen_at = now(), position = EXCLUDED.position
      RETURNING xmax = 0 AS is_new`.execute(tx)
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
    return rows[0]?.is_new === true
  })
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
