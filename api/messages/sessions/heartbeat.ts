/** What a node says of itself, in one row: that it lives, and where its sessions stand. */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { writeGroups } from './groups.ts'
import type { GroupPosition, SessionName, SubscriptionPosition } from './rows.ts'
import { writePositions } from './subscriptions.ts'

/** A node that has nothing else to say says so often that it lives: each word is a commit, which a disk at rest need not have twice a second. */
const SAY_SHARE = 1 / 5

/** Where the sessions of a node stand: those to which nothing is under way with the node, the others for themselves. */
export type SessionPositions = {
  node: string | undefined
  moved: readonly (SubscriptionPosition & { session: SessionName })[]
  /** Messages that were sent exactly once and are behind the positions now. */
  done: readonly { session: SessionName; ordinal: number }[]
  /** Messages that sessions missed and were too many. */
  skipped: readonly { session: SessionName; messages: number }[]
  groups: readonly GroupPosition[]
  /** They could not be written: all of this is told again. */
  undo(): void
}

export type HeartbeatOptions = {
  database: Database
  node: string
  deadAfterMs: number
  positions: () => SessionPositions
  /** The node was taken for dead: others may have its sessions, have sent their wills, and serve its groups. */
  onForgotten: () => void
}

export class Heartbeat {
  readonly #options: HeartbeatOptions
  /** When the node said last that it lives, and where it stood. */
  #said: { atMs: number; position: string | undefined } | undefined

  constructor(options: HeartbeatOptions) {
    this.#options = options
  }

  /** Monotonic milliseconds; undefined where it has not yet. */
  get saidAtMs(): number | undefined {
    return this.#said?.atMs
  }

  /** `isOwed`: also when what was said a moment ago still holds. */
  async beat({ isOwed }: { isOwed: boolean }): Promise<void> {
    const positions = this.#options.positions()
    const atMs = monotonicMs()
    if (!isOwed && this.#isSaid(positions, atMs)) return
    try {
      const isNew = await writeAlive(this.#options.database, this.#options.node, positions)
      if (isNew && this.#said !== undefined) this.#options.onForgotten()
      this.#said = { atMs, position: positions.node }
    } catch (error) {
      positions.undo()
      throw error
    }
  }

  /** What was said a moment ago holds, and there is nothing to add. */
  #isSaid({ node: position, moved, done, skipped, groups }: SessionPositions, atMs: number): boolean {
    return (
      this.#said !== undefined &&
      atMs - this.#said.atMs < this.#options.deadAfterMs * SAY_SHARE &&
      position === this.#said.position &&
      moved.length + done.length + skipped.length + groups.length === 0
    )
  }
}

/** True where nobody knew of the node. */
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
    // A session that was closed or taken over meanwhile stands where that was written: a word that comes late must not move it.
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

/** Those that are still of these connections; none is closed or taken over before the end of the transaction. */
async function lockSessions(tx: Transaction, node: string, names: readonly SessionName[]): Promise<Set<number>> {
  if (names.length === 0) return new Set()
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM mqtt_sessions
     WHERE node = ${node} AND is_connected AND (key, epoch) IN (SELECT * FROM unnest(${names.map(({ key }) => key)}::bigint[], ${names.map(({ epoch }) => epoch)}::bigint[]))
     ORDER BY key FOR SHARE`.execute(tx)
  return new Set(rows.map(({ key }) => key))
}
