/**
 * Full batches of a trigger without an order, each as one row of `task_messages`: it is written and removed with its run. As soon as its messages are not
 * treated alike, because their run failed, was stopped or was not started, each becomes a row of its own.
 */
import { hasOlderNodes, jsonArray } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { MESSAGE_BYTES } from './message-contents.ts'
import type { NewMessage } from './messages.ts'
import type { TriggerMessage } from './trigger-message.ts'

/** A row `m` of `task_messages` has this many messages. */
export const MESSAGE_COUNT = sql`coalesce(m.packed_count, 1)`
/** Bytes of a row `m` of `task_messages`, with everything that it has. */
export const ROW_BYTES = sql`(${MESSAGE_BYTES} + coalesce(pg_column_size(m.packed), 0))`

/** Messages that one run gets, at least one. */
export type Pack = { taskKey: number; runId: string; messages: readonly NewMessage[] }

/** A message in a pack, as it is stored. */
export type PackedMessage = { origin: string; message: TriggerMessage; traceparent?: string | undefined }

/**
 * The message of the row itself. A process of an earlier build, started again in place of a newer one, takes it for the only one: its channel does not exist,
 * so that no run begins, and the row becomes a dead letter, which `unpackLeft` finds.
 */
const NO_MESSAGE = JSON.stringify({
  channel_id: '00000000-0000-0000-0000-000000000000',
  subtopic: '',
  publisher: '',
  protocol: '',
  records: [],
} satisfies TriggerMessage)
/** Packs that one round gives back. */
const MAX_LEFT = 100

/**
 * Adds packs whose runs any manager may start, and returns these runs: none while a process of an earlier build is alive, which would take a pack for a
 * message. `textOf` returns a message as JSON.
 */
export async function insertPacks(
  tx: Transaction,
  packs: readonly Pack[],
  textOf: (message: TriggerMessage) => string,
): Promise<ReadonlySet<string>> {
  if (packs.length === 0) return new Set()
  const texts = packs.map(({ messages }) => `[${messages.map((one) => packedText(one, textOf)).join()}]`)
  const { rows } = await sql<{ runId: string }>`
    INSERT INTO task_messages (task_key, origin, message, packed, packed_count, due_at, lane, run_id, check_at)
    SELECT p.task_key, 'pack ' || p.run_id, ${NO_MESSAGE}::json, p.packed, p.count, 'infinity', '', p.run_id, now()
    FROM unnest(${packs.map(({ taskKey }) => taskKey)}::bigint[], ${packs.map(({ runId }) => runId)}::uuid[], ${jsonArray(texts)}::json[],
      ${packs.map(({ messages }) => messages.length)}::smallint[]) AS p (task_key, run_id, packed, count)
    WHERE NOT ${hasOlderNodes('packed_messages')}
    RETURNING run_id AS "runId"`.execute(tx)
  return new Set(rows.map(({ runId }) => runId))
}

function packedText({ origin, message, traceparent }: NewMessage, textOf: (message: TriggerMessage) => string): string {
  const trace = traceparent === undefined ? '' : `,"traceparent":${JSON.stringify(traceparent)}`
  return `{"origin":${JSON.stringify(origin)},"message":${textOf(message)}${trace}}`
}

/**
 * Gives each message of these rows a row of its own, in their order and with what the common row says of its run and its next batch. Returns the keys of the
 * new rows; rows that are no packs are left.
 */
export async function unpack(db: Queryable, keys: readonly number[]): Promise<number[]> {
  if (keys.length === 0) return []
  const { rows } = await sql<{ key: number }>`
    WITH packs AS (DELETE FROM task_messages WHERE key = ANY(${keys}::bigint[]) AND packed IS NOT NULL
      RETURNING key, task_key, packed, due_at, created_at, batch_limit, run_id, check_at)
    INSERT INTO task_messages (task_key, origin, message, traceparent, due_at, created_at, lane, batch_limit, run_id, check_at)
    SELECT p.task_key, e.value ->> 'origin', e.value -> 'message', e.value ->> 'traceparent', p.due_at, p.created_at,
      e.value -> 'message' ->> 'publisher', p.batch_limit, p.run_id, CASE WHEN e.ordinality = 1 THEN p.check_at END
    FROM packs p CROSS JOIN LATERAL json_array_elements(p.packed) WITH ORDINALITY e
    ORDER BY p.key, e.ordinality
    ON CONFLICT ON CONSTRAINT task_messages_origin_key DO NOTHING
    RETURNING key`.execute(db)
  return rows.map(({ key }) => key)
}

/** As `unpack`, of the messages of a run. */
export async function unpackRun(tx: Transaction, runId: string): Promise<void> {
  const { rows } = await sql<{
    key: number
  }>`SELECT key FROM task_messages WHERE run_id = ${runId} AND packed IS NOT NULL FOR UPDATE`.execute(tx)
  await unpack(
    tx,
    rows.map(({ key }) => key),
  )
}

/** Gives the messages of packs that an earlier build has treated as one message to runs of this one. Returns the number of these packs. */
export async function unpackLeft(db: Queryable): Promise<number> {
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM task_messages WHERE packed IS NOT NULL AND run_id IS NULL ORDER BY key LIMIT ${MAX_LEFT}`.execute(
    db,
  )
  await unpack(
    db,
    rows.map(({ key }) => key),
  )
  return rows.length
}
