/** `task_state`: what guests of a task keep between runs. The writer writes it with results (manager/writer/write-state.ts). */
import { recordManaged } from '#api/identity/index.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { actorOf } from '../access/callers.ts'
import type { TaskCaller } from '../access/access.ts'

/** Keys of one task, in all buckets. */
export const MAX_STATE_KEYS = 10_000
/** Bytes of the keys and values of one task. */
export const MAX_STATE_BYTES = 16 * 1024 * 1024

/** The values in the order of the keys; version 0: there is none. */
export async function readStateOfRun(
  db: Queryable,
  taskKey: number,
  client: string,
  keys: readonly string[],
): Promise<{ version: bigint; value: Uint8Array }[]> {
  const { rows } = await sql<{ name: string; version: number; value: Buffer }>`
    SELECT name, version, value FROM task_state
     WHERE task_key = ${taskKey} AND client = ${client} AND name = ANY (${[...keys]}::text[])`.executePrepared(
    db,
    'read-task-state',
  )
  const found = new Map(rows.map((row) => [row.name, row]))
  return keys.map((key) => {
    const row = found.get(key)
    return { version: BigInt(row?.version ?? 0), value: new Uint8Array(row?.value ?? []) }
  })
}

/** The keys of a bucket after one, in the order of their bytes. */
export async function listStateKeys(
  db: Queryable,
  { taskKey, client, after, limit }: { taskKey: number; client: string; after: string; limit: number },
): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    SELECT name FROM task_state WHERE task_key = ${taskKey} AND client = ${client} AND name > ${after}
     ORDER BY name LIMIT ${limit}`.executePrepared(db, 'list-task-state-keys')
  return rows.map((row) => row.name)
}

/** A value without its bytes. */
export type StateKey = { key: string; client: string; size: number; version: number; updated_at: Date }
export type StateValue = StateKey & { value: Buffer }

const KEY_COLUMNS = sql`s.name AS key, s.client, octet_length(s.value) AS size, s.version, s.updated_at`

/** Keys of a task, of all buckets or one, in the order of bucket and key. */
export async function listState(
  db: Queryable,
  taskKey: number,
  client: string | undefined,
  range: PageRange,
): Promise<{ total: number; keys: StateKey[]; next: PageEnd }> {
  const where =
    client === undefined
      ? sql<boolean>`s.task_key = ${taskKey}`
      : sql<boolean>`s.task_key = ${taskKey} AND s.client = ${client}`
  const from = sql`task_state s`
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM ${from} WHERE ${where}`.execute(
    db,
  )
  const byName = [
    { by: sql`s.client`, type: 'text' as const },
    { by: sql`s.name`, type: 'text' as const },
  ]
  const page = { columns: KEY_COLUMNS, from, where, keyset: new Keyset(byName, 'asc') }
  const { rows, next } = await readPage<StateKey>(db, page, range)
  return { total: counted[0]?.total ?? 0, keys: rows, next }
}

export type StatePlace = { taskKey: number; client: string; key: string }

export async function findState(db: Queryable, { taskKey, client, key }: StatePlace): Promise<StateValue | undefined> {
  const { rows } = await sql<StateValue>`
    SELECT ${KEY_COLUMNS}, s.value FROM task_state s
     WHERE s.task_key = ${taskKey} AND s.client = ${client} AND s.name = ${key}`.execute(db)
  return rows[0]
}

/** Why a value was not written: another version is stored, or the task has no room. */
export type StateRefused = 'version' | 'keys' | 'bytes' | 'no task'

export type StateWrite = StatePlace & {
  /** null: it is deleted. */
  value: Uint8Array | null
  /** The version that must be stored, 0 for none; undefined: any. */
  version: number | undefined
  caller: TaskCaller
  /** Called before the write. Throws if the domain has no room for so much more. */
  requireRoom: (grown: StateGrown) => void
}

/** How much larger the state is after a write. */
export type StateGrown = { keys: number; bytes: number }

/** Writes one value as a user: under the lock of the task, so that runs that read it before are repeated. Undefined: it was written. */
export async function writeState(tx: Transaction, write: StateWrite): Promise<StateRefused | undefined> {
  const { taskKey, client, key, value, version, caller, requireRoom } = write
  const size = await lockSize(tx, taskKey)
  if (size === undefined) return 'no task'
  const before = await findState(tx, write)
  if (version !== undefined && version !== (before?.version ?? 0)) return 'version'
  if (value === null && before === undefined) return undefined
  const keyBytes = Buffer.byteLength(key)
  const keys = Number(value !== null) - Number(before !== undefined)
  const bytes = (value === null ? 0 : keyBytes + value.length) - (before === undefined ? 0 : keyBytes + before.size)
  if (keys > 0 && size.keys + keys > MAX_STATE_KEYS) return 'keys'
  if (bytes > 0 && size.bytes + bytes > MAX_STATE_BYTES) return 'bytes'
  requireRoom({ keys, bytes })
  await (
    value === null
      ? sql`DELETE FROM task_state WHERE task_key = ${taskKey} AND client = ${client} AND name = ${key}`
      : sql`INSERT INTO task_state AS s (task_key, client, name, value, version)
        VALUES (${taskKey}, ${client}, ${key}, ${Buffer.from(value)}, nextval('task_state_versions'))
        ON CONFLICT ON CONSTRAINT task_state_pkey
        DO UPDATE SET value = EXCLUDED.value, version = EXCLUDED.version, updated_at = now()`
  ).execute(tx)
  const attributes = { before: {}, after: { state: { key, ...(client === '' ? {} : { client }) } } }
  await sql`
    WITH sized AS (UPDATE task_state_sizes SET keys = keys + ${keys}, bytes = bytes + ${bytes} WHERE task_key = ${taskKey}),
    changed AS (SELECT t.key, t.id, t.name, t.domain_key FROM tasks t WHERE t.key = ${taskKey})
    ${recordManaged(actorOf(caller), { type: 'task', change: 'update', attributes })}`.execute(tx)
  return undefined
}

/** Undefined: the task was deleted. */
async function lockSize(tx: Transaction, taskKey: number): Promise<{ keys: number; bytes: number } | undefined> {
  await sql`INSERT INTO task_state_sizes (task_key) SELECT t.key FROM tasks t WHERE t.key = ${taskKey}
    ON CONFLICT ON CONSTRAINT task_state_sizes_pkey DO NOTHING`.execute(tx)
  const { rows } = await sql<{ keys: number; bytes: number }>`
    SELECT keys, bytes FROM task_state_sizes WHERE task_key = ${taskKey} FOR UPDATE`.execute(tx)
  return rows[0]
}
