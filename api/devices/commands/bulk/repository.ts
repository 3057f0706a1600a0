/** SQL of commands to many clients. */
import { Keyset, hasOlderNodes, readPage, selected } from '#core/database/index.ts'
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { answeringTask, handCommands } from '#queues/index.ts'
import type { BULK_STATES, BulkProgress } from './schema.ts'
import { IDEMPOTENCY_HOURS } from '../idempotency.ts'
import type { Idempotency } from '../idempotency.ts'
import type { NewCommandRow, Told } from '../repository.ts'
import { KEPT_DAYS, removeBeyond } from '../repository.ts'
import { MAX_OPEN, MAX_OPEN_BYTES } from '../schema.ts'

/** Ended requests of a domain that are kept; the oldest are removed when another one is given, a bounded number at a time. */
export const KEPT_PER_DOMAIN = 1_000
const REMOVED_AT_ONCE = 10

export type BulkState = (typeof BULK_STATES)[number]

export type BulkRecord = {
  key: number
  id: string
  domainKey: number
  name: string
  payload: unknown
  hasPayload: boolean
  bytes: number
  timeoutMs: number
  expiresAt: string
  tag: string | null
  groupId: string | null
  atOnce: number
  perMinute: number | null
  stopPercent: number | null
  status: BulkState
  reason: string | null
  createdBy: string
  createdAt: string
  endedAt: string | null
  progress: BulkProgress
}

const COLUMNS = {
  key: 'key',
  id: 'id',
  domainKey: 'domain_key',
  name: 'name',
  payload: 'payload',
  bytes: 'bytes',
  timeoutMs: 'timeout_ms',
  expiresAt: 'expires_at',
  tag: 'tag',
  groupId: 'group_id',
  atOnce: 'at_once',
  perMinute: 'per_minute',
  stopPercent: 'stop_percent',
  status: 'status',
  reason: 'reason',
  createdBy: 'created_by',
  createdAt: 'created_at',
  endedAt: 'ended_at',
} satisfies ColumnsOf<Omit<BulkRecord, 'hasPayload' | 'progress'>>

const counted = (status: string) => sql`count(*) FILTER (WHERE t.status = ${status})`

const COUNTED = sql`(SELECT json_build_object('total', count(*), 'waiting', ${counted('waiting')}, 'open', ${counted('open')},
  'refused', ${counted('refused')}, 'succeeded', ${counted('succeeded')}, 'failed', ${counted('failed')}, 'rejected', ${counted('rejected')},
  'timed_out', ${counted('timed_out')}, 'expired', ${counted('expired')}, 'cancelled', ${counted('cancelled')})
  FROM device_command_targets t WHERE t.bulk_key = b.key)`
const PROGRESS = sql`coalesce(b.ended_progress, ${COUNTED})`

const RECORD = sql`${selected(COLUMNS, 'b')}, b.payload IS NOT NULL AS "hasPayload", ${PROGRESS} AS progress`

export type NewBulkRow = Pick<
  NewCommandRow,
  'id' | 'name' | 'payload' | 'bytes' | 'timeoutMs' | 'expiresAt' | 'createdBy'
> &
  Pick<BulkRecord, 'domainKey' | 'tag' | 'groupId' | 'atOnce' | 'perMinute' | 'stopPercent'> & {
    idempotency: Idempotency | undefined
  }

/** Returns the key. */
export async function insertBulk(tx: Transaction, row: NewBulkRow): Promise<number> {
  const { rows } = await sql<{ key: number }>`INSERT INTO device_command_bulks
      (id, domain_key, name, payload, bytes, timeout_ms, expires_at, tag, group_id, at_once, per_minute, stop_percent, created_by,
      idempotency, request_digest)
    VALUES (${row.id}, ${row.domainKey}, ${row.name}, ${row.payload}::jsonb, ${row.bytes}, ${row.timeoutMs}, ${row.expiresAt}, ${row.tag}, ${row.groupId}::uuid,
      ${row.atOnce}, ${row.perMinute}, ${row.stopPercent}, ${row.createdBy}, ${row.idempotency?.scope ?? null}, ${row.idempotency?.requestDigest ?? null}) RETURNING key`.execute(
    tx,
  )
  return (rows[0] as { key: number }).key
}

