/**
 * `task_messages`: messages that start runs. The platform adds messages that match a trigger, in the transaction of its position in the
 * changelog, and pages of replays; a manager processes them. Task and origin identify a row, so that a repeated insert has no effect.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Bus } from '#core/bus/index.ts'
import { jsonArray } from '#core/database/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import type { DescribedExport } from '#guests/wasm/index.ts'
import { keepLetters } from './dead-letters.ts'
import { clearRefusals } from './task-errors.ts'
import { HELD_SECONDS } from './task-pauses.ts'
import { ContentWriter, MIN_CONTENT_BYTES, headerOf } from './message-contents.ts'
import type { ContentHeader, ContentRef } from './message-contents.ts'
import type { TriggerMessage } from './trigger-message.ts'
import { MAX_BATCH_BYTES, hintBatches } from './batches.ts'
import { insertPacks } from './packs.ts'
import type { Pack } from './packs.ts'
import { MAX_WAITING, countDropped, countMatches, keepsMessages, maxWaiting } from './triggers.ts'
import type { MatchCounts, StoredTriggerRule } from './triggers.ts'
import { WaitingMessages } from './waiting-messages.ts'
import type { DueMessages } from './waiting-messages.ts'

const TABLE = 'task_messages'

/**
 * Messages that a manager has in progress. A domain has a part of them, so that the next message of another one is taken at once and waits for
 * few starts before it. A domain alone starts as many runs as with all of them: a step is taken while the one before is started.
 */
const IN_PROGRESS = { maxInProgress: 500, maxOfDomain: 50, maxOfStep: 25 } as const
/** The oldest due rows that a look compares: of later ones, only those are known that became due since the last look. */
const MAX_COMPARED = 20_000
/** Rows of a domain that one look returns. */
const MAX_KNOWN_OF_DOMAIN = 1_000
/** The interval between two looks at all due rows. Between them, a look reads those that have become due since the last one. */
const WHOLE_LOOK_MS = 1_000
/** A row is due from the begin of the transaction that queued it: one that took longer until its commit is found by a look at all rows. */
const LATE_SECONDS = 0.5
/** The interval between two looks while messages wait that are known. */
const LOOK_MS = 25
/** The time after which another manager takes the rows of a dead one. */
const TAKEN_MS = 30_000
/** Smaller batches are put together by managers, which bound how many runs of a task one round starts. */
const MIN_PACKED = 50
/** The delay before a message whose runs could not be started is retried. */
const RETRY_MS = 1_000

export type NewMessage = {
  /** Identifies the message among those of its task. */
  origin: string
  message: TriggerMessage
  /** Place of the message in its trace. */
  traceparent?: string | undefined
}

/** A message as it is stored: whole, or what is small of it, with the place of its content. */
export type StoredMessage =
  | { message: TriggerMessage; contentKey: null; contentBytes: null }
  | { message: ContentHeader; contentKey: number; contentBytes: number }

/** The place of its content; null: it is whole. */
export const contentOf = ({ contentKey, contentBytes }: StoredMessage): ContentRef | null =>
  contentKey === null ? null : { key: contentKey, bytes: contentBytes }

/** A message with the data for starting its task. */
export type QueuedMessage = Omit<NewMessage, 'message'> &
  StoredMessage & {
    key: number
    taskKey: number
    taskId: string
    taskName: string
    domainId: string | null
    userKey: number | null
    isPaused: boolean
    function: string | null
    /** The number of the task's own inputs. */
    inputCount: number
    /** Exports of its module, if known. */
    exports: DescribedExport[] | null
    /** Its trigger gives runs a list. */
    isListed: boolean
  }

/**
 * `retry`: the message is retried; `hold`: it waits for the end of the task's pause. Otherwise `dropped` runs were not started for the reason.
 * If none was, the message becomes a dead letter.
 */
export type MessageOutcome = 'retry' | 'hold' | { started: number; dropped: number; reason: string }

/** Runs of a task that were not started since its last message of which all were. */
export type DroppedRuns = { taskKey: number; count: number; reason: string }

/** A message for the queue of a task. Kept ones are taken in batches. */
type Queued = { taskKey: number; message: NewMessage; isKept: boolean }

/** Adds messages of a task at the end of the queue. */
export async function queueMessages(tx: Transaction, taskKey: number, messages: readonly NewMessage[]): Promise<void> {
  const queued = messages.map((message) => ({ taskKey, message, isKept: false }))
  await queueForTasks(tx, queued, { contents: new ContentWriter(tx) })
}

