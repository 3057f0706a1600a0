/** The rows of nodes that are dead. The time that decides is in the row of the node itself, so nodes of two versions do not disagree. */
import type { Queryable } from '../sql.ts'
import { sql } from '../sql.ts'

/** True for a node of the table `nodes` that gave no sign of life for its time. */
export const IS_DEAD = sql.raw('seen_at < now() - make_interval(secs => dead_after_seconds)')

export type DeadNode = {
  id: string
  /** The time at which it was last seen. */
  seenAt: string
  /** Its position in the log of messages; null: none. */
  position: string | null
}

/** A dead node that no other process is removing. Its row is locked: it cannot come back before the end of the transaction. */
export async function lockDeadNode(tx: Queryable): Promise<DeadNode | undefined> {
  const { rows } = await sql<DeadNode>`
    SELECT id, seen_at AS "seenAt", position FROM nodes WHERE ${IS_DEAD} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`.execute(
    tx,
  )
  return rows[0]
}

/** Call it in the transaction that removes what the node held. If the node lives, it notices. */
export async function removeNode(tx: Queryable, id: string): Promise<void> {
  await sql`DELETE FROM nodes WHERE id = ${id}`.execute(tx)
}