/** The request that was given with this key, and whether it was the same. */
export async function findRepeatedBulk(
  db: Queryable,
  domainKey: number,
  { scope, requestDigest }: Idempotency,
): Promise<{ id: string; isSame: boolean } | undefined> {
  const { rows } = await sql<{
    id: string
    isSame: boolean
  }>`SELECT id, request_digest = ${requestDigest} AS "isSame" FROM device_command_bulks
    WHERE domain_key = ${domainKey} AND idempotency = ${scope} AND created_at >= now() - make_interval(hours => ${IDEMPOTENCY_HOURS})`.execute(
    db,
  )
  return rows[0]
}

/** A key that was used before its time can be used again. */
export async function forgetKey(tx: Transaction, domainKey: number, { scope }: Idempotency): Promise<void> {
  await sql`UPDATE device_command_bulks SET idempotency = NULL, request_digest = NULL WHERE domain_key = ${domainKey} AND idempotency = ${scope}
    AND created_at < now() - make_interval(hours => ${IDEMPOTENCY_HOURS})`.execute(tx)
}

export type Selection = Pick<BulkRecord, 'domainKey' | 'tag' | 'groupId'>

const selectedClients = ({ domainKey, tag, groupId }: Selection) =>
  sql`clients c WHERE c.domain_key = ${domainKey} AND c.status = 'enabled' AND ${
    tag === null
      ? sql`c.parent_group_key = (SELECT g.key FROM groups g WHERE g.domain_key = ${domainKey} AND g.id = ${groupId}::uuid)`
      : sql`c.tags @> ARRAY[${tag}]::text[]`
  }`

/** The number of clients that the request selects, counted up to `limit`. */
export async function countSelected(db: Queryable, selection: Selection, limit: number): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM (
    SELECT FROM ${selectedClients(selection)} LIMIT ${limit}) AS counted`.execute(db)
  return rows[0]?.total ?? 0
}

/** Adds the clients that the request selects, at most `limit`. Returns their number. */
export async function insertTargets(
  tx: Transaction,
  bulkKey: number,
  selection: Selection,
  limit: number,
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`INSERT INTO device_command_targets (bulk_key, client_key)
    SELECT ${bulkKey}::bigint, c.key FROM ${selectedClients(selection)} ORDER BY c.key LIMIT ${limit}`.execute(tx)
  return Number(numAffectedRows)
}

export async function groupExists(db: Queryable, domainKey: number, groupId: string): Promise<boolean> {
  const { rows } = await sql`SELECT key FROM groups WHERE domain_key = ${domainKey} AND id = ${groupId}::uuid`.execute(
    db,
  )
  return rows.length > 0
}

/** Requests of the domain that are not ended. The domain is locked until the transaction ends, so that they are counted by one at a time. */
export async function countRunning(tx: Transaction, domainKey: number): Promise<number> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended('commands of ' || ${domainKey}::text, 0))`.execute(tx)
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM device_command_bulks
    WHERE domain_key = ${domainKey} AND ended_at IS NULL`.execute(tx)
  return rows[0]?.total ?? 0
}

export async function findBulk(db: Queryable, domainKey: number, id: string): Promise<BulkRecord | undefined> {
  const { rows } = await sql<BulkRecord>`SELECT ${RECORD} FROM device_command_bulks b
    WHERE b.domain_key = ${domainKey} AND b.id = ${id}::uuid`.execute(db)
  return rows[0]
}

const NEWEST_FIRST = new Keyset([{ by: sql`b.key`, type: 'number', dir: 'desc' }])

export async function listBulks(
  db: Queryable,
  domainKey: number,
  range: PageRange,
): Promise<{ total: number; bulks: BulkRecord[]; next: PageEnd }> {
  const where = sql<boolean>`b.domain_key = ${domainKey}`
  const { rows: all } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM device_command_bulks b WHERE ${where}`.execute(db)
  const source = { columns: RECORD, from: sql`device_command_bulks b`, where, keyset: NEWEST_FIRST }
  const { rows, next } = await readPage<BulkRecord>(db, source, range)
  return { total: all[0]?.total ?? 0, bulks: rows, next }
}

