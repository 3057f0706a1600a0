/**
 * `task_messages`: messages that start runs. The platform adds what meets a trigger, in the transaction of its position in
 * the log, and the pages of replays; some manager takes them. A row is unique by its task and origin, so that a repeated
 * one adds nothing.
 */
import type { Bus } from '#core/bus/index.ts'
import { jsonArray } from '#core/database/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import type { DescribedExport } from '#core/wasm/index.ts'
import type { TriggerMessage } from './trigger-message.ts'
import { countDropped, countMatches } from './triggers.ts'
import type { StoredTriggerRule } from './triggers.ts'

const TABLE = 'task_messages'

/** Messages of one task that wait for its runs; what is beyond is dropped and counted. */
const MAX_WAITING_MESSAGES = 1_000
/** Rows that a manager takes at a time. */
const MAX_ROWS = 500
/** Another manager takes the rows of one that died after this. */
const TAKEN_MS = 30_000
/** Until a message that could not start its runs is taken again. */
const RETRY_MS = 1_000

export type NewMessage = {
  /** Names the message among those of its task. */
  origin: string
  message: TriggerMessage
}

/** A message with what its task needs to be started. */
export type QueuedMessage = NewMessage & {
  key: number
  taskKey: number
  taskId: string
  taskName: string
  domainId: string | null
  userKey: number | null
  function: string | null
  /** Inputs that the task has of its own. */
  inputCount: number
  /** Of its module, where it was read. */
  exports: DescribedExport[] | null
}

/** `retry`: the message comes again. Otherwise it is done with, and `dropped` of its runs were not started for the reason. */
export type MessageOutcome = 'retry' | { dropped: number; reason: string }

/** Adds them at the end of the queue. With `delayMs` they become due then. */
export async function queueMessages(
  tx: Transaction,
  taskKey: number,
  messages: readonly NewMessage[],
  delayMs = 0,
): Promise<void> {
  if (messages.length === 0) return
  await sql`INSERT INTO task_messages (task_key, origin, message, due_at)
    SELECT ${taskKey}, m.origin, m.message, now() + make_interval(secs => ${delayMs / 1000}::float8)
    FROM unnest(${messages.map(({ origin }) => origin)}::text[],
      ${jsonArray(messages.map(({ message }) => JSON.stringify(message)))}::json[]) AS m (origin, message)
    ON CONFLICT ON CONSTRAINT task_messages_origin_key DO NOTHING`.execute(tx)
}

const QUEUE_FULL = `${MAX_WAITING_MESSAGES} messages wait for its runs already`

/** Queues messages that met the rule, as many as there is room for; the others are counted with the reason. */
export async function handMatches(
  tx: Transaction,
  rule: StoredTriggerRule,
  matches: readonly NewMessage[],
): Promise<void> {
  const { taskKey, debounceMs, windowLeft } = rule
  // Of messages that come within the debounce the last counts, those that wait already included.
  const wanted = debounceMs === null ? matches : matches.slice(-1)
  const queueRoom = debounceMs === null ? MAX_WAITING_MESSAGES - rule.waiting : 1
  // What it replaces has not run: its part of the rate is free again.
  const replaced = debounceMs === null ? 0 : await removeDebounced(tx, taskKey, debounceMs)
  const room = Math.min(Math.max(queueRoom, 0), (windowLeft ?? Infinity) + replaced)
  const taken = wanted.slice(0, room)
  const dropped = wanted.length - taken.length
  const reason = windowLeft !== null && windowLeft < wanted.length ? 'rate_limit' : QUEUE_FULL
  await queueMessages(tx, taskKey, taken, debounceMs ?? 0)
  await countMatches(tx, taskKey, { matched: matches.length, taken: taken.length, replaced, dropped, reason })
}

/**
 * Removes those that still wait for the end of their debounce and returns their number. What a manager has taken and the
 * records of a replay stay.
 */
async function removeDebounced(tx: Transaction, taskKey: number, debounceMs: number): Promise<number> {
  const { rows } = await sql`DELETE FROM task_messages WHERE task_key = ${taskKey} AND due_at > now()
    AND due_at = created_at + make_interval(secs => ${debounceMs / 1000}::float8) RETURNING key`.execute(tx)
  return rows.length
}

/** To be called after the commit of what was queued. */
export function hintMessages(bus: Bus): void {
  hintQueue(bus, TABLE)
}

// In the order in which they were written; another manager takes others.
const TAKE = sql<QueuedMessage>`
  UPDATE task_messages m SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8)
  FROM (SELECT key FROM task_messages WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due,
    tasks t LEFT JOIN modules d ON d.key = t.module_key
  WHERE m.key = due.key AND t.key = m.task_key
  RETURNING m.key, m.task_key AS "taskKey", m.origin, m.message, t.id AS "taskId", t.name AS "taskName",
    t.domain_id AS "domainId", t.user_key AS "userKey", t.function, json_array_length(t.inputs) AS "inputCount", d.exports`

export type MessageReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Starts the runs of the messages and returns what became of each, in their order. */
  start: (messages: readonly QueuedMessage[]) => Promise<readonly MessageOutcome[]>
  onError: (error: unknown) => void
}

export function startMessageReader({ database, bus, intervalMs, start, onError }: MessageReaderOptions): {
  stop(): Promise<void>
} {
  const { db } = database
  return startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError,
    async take() {
      const { rows } = await TAKE.execute(db)
      const messages = rows.toSorted((left, right) => left.key - right.key)
      const outcomes = await start(messages)
      const retried = await settle(db, messages, outcomes)
      return rows.length === MAX_ROWS && retried === 0
    },
  })
}

/** Returns how many come again. */
async function settle(
  db: Queryable,
  messages: readonly QueuedMessage[],
  outcomes: readonly MessageOutcome[],
): Promise<number> {
  const [done, again]: [number[], number[]] = [[], []]
  const drops: { taskKey: number; count: number; reason: string }[] = []
  for (const [index, { key, taskKey }] of messages.entries()) {
    const outcome = outcomes[index] ?? 'retry'
    if (outcome === 'retry') {
      again.push(key)
      continue
    }
    done.push(key)
    if (outcome.dropped > 0) drops.push({ taskKey, count: outcome.dropped, reason: outcome.reason })
  }
  if (done.length > 0) await sql`DELETE FROM task_messages WHERE key = ANY(${done}::bigint[])`.execute(db)
  if (again.length > 0) {
    await sql`UPDATE task_messages SET due_at = now() + make_interval(secs => ${RETRY_MS / 1000}::float8)
      WHERE key = ANY(${again}::bigint[])`.execute(db)
  }
  await countDropped(db, drops)
  return again.length
}
