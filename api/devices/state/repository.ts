/** SQL of the states of devices. */
import { isLockRefused, prepared } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { MAX_NAMES } from './document.ts'
import type { JsonObject } from './document.ts'

/** `version` is 0 for a document that was never written. */
export type StateRecord = {
  clientKey: number
  name: string
  desired: JsonObject
  reported: JsonObject
  delta: JsonObject
  version: number
  /** The version of the last change of which the device must be notified. */
  notifiedVersion: number
  desiredAt: string | null
  reportedAt: string | null
}

/** What a device is sent about one document. */
export type NotifiedState = Pick<StateRecord, 'clientKey' | 'name' | 'delta' | 'version' | 'notifiedVersion'>

/**
 * Whether a device must be sent a document. All documents of many clients have this read at once, so only a small delta is in it; null: it is larger,
 * and read when it is sent.
 */
export type StateChange = Omit<NotifiedState, 'delta'> & { isInSync: boolean; delta: JsonObject | null }

export type DocumentKey = Pick<StateRecord, 'clientKey' | 'name'>

const COLUMNS = `client_key AS "clientKey", name, desired, reported, delta, version, notified_version AS "notifiedVersion",
  desired_at AS "desiredAt", reported_at AS "reportedAt"`

const FIND = prepared<StateRecord>(
  'find_device_state',
  `SELECT ${COLUMNS} FROM device_states WHERE client_key = $1 AND name = $2`,
)
const FIND_VERSION = prepared<{ version: number }>(
  'find_device_state_version',
  'SELECT version FROM device_states WHERE client_key = $1 AND name = $2',
)
const LOCK = prepared<StateRecord>(
  'lock_device_state',
  `SELECT ${COLUMNS} FROM device_states WHERE client_key = $1 AND name = $2 FOR UPDATE`,
)
/** As it is stored. Of 200 clients with all of their documents, these are 3 MiB. */
const SMALL_DELTA_BYTES = 512
// A large delta is stored apart, and its size is known without reading it. One that is compressed may be a hundred times as large.
const FIND_CHANGES = prepared<StateChange>(
  'find_device_state_changes',
  `SELECT client_key AS "clientKey", name, version, notified_version AS "notifiedVersion",
          CASE WHEN pg_column_size(delta) > 100 THEN false ELSE delta = '{}'::jsonb END AS "isInSync",
          CASE WHEN pg_column_size(delta) <= ${SMALL_DELTA_BYTES} AND pg_column_compression(delta) IS NULL THEN delta END AS delta
     FROM device_states WHERE client_key = ANY ($1::bigint[])`,
)
const FIND_NOTIFIED = prepared<NotifiedState>(
  'find_notified_device_states',
  `SELECT client_key AS "clientKey", name, delta, version, notified_version AS "notifiedVersion"
     FROM device_states JOIN unnest($1::bigint[], $2::text[]) AS wanted (client_key, name) USING (client_key, name)`,
)

export const unwritten = (clientKey: number, name: string): StateRecord => ({
  clientKey,
  name,
  desired: {},
  reported: {},
  delta: {},
  version: 0,
  notifiedVersion: 0,
  desiredAt: null,
  reportedAt: null,
})

export async function findState(db: Queryable, clientKey: number, name: string): Promise<StateRecord | undefined> {
  return (await FIND(db, [clientKey, name])).rows[0]
}

/** 0: it was never written. */
export async function findVersion(db: Queryable, clientKey: number, name: string): Promise<number> {
  return (await FIND_VERSION(db, [clientKey, name])).rows[0]?.version ?? 0
}

/** All documents of these clients. */
export async function findChanges(db: Queryable, clientKeys: readonly number[]): Promise<StateChange[]> {
  return (await FIND_CHANGES(db, [clientKeys])).rows
}

/** These documents; one that was deleted is missing. */
export async function findNotified(db: Queryable, documents: readonly DocumentKey[]): Promise<NotifiedState[]> {
  return (await FIND_NOTIFIED(db, [documents.map(({ clientKey }) => clientKey), documents.map(({ name }) => name)]))
    .rows
}

export type ListedState = Pick<StateRecord, 'name' | 'version' | 'desiredAt' | 'reportedAt'> & { isInSync: boolean }

