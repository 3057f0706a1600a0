/**
 * How many sessions a client may have at once, with and without a connection: each costs rows, memory and messages that wait
 * for it. None is ended to make room; whoever wants another one ends one first.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** Of a row of `mqtt_sessions`: it has a connection, or waits for one. Others are about to be cleared away. */
export const isLasting = (alias: string): Sql<boolean> =>
  sql<boolean>`(${sql.ref(`${alias}.is_connected`)} OR ${sql.ref(`${alias}.ends_at`)} > now())`

/**
 * Locked until the transaction ends, in the order of their keys, so that no two nodes give away the same place; before any
 * session is locked, as whatever deletes a client does.
 */
export async function lockClients(tx: Transaction, clientKeys: readonly number[]): Promise<void> {
  if (clientKeys.length === 0) return
  await sql`SELECT FROM clients WHERE key = ANY (${[...clientKeys]}::bigint[]) ORDER BY key FOR NO KEY UPDATE`.execute(
    tx,
  )
}

/** How many lasting sessions each of the clients has. */
export async function countLasting(tx: Transaction, clientKeys: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await sql<{ client_key: number; count: number }>`
    SELECT s.client_key, count(*)::int AS count FROM mqtt_sessions s
     WHERE s.client_key = ANY (${[...clientKeys]}::bigint[]) AND ${isLasting('s')} GROUP BY s.client_key`.execute(tx)
  return new Map(rows.map((row) => [row.client_key, row.count]))
}

export const tooManySessions = (maxSessions: number) =>
  new ServiceError('unprocessable', `the client has ${maxSessions} MQTT sessions, which is the most: end one of them`)
