/**
 * `task_messages`: messages that start runs. The platform adds messages that match a trigger, in the transaction of its position in the
 * changelog, and pages of replays; a manager processes them. Task and origin identify a row, so that a repeated insert has no effect.
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

/** The limit of waiting messages of one task; further ones are dropped and counted. */
const MAX_WAITING_MESSAGES = 1_000
/** The number of rows that a manager takes at a time. */
const MAX_ROWS = 500
/** The time after which another manager takes the rows of a dead one. */
const TAKEN_MS = 30_000
/** The delay before a message whose runs could not be started is retried. */
const RETRY_MS = 1_000

export type NewMessage = {
  /** Identifies the message among those of its task. */
  origin: string
  message: TriggerMessage
  /** Place of the message in its trace. */
  traceparent?: string | undefined
}

/** A message with the data for starting its task. */
export type QueuedMessage = NewMessage & {
  key: number
  taskKey: number
  taskId: string
  taskName: string
  domainId: string | null
  userKey: number | null
  function: string | null
  /** The number of the task's own inputs. */
  inputCount: number
  /** Exports of its module, if known. */
  exports: DescribedExport[] | null
}

/** `retry`: the message is retried. Otherwise it is done, and `dropped` runs were not started for the reason. */
export type MessageOutcome = 'retry' | { dropped: number; reason: string }

/** Adds messages at the end of the queue. With `delayMs` they become due later. */
export async function queueMessages(
  tx: Transaction,
  taskKey: number,
  messages: readonly NewMessage[],
  delayMs = 0,
): Promise<void> {
  if (messages.length === 0) return
  await sql`INSERT INTO task_messages (task_key, origin, message, traceparent, due_at)
    SELECT ${taskKey}, m.origin, m.message, m.traceparent, now() + make_interval(secs => ${delayMs / 1000}::float8)
    FROM unnest(${messages.map(({ origin }) => origin)}::text[],
      ${jsonArray(messages.map(({ message }) => JSON.stringify(message)))}::json[],
      ${messages.map(({ traceparent }) => traceparent ?? null)}::text[]) AS m (origin, message, traceparent)
    ON CONFLICT ON CONSTRAINT task_messages_origin_key DO NOTHING`.execute(tx)
}

const QUEUE_FULL = `${MAX_WAITING_MESSAGES} messages wait for its runs already`

/** Queues messages that match the rule up to the limit; the others are counted with the reason. */
export async function handMatches(
  tx: Transaction,
  rule: StoredTriggerRule,
  matches: readonly NewMessage[],
): Promise<void> {
  const { taskKey, debounceMs, windowLeft } = rule
  // Within the debounce only the last message counts, including those that are already queued.
  const wanted = debounceMs === null ? matches : matches.slice(-1)
  const queueRoom = debounceMs === null ? MAX_WAITING_MESSAGES - rule.waiting : 1
  // Replaced messages have not run, so their part of the rate is free again.
  const replaced = debounceMs === null ? 0 : await removeDebounced(tx, taskKey, debounceMs)
  const room = Math.min(Math.max(queueRoom, 0), (windowLeft ?? Infinity) + replaced)
  const taken = wanted.slice(0, room)
  const dropped = wanted.length - taken.length
  const reason = windowLeft !== null && windowLeft < wanted.length ? 'rate_limit' : QUEUE_FULL
  await queueMessages(tx, taskKey, taken, debounceMs ?? 0)
  await countMatches(tx, taskKey, { matched: matches.length, taken: taken.length, replaced, dropped, reason })
}

/**
 * Removes messages that wait for the end of their debounce, and returns their number. Messages that a manager has taken and records of a
 * replay are kept.
 */
async function removeDebounced(tx: Transaction, taskKey: number, debounceMs: number): Promise<number> {
  const { rows } = await sql`DELETE FROM task_messages WHERE task_key = ${taskKey} AND due_at > now()
    AND due_at = created_at + make_interval(secs => ${debounceMs / 1000}::float8) RETURNING key`.execute(tx)
  return rows.length
}

/** Call it after the commit of queued messages. */
export function hintMessages(bus: Bus): void {
  hintQueue(bus, TABLE)
}

// In insertion order; concurrent managers take other rows.
const TAKE = sql<QueuedMessage>`
  UPDATE task_messages m SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8)
  FROM (SELECT key FROM task_messages WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due,
    tasks t LEFT JOIN modules d ON d.key = t.module_key
  WHERE m.key = due.key AND t.key = m.task_key
  RETURNING m.key, m.task_key AS "taskKey", m.origin, m.message, m.traceparent, t.id AS "taskId", t.name AS "taskName",
    t.domain_id AS "domainId", t.user_key AS "userKey", t.function, json_array_length(t.inputs) AS "inputCount", d.exports`

export type MessageReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Starts the runs of the messages and returns one outcome per message, in order. */
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

/** Returns the number of messages to retry. */
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
