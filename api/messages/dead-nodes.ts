/** Removes what dead nodes held of sessions. */
import type { Journal } from '#api/identity/index.ts'
import { lockDeadNode, removeNode } from '#core/nodes/index.ts'
import { removePresenceOf } from './presence/repository.ts'
import { disconnectSessionsOf } from './sessions/index.ts'

/** A transaction for each, in the order of every writer: the node, its sessions, then the telemetry of clients, which messages wait for. */
export async function removeDeadNodes(journal: Journal): Promise<void> {
  for (let isMore = true; isMore;) {
    isMore = await journal.change('system', async (tx, record) => {
      const dead = await lockDeadNode(tx)
      if (dead === undefined) return false
      await disconnectSessionsOf(tx, record, dead)
      await removePresenceOf(tx, dead.id, dead.seenAt)
      await removeNode(tx, dead.id)
      return true
    })
  }
}