export async function listStates(db: Queryable, clientKey: number): Promise<ListedState[]> {
  const { rows } = await sql<ListedState>`
    SELECT name, version, delta = '{}'::jsonb AS "isInSync", desired_at AS "desiredAt", reported_at AS "reportedAt"
      FROM device_states WHERE client_key = ${clientKey} ORDER BY name`.execute(db)
  return rows
}

/**
 * The document, locked until the transaction ends. Without a row it is unwritten, and its client is locked, so that two transactions do not
 * create it. Throws `not_found` when the client was deleted, and `unprocessable` for more names than a client may have.
 */
export async function lockState(tx: Transaction, clientKey: number, name: string): Promise<StateRecord> {
  const lock = async () => (await LOCK(tx, [clientKey, name])).rows[0]
  const found = await lock()
  if (found !== undefined) return found
  const { rows: clients } = await sql`SELECT key FROM clients WHERE key = ${clientKey} FOR NO KEY UPDATE`.execute(tx)
  if (clients.length === 0) throw new ServiceError('not_found', 'entity not found')
  const created = await lock()
  if (created !== undefined) return created
  if (name !== '') await requireRoomForName(tx, clientKey)
  return unwritten(clientKey, name)
}

const LIMIT_LOCKS = prepared('limit_report_locks', `SELECT set_config('lock_timeout', '250ms', true)`)
const UNLIMIT_LOCKS = prepared('unlimit_report_locks', 'SET LOCAL lock_timeout TO DEFAULT')

/** As `lockState`, for a short time only: throws `unavailable` while a change of many clients holds the document. */
export async function lockStateSoon(tx: Transaction, clientKey: number, name: string): Promise<StateRecord> {
  tx.defer(LIMIT_LOCKS(tx, []))
  try {
    return await lockState(tx, clientKey, name)
  } catch (error) {
    if (!isLockRefused(error)) throw error
    throw new ServiceError('unavailable', 'the document is being changed: try again', {
      cause: error,
      retryAfterSeconds: 1,
    })
  } finally {
    // What follows waits for locks of its own.
    tx.defer(UNLIMIT_LOCKS(tx, []))
  }
}

async function requireRoomForName(tx: Transaction, clientKey: number): Promise<void> {
  const { rows } = await sql<{ names: number }>`
    SELECT count(*)::integer AS names FROM device_states WHERE client_key = ${clientKey} AND name <> ''`.execute(tx)
  if ((rows[0]?.names ?? 0) >= MAX_NAMES)
    throw new ServiceError('unprocessable', `a client is limited to ${MAX_NAMES} named documents of its state`)
}

export type StateWrite = Pick<StateRecord, 'clientKey' | 'name' | 'desired' | 'reported' | 'delta' | 'version'> & {
  /** The device must be notified of this change. */
  isNotified: boolean
  /** Its side was written, which sets its time. */
  side: 'desired' | 'reported'
}

type Written = Pick<StateRecord, 'clientKey' | 'version' | 'notifiedVersion' | 'desiredAt' | 'reportedAt'>

/**
 * Writes documents that `lockState` has locked, of one name each client, and returns them with their new versions. A version is at least the
 * time in milliseconds, so that it grows over a deletion, and over a restore of a backup.
 */
const WRITE = prepared<Written>(
  'write_device_states',
  `INSERT INTO device_states AS s (client_key, name, domain_key, desired, reported, delta, version, notified_version, desired_at, reported_at)
   SELECT w.client_key, w.name, c.domain_key, w.desired, w.reported, w.delta, next.version,
          CASE WHEN w.is_told THEN next.version ELSE 0 END,
          CASE WHEN w.side = 'desired' THEN now() END, CASE WHEN w.side = 'reported' THEN now() END
     FROM jsonb_to_recordset($1::jsonb) AS w (client_key bigint, name text, desired jsonb, reported jsonb, delta jsonb, version bigint,
            is_told boolean, side text)
     JOIN clients c ON c.key = w.client_key
    CROSS JOIN LATERAL (SELECT greatest(w.version + 1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS version) next
   ON CONFLICT ON CONSTRAINT device_states_pkey DO UPDATE
      SET desired = EXCLUDED.desired, reported = EXCLUDED.reported, delta = EXCLUDED.delta, version = EXCLUDED.version,
          notified_version = greatest(s.notified_version, EXCLUDED.notified_version), desired_at = coalesce(EXCLUDED.desired_at, s.desired_at),
          reported_at = coalesce(EXCLUDED.reported_at, s.reported_at)
   RETURNING client_key AS "clientKey", version, notified_version AS "notifiedVersion", desired_at AS "desiredAt", reported_at AS "reportedAt"`,
)

