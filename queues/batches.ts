/**
 * Messages of triggers with `batch` or `order`. They stay in `task_messages` until the run that has them ends: a manager gives some to a run
 * that it will start, and the transaction of the run's end removes them, divides the batch that failed, or makes its last message a dead letter.
 * `run_id` alone says which messages a run has, so any manager can start it again, and end it for another.
 */
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { DescribedExport } from '#guests/wasm/index.ts'
import { keepLetters } from './dead-letters.ts'
import { MESSAGE_BYTES } from './message-contents.ts'
import { clearRefusals } from './task-errors.ts'
import type { StoredMessage } from './messages.ts'
import { MESSAGE_COUNT, unpack, unpackRun } from './packs.ts'
import type { PackedMessage } from './packs.ts'
import { MAX_WAITING } from './triggers.ts'
import type { Ordering } from './triggers.ts'

const TOPIC = 'task_batches'
/** Tasks of one round, in all and of one domain. */
const MAX_TASKS = 100
const MAX_TASKS_OF_DOMAIN = 50
/** Tasks whose messages are given to runs at the same time. */
const MAX_CLAIMING = 4
/** Rounds whose runs are being started while the next round gives messages to runs. */
const MAX_STARTING = 4
/** Runs that are looked after in one round. */
const MAX_CHECKED = 500
/** Runs among which domains take turns. */
const MAX_DUE = 5_000
/** The time after which another manager starts the run of a dead one. */
const STARTED_WITHIN_SECONDS = 30
/** The time between two checks of a run that has not ended. */
const CHECK_SECONDS = 60
/** Messages of one run, as they are stored; one message alone can be larger. */
export const MAX_BATCH_BYTES = 512 * 1024
/** The largest part of the error of a run in the reason of a dead letter. */
const MAX_REASON_CHARS = 500

/** How a run has its messages: as a list or the only one, or one record of the only one. */
export type Claims = 'messages' | 'record'

/** A message that no run has. */
export type WaitingMessage = {
  key: number
  lane: string
  /** Largest batch that may contain it; null: that of the trigger. */
  limit: number | null
  /** The size as it is stored. */
  bytes: number
}

/** A task with messages that wait, as its trigger says now. */
export type BatchTask = {
  taskKey: number
  taskId: string
  taskName: string
  domainId: string | null
  userKey: number | null
  function: string | null
  inputCount: number
  /** Exports of its module, if known. */
  exports: DescribedExport[] | null
  batch: number | null
  ordering: Ordering | null
}

export type ClaimedMessage = StoredMessage & {
  key: number
  origin: string
  traceparent: string | null
  nextRecord: number
}

/** A run and its messages in the order of their arrival, at least one. */
export type MessageBatch = { task: BatchTask; runId: string; messages: ClaimedMessage[] }

/** What runs of the task have. */
export type Busy = { lanes: ReadonlySet<string>; runs: number }

/** Chooses the messages of the next runs. */
export type PlanBatches = (
  task: BatchTask,
  waiting: readonly WaitingMessage[],
  busy: Busy,
  maxBytes: number,
) => readonly (readonly WaitingMessage[])[]

/** Call it when messages were added, or a run that had some has ended. */
export function hintBatches(bus: Bus): void {
  hintQueue(bus, TOPIC)
}

/** Messages that no run has; the condition of their index. */
export const WAITING = sql`lane IS NOT NULL AND run_id IS NULL AND refused_at IS NULL`
// A task is found by its first waiting message, whatever the number of the others.
const WAITING_FIRST = sql`RECURSIVE waiting AS (
    (SELECT task_key FROM task_messages WHERE ${WAITING} ORDER BY task_key LIMIT 1)
    UNION ALL
    SELECT (SELECT m.task_key FROM task_messages m WHERE ${WAITING} AND m.task_key > waiting.task_key ORDER BY m.task_key LIMIT 1)
      FROM waiting WHERE waiting.task_key IS NOT NULL)`
const WAITING_TASKS = sql`
  WITH ${WAITING_FIRST},
  placed AS (
    SELECT t.key, row_number() OVER (PARTITION BY t.domain_key ORDER BY random()) AS place
      FROM waiting JOIN tasks t ON t.key = waiting.task_key WHERE t.paused_at IS NULL)
  SELECT key FROM placed WHERE place <= ${MAX_TASKS_OF_DOMAIN} ORDER BY place, random() LIMIT ${MAX_TASKS}`