/** Adds messages at the end of the queue. With `delayMs` they become due later. */
async function queueForTasks(
  tx: Transaction,
  queued: readonly Queued[],
  { delayMs = 0, contents }: { delayMs?: number; contents: ContentWriter },
): Promise<void> {
  if (queued.length === 0) return
  const stored = await contents.store(queued.map(({ message: { message } }) => message))
  const texts = queued.map(({ message: { message } }, index) =>
    stored[index] === null ? contents.textOf(message) : JSON.stringify(headerOf(message)),
  )
  await sql`INSERT INTO task_messages (task_key, origin, message, content_key, content_bytes, traceparent, due_at, lane)
    SELECT m.task_key, m.origin, m.message, m.content_key, m.content_bytes, m.traceparent,
      CASE WHEN m.lane IS NULL THEN now() + make_interval(secs => ${delayMs / 1000}::float8) ELSE 'infinity' END, m.lane
    FROM unnest(${queued.map(({ taskKey }) => taskKey)}::bigint[], ${queued.map(({ message: { origin } }) => origin)}::text[],
      ${jsonArray(texts)}::json[], ${stored.map((content) => content?.key ?? null)}::bigint[],
      ${stored.map((content) => content?.bytes ?? null)}::int[],
      ${queued.map(({ message: { traceparent } }) => traceparent ?? null)}::text[],
      ${queued.map(({ message: { message }, isKept }) => (isKept ? message.publisher : null))}::text[])
      AS m (task_key, origin, message, content_key, content_bytes, traceparent, lane)
    ON CONFLICT ON CONSTRAINT task_messages_origin_key DO NOTHING`.execute(tx)
}

/** A rule, and the messages that match it, in their order. */
export type RuleMatches = { rule: StoredTriggerRule; matches: readonly NewMessage[] }

/** Rules whose messages are queued and counted by one statement each. */
const MAX_RULES = 1_000

/**
 * Queues messages that match rules and counts them; those beyond a rate are dropped, or wait for its next window. Returns how many of each rule were
 * handled: with the next one the trigger falls behind. What several rules match is stored once.
 */
export async function handMatches(tx: Transaction, given: readonly RuleMatches[]): Promise<number[]> {
  const contents = new ContentWriter(tx)
  const handled: number[] = []
  for (let at = 0; at < given.length; at += MAX_RULES)
    handled.push(...(await handSome(tx, given.slice(at, at + MAX_RULES), contents)))
  return handled
}

async function handSome(tx: Transaction, given: readonly RuleMatches[], contents: ContentWriter): Promise<number[]> {
  const handled: number[] = []
  const queued: Queued[] = []
  const packs: Pack[] = []
  const counts: MatchCounts[] = []
  for (const { rule, matches } of given) {
    const { taskKey, debounceMs, windowLeft } = rule
    if (debounceMs !== null) {
      handled.push(await handLast(tx, { ...rule, debounceMs }, matches, contents))
      continue
    }
    const fitting = fittingOf(rule, matches, contents)
    const taken = matches.slice(0, Math.min(fitting, windowLeft ?? Infinity))
    const isDropping = rule.excess === 'drop' && taken.length < fitting
    const matched = isDropping ? fitting : taken.length
    const isKept = keepsMessages(rule)
    const packed = packsOf(rule, taken, contents)
    packs.push(...packed)
    const rest = taken.slice(packed.reduce((sum, { messages }) => sum + messages.length, 0))
    queued.push(...rest.map((message) => ({ taskKey, message, isKept })))
    counts.push({ taskKey, matched, taken: taken.length, replaced: 0, dropped: matched - taken.length })
    handled.push(matched)
  }
  const stored = await insertPacks(tx, packs, (message) => contents.textOf(message))
  const unpacked = packs.flatMap(({ taskKey, runId, messages }) =>
    stored.has(runId) ? [] : messages.map((message) => ({ taskKey, message, isKept: true })),
  )
  await queueForTasks(tx, [...unpacked, ...queued], { contents })
  await countMatches(tx, counts)
  return handled
}

/** The full batches that the first messages are, which no manager has to put together. Large messages are stored each for itself. */
function packsOf(
  { taskKey, batch, ordering }: StoredTriggerRule,
  taken: readonly NewMessage[],
  contents: ContentWriter,
): Pack[] {
  if (batch === null || batch < MIN_PACKED || ordering === 'client' || ordering === 'channel') return []
  const packs: Pack[] = []
  for (let at = 0; at + batch <= taken.length; at += batch) {
    const messages = taken.slice(at, at + batch)
    const sizes = messages.map(({ message }) => contents.sizeOf(message))
    const bytes = sizes.reduce((sum, size) => sum + size, 0)
    if (bytes > MAX_BATCH_BYTES || sizes.some((size) => size >= MIN_CONTENT_BYTES)) break
    packs.push({ taskKey, runId: newId(), messages })
  }
  return packs
}