/** The requests whose next part is due, longest ago first. */
export async function listDueBulks(db: Queryable, limit: number): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM device_command_bulks
    WHERE ended_at IS NULL AND next_at <= clock_timestamp() ORDER BY next_at, key LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

/** With `ageSeconds` since its creation, and whether its commands have expired. */
/** `ended`: its commands that have ended since it was locked before. */
export type LockedBulk = BulkRecord & { ageSeconds: number; isExpired: boolean; ended: number }

/** Locks a request until the transaction ends, and takes over how its commands have ended. Undefined: it has ended, or another process works on it. */
export async function lockBulk(tx: Transaction, key: number, mayWait: boolean): Promise<LockedBulk | undefined> {
  const { rows: locked } = await sql`SELECT key FROM device_command_bulks WHERE key = ${key} AND ended_at IS NULL
    FOR NO KEY UPDATE ${mayWait ? sql`` : sql`SKIP LOCKED`}`.execute(tx)
  if (locked.length === 0) return undefined
  // A command that is no longer kept has ended long ago.
  const { numAffectedRows: ended = 0n } =
    await sql`UPDATE device_command_targets t SET status = coalesce((SELECT m.status FROM device_commands m WHERE m.key = t.command_key), 'expired')
    WHERE t.bulk_key = ${key} AND t.status = 'open'
      AND NOT EXISTS (SELECT FROM device_commands m WHERE m.key = t.command_key AND m.ended_at IS NULL)`.execute(tx)
  const { rows } = await sql<
    Omit<LockedBulk, 'ended'>
  >`SELECT ${RECORD}, extract(epoch FROM clock_timestamp() - b.created_at)::float8 AS "ageSeconds",
      b.expires_at <= clock_timestamp() AS "isExpired"
    FROM device_command_bulks b WHERE b.key = ${key}`.execute(tx)
  return rows[0] && { ...rows[0], ended: Number(ended) }
}

/** Gives the command to some of the waiting clients, and returns those commands. A client with too many open commands is refused. */
export async function giveSome(
  tx: Transaction,
  bulk: BulkRecord,
  limit: number,
): Promise<(Told & { isHanded: boolean })[]> {
  const { key, bytes } = bulk
  const { rows: clients } = await sql<{ key: number }>`SELECT c.key FROM clients c WHERE c.key IN (
      SELECT client_key FROM device_command_targets WHERE bulk_key = ${key} AND status = 'waiting' ORDER BY client_key LIMIT ${limit})
    ORDER BY c.key FOR NO KEY UPDATE`.execute(tx)
  if (clients.length === 0) return []
  const keys = clients.map((client) => client.key)
  await removeBeyond(tx, keys)
  const { rows } = await sql<Told & { isHanded: boolean }>`
    WITH fits AS (SELECT u.key FROM unnest(${keys}::bigint[]) AS u (key) CROSS JOIN LATERAL (
        SELECT count(*) AS commands, coalesce(sum(m.bytes), 0) AS bytes FROM device_commands m
         WHERE m.client_key = u.key AND m.ended_at IS NULL) open
       WHERE open.commands < ${MAX_OPEN} AND open.bytes + ${bytes}::integer <= ${MAX_OPEN_BYTES}),
    given AS (INSERT INTO device_commands (id, client_key, name, payload, bytes, timeout_ms, expires_at, due_at, created_by, task_id)
      SELECT gen_random_uuid(), f.key, b.name, b.payload, b.bytes, b.timeout_ms, b.expires_at, b.expires_at, b.created_by,
          ${answeringTask('c', sql`b.name`)}
        FROM fits f JOIN clients c ON c.key = f.key, device_command_bulks b WHERE b.key = ${key} ORDER BY f.key
      RETURNING key, id, client_key, name, status, task_id),
    located AS (SELECT g.key, g.id, g.task_id, c.domain_key FROM given g JOIN clients c ON c.key = g.client_key),
    handed AS (${handCommands('located')}),
    targets AS (UPDATE device_command_targets t SET status = CASE WHEN g.key IS NULL THEN 'refused' ELSE 'open' END, command_key = g.key
      FROM unnest(${keys}::bigint[]) AS u (key) LEFT JOIN given g ON g.client_key = u.key
      WHERE t.bulk_key = ${key} AND t.client_key = u.key)
    SELECT g.id, g.client_key AS "clientKey", c.id AS "clientId", c.domain_key AS "domainKey", g.name, g.status, g.task_id IS NOT NULL AS "isHanded"
      FROM given g JOIN clients c ON c.key = g.client_key ORDER BY g.key`.execute(tx)
  return rows
}

