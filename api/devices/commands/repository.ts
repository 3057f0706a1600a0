/** SQL of commands to devices. */
import { allOf } from '#api/identity/index.ts'
import { Keyset, readPage, selected } from '#core/database/index.ts'
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { answeringTask, handCommands } from '#queues/index.ts'
import { IDEMPOTENCY_HOURS } from './idempotency.ts'
import type { Idempotency } from './idempotency.ts'
import type { CommandState, EndState } from './states.ts'

/** Ended commands are kept for these days, and of each client at most this number. */
export const KEPT_DAYS = 30
export const KEPT_PER_CLIENT = 1_000
/** A request that waits gets a command again after this time, if it is still open. */
const OFFERED_AGAIN_SECONDS = 30

export type CommandRecord = {
  key: number
  id: string
  clientKey: number
  clientId: string
  domainKey: number
  name: string
  payload: unknown
  hasPayload: boolean
  status: CommandState
  timeoutMs: number
  expiresAt: string
  createdBy: string | null
  createdAt: string
  deliveredAt: string | null
  endedAt: string | null
  result: unknown
  hasResult: boolean
  reason: string | null
  lateAt: string | null
  lateStatus: string | null
  /** The task that answers it instead of the client. */
  taskId: string | null
}

/** A JSON null is a value: whether a column has one is read apart from it. */
type Computed = 'clientId' | 'domainKey' | 'hasPayload' | 'hasResult'

const COLUMNS = {
  key: 'key',
  id: 'id',
  clientKey: 'client_key',
  name: 'name',
  payload: 'payload',
  status: 'status',
  timeoutMs: 'timeout_ms',
  expiresAt: 'expires_at',
  createdBy: 'created_by',
  createdAt: 'created_at',
  deliveredAt: 'delivered_at',
  endedAt: 'ended_at',
  result: 'result',
  reason: 'reason',
  lateAt: 'late_at',
  lateStatus: 'late_status',
  taskId: 'task_id',
} satisfies ColumnsOf<Omit<CommandRecord, Computed>>

const RECORD = sql`${selected(COLUMNS, 'm')}, c.id AS "clientId", c.domain_key AS "domainKey",
  m.payload IS NOT NULL AS "hasPayload", m.result IS NOT NULL AS "hasResult"`
const FROM = sql`device_commands m JOIN clients c ON c.key = m.client_key`

const isOpen = sql<boolean>`m.ended_at IS NULL`
/** The device gets it, because no task answers it. */
const isOffered = sql<boolean>`${isOpen} AND m.task_id IS NULL AND m.due_at > clock_timestamp()`
const json = (text: string | null) => sql`${text}::jsonb`

/** Locks the client until the transaction ends: its open commands are counted by one transaction at a time. False: it was deleted. */
export async function lockClient(tx: Transaction, clientKey: number): Promise<boolean> {
  const { rows } = await sql`SELECT key FROM clients WHERE key = ${clientKey} FOR NO KEY UPDATE`.execute(tx)
  return rows.length > 0
}

/** The command that was given with this key, and whether the request was the same. The client is locked. */
export async function findRepeated(
  db: Queryable,
  clientKey: number,
  { scope, requestDigest }: Idempotency,
): Promise<{ id: string; isSame: boolean } | undefined> {
  const { rows } = await sql<{ id: string; isSame: boolean }>`SELECT id, request_digest = ${requestDigest} AS "isSame"
    FROM device_commands WHERE client_key = ${clientKey} AND idempotency = ${scope}
      AND created_at >= now() - make_interval(hours => ${IDEMPOTENCY_HOURS})`.execute(db)
  return rows[0]
}

/** A key that was used before its time can be used again. */
export async function forgetKey(tx: Transaction, clientKey: number, { scope }: Idempotency): Promise<void> {
  await sql`UPDATE device_commands SET idempotency = NULL, request_digest = NULL WHERE client_key = ${clientKey} AND idempotency = ${scope}
    AND created_at < now() - make_interval(hours => ${IDEMPOTENCY_HOURS})`.execute(tx)
}