export async function writeStates(tx: Transaction, writes: readonly StateWrite[]): Promise<Map<number, StateRecord>> {
  const items = writes.map(({ clientKey, isNotified, ...rest }) => ({
    client_key: clientKey,
    is_told: isNotified,
    ...rest,
  }))
  const { rows } = await WRITE(tx, [JSON.stringify(items)])
  const written = new Map(rows.map((row) => [row.clientKey, row]))
  return new Map(
    writes.map(({ clientKey, name, desired, reported, delta }) => {
      const row = written.get(clientKey)
      // The client was deleted meanwhile.
      if (row === undefined) throw new ServiceError('not_found', 'entity not found')
      return [clientKey, { ...row, name, desired, reported, delta }]
    }),
  )
}

/** A report that changes nothing shows that the device is there. */
export async function touchReported(tx: Transaction, clientKey: number, name: string): Promise<StateRecord> {
  const { rows } = await sql<StateRecord>`
    UPDATE device_states SET reported_at = now() WHERE client_key = ${clientKey} AND name = ${name}
    RETURNING ${sql.raw(COLUMNS)}`.execute(tx)
  return rows[0] as StateRecord
}

export async function deleteState(tx: Transaction, clientKey: number, name: string): Promise<void> {
  await sql`DELETE FROM device_states WHERE client_key = ${clientKey} AND name = ${name}`.execute(tx)
}

/** Some clients of a domain. */
export type ClientSelection = { domainKey: number; where: Sql<boolean> }

/** The clients `c`, in the order in which they are locked. One more than `most` shows that there are more. */
export async function findSelected(
  tx: Queryable,
  { domainKey, where }: ClientSelection,
  most: number,
): Promise<{ key: number; id: string; name: string }[]> {
  const { rows } = await sql<{ key: number; id: string; name: string }>`
    SELECT c.key, c.id, c.name FROM clients c WHERE c.domain_key = ${domainKey} AND ${where} ORDER BY c.key LIMIT ${most + 1}`.execute(
    tx,
  )
  return rows
}

/** Locks the documents with this name, and the clients that have none. In the order of the keys. */
export async function lockStates(
  tx: Transaction,
  clientKeys: readonly number[],
  name: string,
): Promise<Map<number, StateRecord>> {
  await sql`SELECT key FROM clients WHERE key = ANY (${clientKeys}::bigint[]) ORDER BY key FOR NO KEY UPDATE`.execute(
    tx,
  )
  const { rows } = await sql<StateRecord>`
    SELECT ${sql.raw(COLUMNS)} FROM device_states WHERE client_key = ANY (${clientKeys}::bigint[]) AND name = ${name}
     ORDER BY client_key FOR UPDATE`.execute(tx)
  return new Map(rows.map((row) => [row.clientKey, row]))
}

/** Of these clients, those that have as many named documents as a client may have, and not this one. */
export async function findFullClients(tx: Transaction, clientKeys: readonly number[], name: string): Promise<number[]> {
  const { rows } = await sql<{ client_key: number }>`
    SELECT client_key FROM device_states WHERE client_key = ANY (${clientKeys}::bigint[]) AND name <> ''
     GROUP BY client_key HAVING count(*) >= ${MAX_NAMES} AND NOT bool_or(name = ${name})`.execute(tx)
  return rows.map((row) => row.client_key)
}

export type StateProgress = { total: number; inSync: number; pending: number; neverSeen: number }

/** How far the documents with this name are. Clients without one are in none of the three states. */
export async function countProgress(
  db: Queryable,
  { domainKey, where }: ClientSelection,
  name: string,
): Promise<StateProgress> {
  const { rows } = await sql<StateProgress>`
    SELECT count(*)::integer AS total,
           (count(*) FILTER (WHERE s.delta = '{}'::jsonb))::integer AS "inSync",
           (count(*) FILTER (WHERE s.delta <> '{}'::jsonb AND s.reported_at IS NOT NULL))::integer AS pending,
           (count(*) FILTER (WHERE s.delta <> '{}'::jsonb AND s.reported_at IS NULL))::integer AS "neverSeen"
      FROM clients c LEFT JOIN device_states s ON s.client_key = c.key AND s.name = ${name}
     WHERE c.domain_key = ${domainKey} AND ${where}`.execute(db)
  return rows[0] as StateProgress
}