const TASK_COLUMNS = sql`t.key AS "taskKey", t.id AS "taskId", t.name AS "taskName", t.domain_id AS "domainId", t.user_key AS "userKey", t.function,
  json_array_length(t.inputs) AS "inputCount", d.exports, g.batch, g.ordering`
const TASKS = sql`tasks t LEFT JOIN modules d ON d.key = t.module_key LEFT JOIN task_triggers g ON g.task_key = t.key`

const MESSAGE_COLUMNS = sql`m.key, m.origin, m.message, m.content_key AS "contentKey", m.content_bytes AS "contentBytes", m.traceparent,
  m.next_record AS "nextRecord", m.run_id AS "runId", m.packed`

type BusyRow = { lane: string; runId: string }
type TaskRow = BatchTask & { waiting: WaitingMessage[] | null; busy: BusyRow[] | null }

/** One process at a time gives messages of a task to runs. */
async function readWaiting(tx: Transaction, taskKey: number): Promise<TaskRow | undefined> {
  const { rows } = await sql<TaskRow>`
    SELECT ${TASK_COLUMNS}, (SELECT json_agg(w ORDER BY w.key) FROM (
        SELECT m.key, m.lane, m.batch_limit AS limit, ${MESSAGE_BYTES} AS bytes FROM task_messages m
         WHERE m.task_key = t.key AND ${WAITING} AND m.due_at = 'infinity' ORDER BY m.key LIMIT ${MAX_WAITING.messages}) w) AS waiting,
      (SELECT json_agg(json_build_object('lane', b.lane, 'runId', b.run_id)) FROM (
        SELECT DISTINCT m.lane, m.run_id FROM task_messages m WHERE m.task_key = t.key AND m.run_id IS NOT NULL) b) AS busy
    FROM ${TASKS}
    WHERE t.key = ${taskKey} AND t.paused_at IS NULL
      AND NOT EXISTS (SELECT FROM task_messages m WHERE m.task_key = t.key AND m.run_id IS NOT NULL
        AND (g.ordering = 'channel' OR g.ordering = 'client' AND m.packed IS NOT NULL))
      AND pg_try_advisory_xact_lock(hashtextextended(${`messages of task ${taskKey}`}, 0))`.execute(tx)
  return rows[0]
}

/** Gives messages of a task to runs that are to be started. */
async function claim(
  tx: Transaction,
  taskKey: number,
  plan: PlanBatches,
  newId: () => string,
): Promise<MessageBatch[]> {
  const row = await readWaiting(tx, taskKey)
  if (row === undefined || row.waiting === null) return []
  const { waiting, busy, ...task } = row
  const lanes = new Set((busy ?? []).map(({ lane }) => lane))
  const runs = new Set((busy ?? []).map(({ runId }) => runId)).size
  const given = plan(task, waiting, { lanes, runs }, MAX_BATCH_BYTES).flatMap((messages) => {
    const runId = newId()
    return messages.map(({ key }, index) => ({ key, runId, isFirst: index === 0 }))
  })
  if (given.length === 0) return []
  const { rows } = await sql<ClaimedRow>`
    UPDATE task_messages m SET run_id = c.run_id,
      check_at = CASE WHEN c.is_first THEN now() + make_interval(secs => ${STARTED_WITHIN_SECONDS}) END
    FROM unnest(${given.map(({ key }) => key)}::bigint[], ${given.map(({ runId }) => runId)}::uuid[],
      ${given.map(({ isFirst }) => isFirst)}::boolean[]) AS c (key, run_id, is_first)
    WHERE m.key = c.key AND ${WAITING_NOW}
    RETURNING ${MESSAGE_COLUMNS}`.execute(tx)
  const batches = batchesOf(task, rows)
  const firsts = new Set(given.flatMap(({ key, isFirst }) => (isFirst ? [key] : [])))
  const unchecked = batches.flatMap(({ messages: [first] }) =>
    first === undefined || firsts.has(first.key) ? [] : [first.key],
  )
  if (unchecked.length > 0) {
    await sql`UPDATE task_messages SET check_at = now() + make_interval(secs => ${STARTED_WITHIN_SECONDS})
      WHERE key = ANY(${unchecked}::bigint[])`.execute(tx)
  }
  return batches
}

// A node of an earlier build may have made a message due meanwhile.
const WAITING_NOW = sql`m.run_id IS NULL AND m.refused_at IS NULL AND m.due_at = 'infinity'`