/** No more commands are given, and those that no device has are cancelled. Returns these. */
export async function endGiving(
  tx: Transaction,
  key: number,
  { status, reason, waiting }: { status: BulkState; reason: string | null; waiting: 'cancelled' | 'expired' },
): Promise<Told[]> {
  await sql`UPDATE device_command_bulks SET status = ${status}, reason = ${reason}, next_at = clock_timestamp() WHERE key = ${key}`.execute(
    tx,
  )
  await sql`UPDATE device_command_targets SET status = ${waiting} WHERE bulk_key = ${key} AND status = 'waiting'`.execute(
    tx,
  )
  if (waiting === 'expired') return []
  const { rows } =
    await sql<Told>`WITH found AS (SELECT m.key FROM device_commands m WHERE m.status = 'queued' AND m.key IN (
        SELECT command_key FROM device_command_targets WHERE bulk_key = ${key} AND status = 'open') ORDER BY m.key FOR NO KEY UPDATE OF m)
    UPDATE device_commands m SET status = 'cancelled', ended_at = clock_timestamp() FROM clients c
     WHERE m.key IN (SELECT key FROM found) AND m.status = 'queued' AND c.key = m.client_key
    RETURNING m.id, m.client_key AS "clientKey", c.id AS "clientId", c.domain_key AS "domainKey", m.name, m.status`.execute(
      tx,
    )
  return rows
}

/** The next part follows after this time. */
export async function storeNext(tx: Transaction, key: number, pauseMs: number): Promise<void> {
  await sql`UPDATE device_command_bulks SET next_at = clock_timestamp() + ${pauseMs}::float8 * interval '1 millisecond' WHERE key = ${key}`.execute(
    tx,
  )
}

/** All of its commands have ended: its counts are kept, and the rows of its clients are not. A node of an earlier version still counts these. */
export async function storeEnd(tx: Transaction, key: number): Promise<void> {
  await sql`UPDATE device_command_bulks b SET ended_at = clock_timestamp(), ended_progress = ${COUNTED},
      status = CASE WHEN status = 'running' THEN 'finished' ELSE status END
    WHERE key = ${key}`.execute(tx)
  await sql`DELETE FROM device_command_targets WHERE bulk_key = ${key} AND NOT ${hasOlderNodes('ended_bulk_commands')}`.execute(
    tx,
  )
}

/** Removes the oldest ended requests of the domain beyond the number that is kept. The domain is locked by `countRunning`. */
export async function removeBulksBeyond(tx: Transaction, domainKey: number): Promise<void> {
  const isEnded = sql`e.domain_key = ${domainKey} AND e.ended_at IS NOT NULL`
  await sql`DELETE FROM device_command_bulks WHERE key IN (SELECT e.key FROM device_command_bulks e
     WHERE ${isEnded} AND e.key <= (SELECT e.key FROM device_command_bulks e WHERE ${isEnded} ORDER BY e.key DESC OFFSET ${KEPT_PER_DOMAIN} LIMIT 1)
     ORDER BY e.key LIMIT ${REMOVED_AT_ONCE})`.execute(tx)
}

/** Removes requests that ended before the days they are kept. */
export async function removeOldBulks(db: Queryable, limit: number): Promise<number> {
  const { numAffectedRows = 0n } =
    await sql`DELETE FROM device_command_bulks WHERE key IN (SELECT key FROM device_command_bulks
    WHERE ended_at < now() - make_interval(days => ${KEPT_DAYS}) ORDER BY ended_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`.execute(
      db,
    )
  return Number(numAffectedRows)
}