/** The number of open commands of a client, and the bytes of their payloads. */
export async function countOpen(db: Queryable, clientKey: number): Promise<{ commands: number; bytes: number }> {
  const { rows } = await sql<{ commands: number; bytes: number }>`SELECT count(*) AS commands,
    coalesce(sum(bytes), 0)::bigint AS bytes FROM device_commands m WHERE client_key = ${clientKey} AND ${isOpen}`.execute(
    db,
  )
  return rows[0] as { commands: number; bytes: number }
}

export type NewCommandRow = {
  id: string
  clientKey: number
  name: string
  /** JSON. */
  payload: string | null
  bytes: number
  timeoutMs: number
  expiresAt: Date
  createdBy: string
  idempotency: Idempotency | undefined
}

/** Returns whether a task answers it. */
export async function insertCommand(tx: Transaction, row: NewCommandRow): Promise<{ isHanded: boolean }> {
  const { rows } = await sql<{ isHanded: boolean }>`WITH inserted AS (
    INSERT INTO device_commands (id, client_key, name, payload, bytes, timeout_ms, expires_at, due_at, created_by, idempotency, request_digest, task_id)
    SELECT ${row.id}, c.key, ${row.name}, ${json(row.payload)}, ${row.bytes}, ${row.timeoutMs}, ${row.expiresAt}, ${row.expiresAt},
      ${row.createdBy}, ${row.idempotency?.scope ?? null}, ${row.idempotency?.requestDigest ?? null}, ${answeringTask('c', sql`${row.name}`)}
      FROM clients c WHERE c.key = ${row.clientKey} RETURNING key, id, client_key, task_id),
    given AS (SELECT i.key, i.id, i.task_id, c.domain_key FROM inserted i JOIN clients c ON c.key = i.client_key),
    handed AS (${handCommands('given')})
    SELECT task_id IS NOT NULL AS "isHanded" FROM given`.execute(tx)
  return { isHanded: rows[0]?.isHanded === true }
}

export async function findCommand(db: Queryable, clientKey: number, id: string): Promise<CommandRecord | undefined> {
  const { rows } = await sql<CommandRecord>`SELECT ${RECORD} FROM ${FROM}
    WHERE m.id = ${id}::uuid AND m.client_key = ${clientKey}`.execute(db)
  return rows[0]
}

/** `isDue`: its time has passed, and no sweep has ended it yet. */
export type LockedCommand = CommandRecord & { isDue: boolean }

/** Locks the command until the transaction ends. */
export async function lockCommand(tx: Transaction, clientKey: number, id: string): Promise<LockedCommand | undefined> {
  const { rows } = await sql<LockedCommand>`SELECT ${RECORD}, ${isOpen} AND m.due_at <= clock_timestamp() AS "isDue"
    FROM ${FROM} WHERE m.id = ${id}::uuid AND m.client_key = ${clientKey} FOR NO KEY UPDATE OF m`.execute(tx)
  return rows[0]
}

const NEWEST_FIRST = new Keyset([{ by: sql`m.key`, type: 'number', dir: 'desc' }])

export type CommandFilter = { clientKey: number; status: readonly string[] | undefined; name: string | undefined }