type ClaimedRow = ClaimedMessage & { runId: string; packed: PackedMessage[] | null }

function batchesOf(task: BatchTask, rows: readonly ClaimedRow[]): MessageBatch[] {
  const sorted = rows.toSorted((left, right) => left.key - right.key)
  return [...Map.groupBy(sorted, ({ runId }) => runId)].map(([runId, ofRun]) => ({
    task,
    runId,
    messages: ofRun.flatMap(messagesOf),
  }))
}

const messagesOf = ({ packed, ...row }: ClaimedRow): ClaimedMessage[] =>
  packed === null
    ? [row]
    : packed.map(({ origin, message, traceparent = null }) => ({
        key: row.key,
        origin,
        message,
        contentKey: null,
        contentBytes: null,
        traceparent,
        nextRecord: 0,
      }))

type DueRow = { runId: string; taskKey: number; state: 'missing' | 'open' | 'over' }

// Domains in turn: one with many runs to start does not delay those of others.
const DUE = sql`
  SELECT c.key FROM (
    SELECT w.key, w.check_at, row_number() OVER (PARTITION BY t.domain_key ORDER BY w.check_at) AS turn
      FROM (SELECT key, task_key, check_at FROM task_messages WHERE check_at <= now() ORDER BY check_at LIMIT ${MAX_DUE}) w
      JOIN tasks t ON t.key = w.task_key) c
  ORDER BY c.turn, c.check_at LIMIT ${MAX_CHECKED}`

/** Runs that are to be started, and those whose end left their messages: another build wrote it, or they were stopped by it. */
async function takeDue(db: Queryable, openStates: readonly number[]): Promise<DueRow[]> {
  const { rows } = await sql<DueRow>`
    UPDATE task_messages m SET check_at = now() + make_interval(secs => CASE WHEN due.state = 'open' THEN ${CHECK_SECONDS}
      ELSE ${STARTED_WITHIN_SECONDS} END::float8)
    FROM (
      SELECT o.key, CASE WHEN r.id IS NULL THEN 'missing' WHEN r.state = ANY(${openStates}::int[]) THEN 'open' ELSE 'over' END AS state
        FROM (SELECT key, run_id FROM task_messages WHERE key = ANY (ARRAY(${DUE})) AND check_at <= now() FOR UPDATE SKIP LOCKED) o
        LEFT JOIN runs r ON r.id = o.run_id) due
    WHERE m.key = due.key
    RETURNING m.run_id AS "runId", m.task_key AS "taskKey", due.state`.execute(db)
  return rows
}

async function readBatches(db: Queryable, runIds: readonly string[]): Promise<MessageBatch[]> {
  if (runIds.length === 0) return []
  const { rows } = await sql<ClaimedRow & { taskKey: number }>`
    SELECT m.task_key AS "taskKey", ${MESSAGE_COLUMNS} FROM task_messages m WHERE m.run_id = ANY(${runIds}::uuid[])`.execute(
    db,
  )
  const byTask = Map.groupBy(rows, ({ taskKey }) => taskKey)
  // Apart from their messages: what is known of a module may be large.
  const { rows: tasks } = await sql<BatchTask>`
    SELECT ${TASK_COLUMNS} FROM ${TASKS} WHERE t.key = ANY(${[...byTask.keys()]}::bigint[])`.execute(db)
  return tasks.flatMap((task) => batchesOf(task, byTask.get(task.taskKey) ?? []))
}

/**
 * Returns which of these runs still have their messages. Until the transaction ends no other process takes these from them, so the runs can
 * be started in it.
 */
export async function lockClaims(db: Queryable, runIds: readonly string[]): Promise<ReadonlySet<string>> {
  const { rows } = await sql<{ run_id: string }>`SELECT run_id FROM task_messages
    WHERE run_id = ANY(${runIds}::uuid[]) AND check_at IS NOT NULL ORDER BY key FOR SHARE`.executePrepared(
    db,
    'lock-claims',
  )
  return new Set(rows.map((row) => row.run_id))
}

/** Whether the run has its messages and was not started by another manager. */
async function isUnstarted(tx: Transaction, runId: string): Promise<boolean> {
  const { rows } =
    await sql`SELECT FROM task_messages WHERE run_id = ${runId} AND check_at IS NOT NULL FOR UPDATE`.execute(tx)
  if (rows.length === 0) return false
  // Another statement: it sees a start that the lock has waited for.
  const { rows: started } = await sql`SELECT FROM runs WHERE id = ${runId}`.execute(tx)
  return started.length === 0
}

