/**
 * Limits the sessions of a client, with and without a connection: each costs rows, memory and queued messages. No session is ended to
 * make room; the client must end one first.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** Condition on a row of `mqtt_sessions`: it has a connection, or waits for one. Others are about to be removed. */
export const isUnexpired = (alias: string): Sql<boolean> =>
  sql<boolean>`(${sql.ref(`${alias}.is_connected`)} OR ${sql.ref(`${alias}.ends_at`)} > now())`

/**
 * Locks the clients until the transaction ends, in the order of their keys, so that two nodes do not exceed the limit together. Call it
 * before any session is locked, in the same order as deletions of clients.
 */
export async function lockClients(tx: Transaction, clientKeys: readonly number[]): Promise<void> {
  if (clientKeys.length === 0) return
  await sql`SELECT FROM clients WHERE key = ANY (${[...clientKeys]}::bigint[]) ORDER BY key FOR NO KEY UPDATE`.execute(
    tx,
  )
}

/** The number of unexpired sessions of each client. */
export async function countUnexpired(tx: Transaction, clientKeys: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await sql<{ client_key: number; count: number }>`
    SELECT s.client_key, count(*)::int AS count FROM mqtt_sessions s
     WHERE s.client_key = ANY (${[...clientKeys]}::bigint[]) AND ${isUnexpired('s')} GROUP BY s.client_key`.execute(tx)
  return new Map(rows.map((row) => [row.client_key, row.count]))
}

export const tooManySessions = (maxSessions: number) =>
  new ServiceError('unprocessable', `the client is limited to ${maxSessions} MQTT sessions: end one first`)