/** How many of the messages fit into the queue; always one into an empty queue. */
function fittingOf(rule: StoredTriggerRule, matches: readonly NewMessage[], contents: ContentWriter): number {
  const { waiting, waitingBytes } = rule
  const room = Math.max(maxWaiting(rule) - waiting, 0)
  let bytes = waitingBytes
  let fitting = 0
  for (const { message } of matches.slice(0, room)) {
    bytes += contents.sizeOf(message)
    if (bytes > MAX_WAITING.bytes && waiting + fitting > 0) break
    fitting++
  }
  return fitting
}

/** Within the debounce only the last message counts, including those that are already queued. */
async function handLast(
  tx: Transaction,
  { taskKey, windowLeft, debounceMs }: StoredTriggerRule & { debounceMs: number },
  matches: readonly NewMessage[],
  contents: ContentWriter,
): Promise<number> {
  // Replaced messages have not run, so their part of the rate is free again.
  const replaced = await removeDebounced(tx, taskKey, debounceMs)
  const taken = (windowLeft ?? Infinity) + replaced > 0 ? matches.slice(-1) : []
  const dropped = matches.length > 0 && taken.length === 0 ? 1 : 0
  await queueForTasks(
    tx,
    taken.map((message) => ({ taskKey, message, isKept: false })),
    { delayMs: debounceMs, contents },
  )
  await countMatches(tx, [{ taskKey, matched: matches.length, taken: taken.length, replaced, dropped }])
  return matches.length
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
  hintBatches(bus)
}

type Look = { atSeconds: number; found: DueMessages[] }

/** Looks at rows that are due since then, or at all. The messages of a domain are in the order in which they became due. */
async function lookFor(db: Queryable, sinceSeconds: number | undefined): Promise<Look> {
  const since = sinceSeconds === undefined ? sql`'-infinity'` : sql`to_timestamp(${sinceSeconds}::float8)`
  const { rows } = await sql<{ at: number; share: number | null; keys: number[] | null; count: number }>`
    SELECT extract(epoch FROM now())::float8 AS at, w.share, w.keys, w.count FROM (SELECT 1) one LEFT JOIN (
      SELECT t.domain_key AS share, (array_agg(d.key ORDER BY d.due_at, d.key))[:${MAX_KNOWN_OF_DOMAIN}::int] AS keys, count(*)::int AS count
        FROM (SELECT key, task_key, due_at FROM task_messages WHERE due_at BETWEEN ${since} AND now() AND run_id IS NULL
          ORDER BY due_at, key LIMIT ${MAX_COMPARED}) d JOIN tasks t ON t.key = d.task_key GROUP BY t.domain_key) w ON true`.execute(
    db,
  )
  const found = rows.flatMap(({ share, keys, count }) =>
    keys === null ? [] : [{ share, keys, isCut: count > keys.length }],
  )
  return { atSeconds: rows[0]?.at ?? 0, found }
}

// A row that another manager has locked is left to it.
const takeRows = (keys: readonly number[]) => sql<QueuedMessage>`
  UPDATE task_messages m SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8)
  FROM (SELECT key FROM task_messages WHERE key = ANY (${keys}::bigint[]) AND due_at <= now() AND run_id IS NULL FOR UPDATE SKIP LOCKED) due,
    tasks t LEFT JOIN modules d ON d.key = t.module_key LEFT JOIN task_triggers g ON g.task_key = t.key
  WHERE m.key = due.key AND t.key = m.task_key
  RETURNING m.key, m.task_key AS "taskKey", m.origin, m.message, m.content_key AS "contentKey", m.content_bytes AS "contentBytes", m.traceparent, t.id AS "taskId", t.name AS "taskName",
    t.domain_id AS "domainId", t.user_key AS "userKey", t.paused_at IS NOT NULL AS "isPaused", t.function, json_array_length(t.inputs) AS "inputCount", d.exports,
    g.batch IS NOT NULL AS "isListed"`

export type MessageReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Starts the runs of the messages and returns one outcome per message, in order. Called for the next messages while others are in progress. */
  start: (messages: readonly QueuedMessage[]) => Promise<readonly MessageOutcome[]>
  /** Called with the runs that were not started, at most once per task, when the messages are done. */
  onDropped: (dropped: readonly DroppedRuns[]) => Promise<void>
  onError: (error: unknown) => void
}