/** Gives messages back: their run was not started, because the task is paused. */
export async function returnMessages(tx: Transaction, runId: string): Promise<void> {
  if (!(await isUnstarted(tx, runId))) return
  await unpackRun(tx, runId)
  await sql`UPDATE task_messages SET run_id = NULL, check_at = NULL WHERE run_id = ${runId}`.execute(tx)
}

/** The start of the run is tried again at that time. */
export async function deferStart(db: Queryable, runId: string, seconds: number): Promise<void> {
  await sql`UPDATE task_messages SET check_at = now() + make_interval(secs => ${seconds}::float8)
    WHERE run_id = ${runId} AND check_at IS NOT NULL`.execute(db)
}

/** Messages that became dead letters. */
export type RefusedMessages = { taskKey: number; count: number; reason: string }

/** The run was not started for the reason. `isShared`: every message of the batch would be refused, so that it is not divided. */
export async function refuseBatch(
  tx: Transaction,
  { task: { taskKey }, runId, messages }: MessageBatch,
  { reason, isShared }: { reason: string; isShared: boolean },
): Promise<RefusedMessages[]> {
  if (!(await isUnstarted(tx, runId))) return []
  await unpackRun(tx, runId)
  if (messages.length > 1 && !isShared) {
    await sql`UPDATE task_messages SET run_id = NULL, check_at = NULL, batch_limit = ${Math.ceil(messages.length / 2)}
      WHERE run_id = ${runId}`.execute(tx)
    return []
  }
  const { rows } = await sql<{
    key: number
  }>`UPDATE task_messages SET run_id = NULL, check_at = NULL, batch_limit = NULL
    WHERE run_id = ${runId} RETURNING key`.execute(tx)
  await keepLetters(
    tx,
    'message',
    rows.map(({ key }) => ({ key, reason })),
  )
  return rows.length === 0 ? [] : [{ taskKey, count: rows.length, reason }]
}

/** How runs end, by the numbers of their states, and the reasons of failures that another message may not have. */
export type Endings = { completed: number; failed: number; open: readonly number[]; divided: readonly string[] }

type KeptRow = { taskKey: number; key: number; reason: string; runsAgain: boolean; isPacked: boolean }

/**
 * Removes the messages of runs that have ended, in the transaction of their ends. A batch that failed is divided: each half runs again. The
 * only message of a failed run, and those of a run that was stopped, become dead letters. Messages are found by a search for each run, and changed
 * where they were found: what the planner knows of a queue that was empty is wrong, and other plans compare each message with each.
 */
export async function settleMessages(
  db: Queryable,
  runIds: readonly string[],
  { completed, failed, open, divided }: Endings,
): Promise<RefusedMessages[]> {
  const { rows } = await sql<KeptRow>`
    WITH ended AS MATERIALIZED (
      SELECT r.id, r.state = ${completed} AS is_done, r.state = ${failed} AND r.reason = ANY(${divided}::text[]) AS is_divided,
        r.spec ->> 'claims' = 'record' AS is_record,
        CASE WHEN r.state = ${failed} THEN concat_ws(': ', 'its run failed', r.reason, left(r.error, ${MAX_REASON_CHARS})) ELSE 'its run was stopped' END AS reason
      FROM runs r WHERE r.id = ANY(${runIds}::uuid[]) AND NOT r.state = ANY(${open}::int[])),
    given AS MATERIALIZED (
      SELECT e.id, m.tid, ${MESSAGE_COUNT} AS messages, e.is_done AND CASE WHEN e.is_record AND m.packed_count IS NOT NULL THEN false WHEN e.is_record
          THEN m.next_record + 1 >= coalesce((m.message ->> 'record_count')::int, json_array_length(m.message -> 'records')) ELSE true END AS is_over
      FROM ended e CROSS JOIN LATERAL (SELECT ctid AS tid, next_record, message, packed_count FROM task_messages WHERE run_id = e.id OFFSET 0) m),
    counted AS MATERIALIZED (SELECT e.*, c.messages FROM ended e JOIN (SELECT id, sum(messages)::int AS messages FROM given GROUP BY id) c ON c.id = e.id),
    removed AS (DELETE FROM task_messages WHERE ctid = ANY (ARRAY(SELECT tid FROM given WHERE is_over)) AND (run_id = ANY (${runIds}::uuid[])) IS TRUE),
    kept AS (
      UPDATE task_messages m SET run_id = NULL, check_at = NULL, next_record = m.next_record + c.is_done::int,
        batch_limit = CASE WHEN c.is_done THEN m.batch_limit WHEN c.is_divided AND c.messages > 1 THEN (c.messages + 1) / 2 END
      FROM counted c WHERE m.run_id = c.id AND m.ctid = ANY (ARRAY(SELECT tid FROM given WHERE NOT is_over))
      RETURNING m.key, m.task_key, c.is_done OR c.is_divided AND c.messages > 1 AS runs_again, c.reason, m.packed IS NOT NULL AS is_packed)
    SELECT task_key AS "taskKey", key, reason, runs_again AS "runsAgain", is_packed AS "isPacked" FROM kept
     WHERE NOT runs_again OR is_packed`.executePrepared(db, 'settle-messages')
  if (rows.length === 0) return []
  const refused: KeptRow[] = []
  for (const row of rows) {
    const keys = row.isPacked ? await unpack(db, [row.key]) : [row.key]
    if (!row.runsAgain) refused.push(...keys.map((key) => ({ ...row, key })))
  }
  await keepLetters(db, 'message', refused)
  return [...Map.groupBy(refused, ({ taskKey }) => taskKey)].map(([taskKey, some]) => ({
    taskKey,
    count: some.length,
    reason: some.at(-1)?.reason ?? '',
  }))
}

