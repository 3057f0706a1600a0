/** Sends due wills and removes expired sessions of all nodes; several nodes may do it at once. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { StoredWill } from './rows.ts'
import { parseWill } from './wills.ts'

/** The number of rows of one statement. */
const STEP_ROWS = 1000
/** The number of wills of one transaction, whose rows are locked while they are published. */
const WILLS_PER_STEP = 50

/** Publishes a will; resolves when it is stored or may no longer be sent. */
export type WillSender = (will: StoredWill, owner: { clientKey: number }) => Promise<void>

export async function sendDueWills(database: Database, sendWill: WillSender): Promise<void> {
  for (let sent = WILLS_PER_STEP; sent === WILLS_PER_STEP;) {
    sent = await database.transaction(async (tx) => {
      const { rows } = await sql<{ key: number; client_key: number; will: unknown; will_payload: Buffer | null }>`
        SELECT key, client_key, will, will_payload FROM mqtt_sessions WHERE will_due_at <= now()
         ORDER BY key LIMIT ${WILLS_PER_STEP} FOR UPDATE SKIP LOCKED`.execute(tx)
      if (rows.length === 0) return 0
      await Promise.all(
        rows.map(async (row) => {
          const will = parseWill(row.will, row.will_payload)
          if (will !== undefined) await sendWill(will, { clientKey: row.client_key })
        }),
      )
      await sql`UPDATE mqtt_sessions SET will = NULL, will_payload = NULL, will_due_at = NULL
        WHERE key = ANY (${rows.map(({ key }) => key)}::bigint[])`.execute(tx)
      return rows.length
    })
  }
}

/** A session is removed after its will is sent. */
export async function removeEndedSessions(database: Database): Promise<void> {
  for (let ended = STEP_ROWS; ended === STEP_ROWS;) {
    const { numAffectedRows = 0n } = await sql`
      DELETE FROM mqtt_sessions WHERE key IN (
        SELECT key FROM mqtt_sessions WHERE ends_at <= now() AND will_due_at IS NULL
         ORDER BY key LIMIT ${STEP_ROWS} FOR UPDATE SKIP LOCKED)`.execute(database.db)
    ended = Number(numAffectedRows)
  }
}
