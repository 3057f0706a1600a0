/**
 * Epochs of positions. The id of a transaction may be used again: after a failover or a crash that lost it, and in a database
 * that was restored into another server. So positions add an offset to ids, and each start of the database server begins an
 * epoch with an offset above every earlier position (`ensure_position_epoch` in the schema).
 */
import type pg from 'pg'

/**
 * Called on each new connection before its first statement; the schema must exist. True when this call began an epoch. Throws
 * while the server is a standby that accepts no writes.
 */
export async function ensurePositionEpoch(client: pg.ClientBase): Promise<boolean> {
  const { rows } = await client.query<{ began: boolean }>('SELECT ensure_position_epoch() AS began')
  return rows[0]?.began === true
}