/** A run of the tasks was started: their messages are not refused any longer. */
export async function clearMessageRefusals(db: Queryable, taskKeys: readonly number[]): Promise<void> {
  if (taskKeys.length > 0) await clearRefusals('message', taskKeys).execute(db)
}

export type BatchReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  endings: Endings
  plan: PlanBatches
  newId: () => string
  /** Starts the runs, each once under its id. */
  start: (batches: readonly MessageBatch[]) => Promise<void>
  /** Called for messages that became dead letters because nobody had settled the end of their run. */
  onRefused: (refused: readonly RefusedMessages[]) => Promise<void>
  onError: (error: unknown) => void
}

const FIRST = {
  ...sql`WITH ${WAITING_FIRST}
    SELECT true AS is_due WHERE EXISTS (SELECT FROM task_messages WHERE check_at <= now())
      OR EXISTS (SELECT FROM waiting JOIN tasks t ON t.key = waiting.task_key WHERE t.paused_at IS NULL)`.statement(),
  name: 'first-of-task-batches',
}

export function startBatchReader({ database, bus, intervalMs, plan, newId, ...options }: BatchReaderOptions): {
  stop(): Promise<void>
} {
  const { db } = database
  const { endings, start, onRefused, onError } = options

  /** Returns what is to be started again. */
  async function lookAfter(): Promise<MessageBatch[]> {
    const due = await takeDue(db, endings.open)
    const of = (state: DueRow['state']) => due.flatMap((row) => (row.state === state ? [row.runId] : []))
    const over = of('over')
    if (over.length > 0) await onRefused(await database.transaction((tx) => settleMessages(tx, over, endings)))
    return await readBatches(db, of('missing'))
  }

  /** Gives messages of waiting tasks to runs, the first task of each domain before the second one of any. */
  async function claimAll(): Promise<MessageBatch[]> {
    const { rows } = await WAITING_TASKS.execute(db)
    const tasks = (rows as { key: number }[]).values()
    const batches: MessageBatch[] = []
    const claimSome = async () => {
      for (const { key } of tasks) batches.push(...(await database.transaction((tx) => claim(tx, key, plan, newId))))
    }
    const claiming = await Promise.allSettled(Array.from({ length: MAX_CLAIMING }, claimSome))
    // What was given to runs is started in any case.
    for (const one of claiming) if (one.status === 'rejected') onError(one.reason)
    return batches
  }

  const starting = new Set<Promise<void>>()
  const reader = startQueueReader({
    database,
    bus,
    table: TOPIC,
    first: FIRST,
    intervalMs,
    onError,
    async take() {
      const batches = [...(await lookAfter()), ...(await claimAll())]
      if (batches.length === 0) return false
      const begun = start(batches)
        .catch(onError)
        .finally(() => starting.delete(begun))
      starting.add(begun)
      if (starting.size >= MAX_STARTING) await Promise.race(starting)
      return false
    },
  })
  return {
    async stop() {
      await reader.stop()
      await Promise.all(starting)
    },
  }
}