export function startMessageReader({ database, bus, intervalMs, start, onDropped, onError }: MessageReaderOptions): {
  stop(): Promise<void>
} {
  const { db } = database
  const waiting = new WaitingMessages(IN_PROGRESS)
  const steps = new Set<Promise<void>>()
  let last: { ms: number; wholeMs: number; atSeconds: number } | undefined

  async function look(): Promise<void> {
    const nowMs = monotonicMs()
    const isWhole = last === undefined || waiting.lacksSome || nowMs - last.wholeMs >= WHOLE_LOOK_MS
    const { atSeconds, found } = await lookFor(db, isWhole ? undefined : (last?.atSeconds ?? 0) - LATE_SECONDS)
    last = { ms: nowMs, wholeMs: isWhole ? nowMs : (last?.wholeMs ?? nowMs), atSeconds }
    waiting.add(found, isWhole)
  }

  /** Returns the messages to retry. */
  async function process(rows: readonly QueuedMessage[]): Promise<number[]> {
    const messages = rows.toSorted((left, right) => left.key - right.key)
    const outcomes = await start(messages)
    const { retried, dropped } = await settle(db, messages, outcomes)
    if (dropped.length > 0) await onDropped(dropped)
    return retried
  }

  function begin(taken: readonly number[], rows: readonly QueuedMessage[]): void {
    const end = (keys: readonly number[]) => {
      waiting.end(keys)
      reader.wake()
    }
    const step = process(rows)
      .then((retried) => {
        // They keep their part of what is in progress: a domain whose messages are refused for now does not try thousands of them every second.
        if (retried.length > 0) setTimeout(() => end(retried), RETRY_MS).unref()
        const kept = new Set(retried)
        end(taken.filter((key) => !kept.has(key)))
      })
      .catch((error: unknown) => {
        onError(error)
        end(taken)
      })
      .finally(() => steps.delete(step))
    steps.add(step)
  }

  const reader = startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError,
    async take() {
      if (!waiting.hasNext || monotonicMs() - (last?.ms ?? -Infinity) >= LOOK_MS) await look()
      const taken = waiting.take()
      if (taken.length === 0) {
        // Everything that is known waits for the end of a step.
        if (!waiting.hasWaiting || steps.size === 0) return false
        await Promise.race([...steps, pause(LOOK_MS)])
        return true
      }
      try {
        const { rows } = await takeRows(taken).execute(db)
        // The next messages are taken meanwhile.
        if (rows.length > 0) begin(taken, rows)
        else waiting.end(taken)
      } catch (error) {
        waiting.end(taken)
        throw error
      }
      return waiting.hasWaiting
    },
  })
  return {
    async stop() {
      await reader.stop()
      await Promise.all(steps)
    },
  }
}

async function defer(db: Queryable, keys: readonly number[], seconds: number): Promise<void> {
  if (keys.length === 0) return
  await sql`UPDATE task_messages SET due_at = now() + make_interval(secs => ${seconds}::float8)
    WHERE key = ANY(${keys}::bigint[])`.execute(db)
}

/** Returns the messages to retry, and the runs that were not started. */
async function settle(
  db: Queryable,
  messages: readonly QueuedMessage[],
  outcomes: readonly MessageOutcome[],
): Promise<{ retried: number[]; dropped: DroppedRuns[] }> {
  const [done, again, held]: [number[], number[], number[]] = [[], [], []]
  const refusedWhole: { key: number; reason: string }[] = []
  const drops: DroppedRuns[] = []
  /** The drops since the last success of each task. */
  const refused = new Map<number, DroppedRuns>()
  const succeeded: number[] = []
  for (const [index, { key, taskKey }] of messages.entries()) {
    const outcome = outcomes[index] ?? 'retry'
    if (outcome === 'retry' || outcome === 'hold') {
      ;(outcome === 'retry' ? again : held).push(key)
      continue
    }
    if (outcome.started === 0 && outcome.dropped > 0) refusedWhole.push({ key, reason: outcome.reason })
    else done.push(key)
    if (outcome.dropped === 0) {
      succeeded.push(taskKey)
      refused.delete(taskKey)
      continue
    }
    const { dropped: count, reason } = outcome
    drops.push({ taskKey, count, reason })
    refused.set(taskKey, { taskKey, count: count + (refused.get(taskKey)?.count ?? 0), reason })
  }
  if (done.length > 0) {
    await sql`WITH cleared AS (${clearRefusals('message', succeeded)})
      DELETE FROM task_messages WHERE key = ANY(${done}::bigint[])`.execute(db)
  }
  await keepLetters(db, 'message', refusedWhole)
  await defer(db, again, RETRY_MS / 1000)
  await defer(db, held, HELD_SECONDS)
  await countDropped(db, drops)
  return { retried: again, dropped: [...refused.values()] }
}