export async function listCommands(
  db: Queryable,
  { clientKey, status, name }: CommandFilter,
  range: PageRange,
): Promise<{ total: number; commands: CommandRecord[]; next: PageEnd }> {
  const where = allOf([
    sql<boolean>`m.client_key = ${clientKey}`,
    ...(status === undefined ? [] : [sql<boolean>`m.status = ANY (${[...status]}::text[])`]),
    ...(name === undefined ? [] : [sql<boolean>`m.name = ${name}`]),
  ])
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM device_commands m WHERE ${where}`.execute(db)
  const source = { columns: RECORD, from: FROM, where, keyset: NEWEST_FIRST }
  const { rows, next } = await readPage<CommandRecord>(db, source, range)
  return { total: counted[0]?.total ?? 0, commands: rows, next }
}

/** A command as its device gets it. */
export type Offered = {
  key: number
  id: string
  name: string
  payload: unknown
  hasPayload: boolean
  createdAt: string
  expiresAt: string
  status: CommandState
}

const OFFERED = sql`m.key, m.id, m.name, m.payload, m.payload IS NOT NULL AS "hasPayload", m.created_at AS "createdAt",
  m.expires_at AS "expiresAt", m.status`

/** The greatest key of the open commands of a client, and the bytes of their payloads. */
export type OpenSummary = { newest: number; bytes: number }

/** Returns the summary of each of these clients that has open commands. */
export async function summarizeOpen(db: Queryable, clientKeys: readonly number[]): Promise<Map<number, OpenSummary>> {
  const { rows } = await sql<
    OpenSummary & { clientKey: number }
  >`SELECT m.client_key AS "clientKey", max(m.key) AS newest,
      sum(m.bytes)::bigint AS bytes FROM device_commands m
    WHERE m.client_key = ANY (${[...clientKeys]}::bigint[]) AND ${isOffered} GROUP BY m.client_key`.execute(db)
  return new Map(rows.map(({ clientKey, ...summary }) => [clientKey, summary]))
}

/** The open commands of a client with a greater key. */
export type AskedOpen = { clientKey: number; after: number }

/** The open commands for each question, in the order of their creation. */
export async function listOpenOf(db: Queryable, asked: readonly AskedOpen[]): Promise<Offered[][]> {
  const { rows } = await sql<Offered & { place: number }>`SELECT u.place, ${OFFERED}
    FROM unnest(${asked.map(({ clientKey }) => clientKey)}::bigint[], ${asked.map(({ after }) => after)}::bigint[])
      WITH ORDINALITY AS u (client_key, after, place)
    JOIN device_commands m ON m.client_key = u.client_key AND m.key > u.after AND ${isOffered}
    ORDER BY u.place, m.key`.execute(db)
  const found: Offered[][] = asked.map(() => [])
  for (const { place, ...command } of rows) found[place - 1]?.push(command)
  return found
}

/** Takes the open commands of a client that no request got within the last seconds, or all of them, and marks them as offered. */
export async function takeOpen(tx: Transaction, clientKey: number, isAll: boolean): Promise<Offered[]> {
  const isUnoffered = sql`(m.offered_at IS NULL OR m.offered_at < clock_timestamp() - make_interval(secs => ${OFFERED_AGAIN_SECONDS}))`
  const { rows } = await sql<Offered>`WITH found AS (SELECT ${OFFERED} FROM device_commands m
      WHERE m.client_key = ${clientKey} AND ${isOffered} AND ${isAll ? sql`true` : isUnoffered}
      ORDER BY m.key FOR NO KEY UPDATE),
    marked AS (UPDATE device_commands SET offered_at = clock_timestamp() WHERE key IN (SELECT key FROM found))
    SELECT * FROM found ORDER BY key`.execute(tx)
  return rows
}

/** What the journal says of a command. */
export type Told = Pick<CommandRecord, 'id' | 'clientKey' | 'clientId' | 'domainKey' | 'name' | 'status'>

const TOLD = sql`m.id, m.client_key AS "clientKey", c.id AS "clientId", c.domain_key AS "domainKey", m.name, m.status`

/** The device has these commands: queued ones are delivered, and their timeout begins. Returns the ones that were queued. */
export async function markDelivered(tx: Transaction, clientKey: number, keys: readonly number[]): Promise<Told[]> {
  const { rows } = await sql<Told>`WITH found AS (SELECT key FROM device_commands m
      WHERE m.key = ANY (${[...keys]}::bigint[]) AND m.client_key = ${clientKey} AND m.status = 'queued' AND m.due_at > clock_timestamp()
      ORDER BY m.key FOR NO KEY UPDATE)
    UPDATE device_commands m SET status = 'delivered', delivered_at = clock_timestamp(),
      due_at = least(m.expires_at, clock_timestamp() + m.timeout_ms::float8 * interval '1 millisecond')
      FROM clients c WHERE m.key IN (SELECT key FROM found) AND c.key = m.client_key RETURNING ${TOLD}`.execute(tx)
  return rows
}

export type End = { status: EndState; result?: string | undefined; reason?: string | undefined; isAnswer?: boolean }

/** Ends a command that `lockCommand` has locked. An answer says that the device has the command. */
export async function endCommand(
  tx: Transaction,
  key: number,
  { status, result, reason, isAnswer = false }: End,
): Promise<void> {
  await sql`UPDATE device_commands SET status = ${status}, ended_at = clock_timestamp(), result = ${json(result ?? null)}, reason = ${reason ?? null},
    delivered_at = ${isAnswer ? sql`coalesce(delivered_at, clock_timestamp())` : sql`delivered_at`} WHERE key = ${key}`.execute(
    tx,
  )
}

/** The same answer has come before: a device repeats it when it did not get the response. */
export async function isRepeatedAnswer(tx: Transaction, key: number, { status, result }: End): Promise<boolean> {
  const { rows } = await sql<{
    isSame: boolean
  }>`SELECT status = ${status} AND result IS NOT DISTINCT FROM ${json(result ?? null)} AS "isSame"
    FROM device_commands WHERE key = ${key}`.execute(tx)
  return rows[0]?.isSame === true
}

/** Records the first answer after the end. */
export async function recordLate(tx: Transaction, key: number, status: string): Promise<void> {
  await sql`UPDATE device_commands SET late_at = clock_timestamp(), late_status = ${status} WHERE key = ${key}`.execute(
    tx,
  )
}

/** Seconds until the next open command is due, negative for one that is; undefined without any. */
export async function secondsUntilDue(db: Queryable): Promise<number | undefined> {
  const { rows } = await sql<{
    seconds: number | null
  }>`SELECT extract(epoch FROM min(m.due_at) - clock_timestamp())::float8 AS seconds
    FROM device_commands m WHERE ${isOpen}`.execute(db)
  return rows[0]?.seconds ?? undefined
}

const SWEEP_LOCK = 0x5ce1_0029

/** False while another process sweeps. The lock ends with the transaction. */
export async function tryLockSweep(tx: Transaction): Promise<boolean> {
  const { rows } = await sql<{ locked: boolean }>`SELECT pg_try_advisory_xact_lock(${SWEEP_LOCK}) AS locked`.execute(tx)
  return rows[0]?.locked === true
}

/** Ends the commands whose time has passed, the oldest first. Returns them. */
export async function endDue(tx: Transaction, limit: number): Promise<Told[]> {
  const { rows } =
    await sql<Told>`WITH found AS (SELECT key FROM device_commands m WHERE ${isOpen} AND m.due_at <= clock_timestamp()
      ORDER BY m.due_at LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE device_commands m SET status = ${dueStatus}, ended_at = clock_timestamp() FROM clients c
     WHERE m.key IN (SELECT key FROM found) AND c.key = m.client_key RETURNING ${TOLD}`.execute(tx)
  return rows
}

/** A command that reaches the end of its life expires; one that reaches the end of its timeout before times out. */
const dueStatus: Sql = sql`CASE WHEN m.due_at >= m.expires_at THEN 'expired' ELSE 'timed_out' END`

export async function endDueCommand(tx: Transaction, key: number): Promise<Told> {
  const { rows } =
    await sql<Told>`UPDATE device_commands m SET status = ${dueStatus}, ended_at = clock_timestamp() FROM clients c
    WHERE m.key = ${key} AND c.key = m.client_key RETURNING ${TOLD}`.execute(tx)
  return rows[0] as Told
}

/** Removes ended commands that are older than the days they are kept. Returns their number. */
export async function removeOld(db: Queryable, limit: number): Promise<number> {
  const { numAffectedRows = 0n } = await sql`DELETE FROM device_commands WHERE key IN (SELECT key FROM device_commands
    WHERE ended_at < now() - make_interval(days => ${KEPT_DAYS}) ORDER BY ended_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`.execute(
    db,
  )
  return Number(numAffectedRows)
}

/** Removes the oldest ended commands of each client beyond the number that is kept. The clients are locked. */
export async function removeBeyond(tx: Transaction, clientKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM device_commands m USING unnest(${[...clientKeys]}::bigint[]) AS u (key) CROSS JOIN LATERAL (
      SELECT e.key AS last FROM device_commands e WHERE e.client_key = u.key AND e.ended_at IS NOT NULL
       ORDER BY e.key DESC OFFSET ${KEPT_PER_CLIENT} LIMIT 1) beyond
    WHERE m.client_key = u.key AND m.ended_at IS NOT NULL AND m.key <= beyond.last`.execute(tx)
}
