/**
 * Messages that start tasks: a consumer of the message log (mechanisms section 2). A message that meets a trigger is handed
 * to the task managers in the transaction of the position: none is lost, none comes twice.
 */
import { SENML_JSON, loadMessages } from '#api/messages/index.ts'
import type { LiveMessage, Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { jsonArray } from '#core/database/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { QUIET_TIMES, beginAtEnd, hintQueue, startLogFollower } from '#core/log/index.ts'
import type { LogRow } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { matchingRecords } from './match.ts'
import type { SenmlRecord, TriggerRow } from './match.ts'

const CONSUMER = 'task triggers'
const TABLE = { name: 'ingest_batches', columns: ['arrived_at'] } as const
/** Batches that one transaction opens. */
const MAX_BATCHES = 50
/** Batches that one transaction passes over while there is no trigger: some seconds of a busy system. */
const MAX_PASSED = 5_000
/** Messages of one task that wait for its runs; what is beyond is dropped and counted. */
export const MAX_WAITING_MESSAGES = 1_000

type Rule = TriggerRow & {
  channel_id: string
  debounce_ms: number | null
  rate_count: number | null
  rate_ms: number | null
  waiting: number
  window_left: number | null
  /** The subtopic of this channel to which the task publishes its results, if it does. */
  publishes_to: string | null
}

type Found = { rule: Rule; origin: string; message: string }

export async function startTriggers({
  database,
  messages,
  bus,
  logger,
  intervalMs,
}: {
  database: Database
  messages: Pick<Messages, 'onCommitted'>
  bus: Bus
  logger: Logger
  intervalMs: number
}): Promise<{ stop(): Promise<void> }> {
  await beginAtEnd(database.db, CONSUMER)
  let hasHanded = false
  const follower = startLogFollower({
    database,
    table: TABLE,
    consumer: CONSUMER,
    logger,
    intervalMs,
    quietMs: intervalMs * QUIET_TIMES,
    // A busy node commits some hundred batches a second, which are gone through together.
    restMs: intervalMs,
    maxRows: MAX_PASSED,
    async apply(tx, rows) {
      const { applied, handed } = await applyTriggers(tx, rows)
      hasHanded ||= handed > 0
      return applied
    },
    onApplied() {
      if (hasHanded) hintQueue(bus, 'task_messages')
      hasHanded = false
    },
  })
  // Each node looks when it has stored something itself: whatever another one stored, that one looks for.
  const unsubscribe = messages.onCommitted(() => follower.poke())
  return {
    async stop() {
      unsubscribe()
      await follower.stop()
    },
  }
}

/** How many batches were gone through, and how many messages met a trigger. */
async function applyTriggers(
  tx: Transaction,
  following: readonly LogRow[],
): Promise<{ applied: number; handed: number }> {
  const rules = await readRules(tx)
  if (rules.length === 0) return { applied: following.length, handed: 0 }
  const rows = following.slice(0, MAX_BATCHES)
  const channels = new Map(rules.map((rule) => [rule.channel_key, rule.channel_id]))
  const batches = rows.map((row) => ({ seq: row.position.seq, arrivedAt: row['arrived_at'] as string }))
  const messages = await loadMessages(tx, batches, channels)
  const byChannel = Map.groupBy(rules, (rule) => rule.channel_key)
  const matches = messages.flatMap((message) => match(message, byChannel.get(message.channelKey) ?? []))
  for (const [rule, ofRule] of Map.groupBy(matches, ({ rule: one }) => one)) await hand(tx, rule, ofRule)
  return { applied: rows.length, handed: matches.length }
}

/** Every trigger with the room that is left in its queue and its window. */
async function readRules(tx: Transaction): Promise<Rule[]> {
  const { rows } = await sql<Rule>`
    SELECT g.task_key, g.channel_key, g.subtopic, g.name, g.comparator, g.value, g.debounce_ms, g.rate_count, g.rate_ms,
      c.id AS channel_id,
      (SELECT count(*) FROM task_messages m WHERE m.task_key = g.task_key)::int AS waiting,
      CASE WHEN g.rate_count IS NULL THEN NULL
        WHEN g.window_at IS NULL OR g.window_at + make_interval(secs => g.rate_ms / 1000.0) <= now() THEN g.rate_count
        ELSE greatest(g.rate_count - g.window_count, 0) END AS window_left,
      CASE WHEN t.publish_result ->> 'channel_id' = c.id::text
        THEN replace(coalesce(t.publish_result ->> 'subtopic', ''), '/', '.') END AS publishes_to
    FROM task_triggers g JOIN channels c ON c.key = g.channel_key JOIN tasks t ON t.key = g.task_key ORDER BY g.task_key`.execute(
    tx,
  )
  return rows
}

function match(message: LiveMessage, rules: readonly Rule[]): Found[] {
  if (rules.length === 0 || message.contentType !== SENML_JSON) return []
  let records: SenmlRecord[]
  try {
    records = JSON.parse(message.payload.toString('utf8')) as SenmlRecord[]
  } catch {
    return []
  }
  return rules.flatMap((rule): Found[] => {
    // Its own results would start it again and again.
    if (message.protocol === 'task' && message.subtopic === rule.publishes_to) return []
    const matching = matchingRecords(rule, message.subtopic, records)
    if (matching.length === 0) return []
    const given = {
      channel_id: message.channelId,
      subtopic: message.subtopic,
      publisher: message.publisherId,
      protocol: message.protocol,
      records: matching,
    }
    return [{ rule, origin: `message ${message.batchSeq}/${message.index}`, message: JSON.stringify(given) }]
  })
}

/** Hands messages to the managers, as many as there is room for; the others are counted with the reason. */
async function hand(tx: Transaction, rule: Rule, found: readonly Found[]): Promise<void> {
  // Of messages that come within the debounce the last counts, those that wait already included.
  const wanted = rule.debounce_ms === null ? [...found] : found.slice(-1)
  const queueRoom = rule.debounce_ms === null ? MAX_WAITING_MESSAGES - rule.waiting : 1
  // What it replaces has not run: its part of the rate is free again.
  const replaced = rule.debounce_ms === null ? 0 : await removeDebounced(tx, rule.task_key, rule.debounce_ms)
  const room = Math.min(Math.max(queueRoom, 0), (rule.window_left ?? Infinity) + replaced)
  const taken = wanted.slice(0, room)
  const dropped = wanted.length - taken.length
  const reason = rule.window_left !== null && rule.window_left < wanted.length ? 'rate_limit' : QUEUE_FULL
  if (taken.length > 0) {
    await sql`INSERT INTO task_messages (task_key, origin, message, due_at)
      SELECT ${rule.task_key}, m.origin, m.message, now() + make_interval(secs => ${(rule.debounce_ms ?? 0) / 1000}::float8)
      FROM unnest(${taken.map(({ origin }) => origin)}::text[], ${jsonArray(taken.map(({ message }) => message))}::json[]) AS m (origin, message)
      ON CONFLICT ON CONSTRAINT task_messages_origin_key DO NOTHING`.execute(tx)
  }
  const isNewWindow = sql`(g.window_at IS NULL OR g.window_at + make_interval(secs => g.rate_ms / 1000.0) <= now())`
  await sql`UPDATE task_triggers g SET matched = matched + ${found.length}, dropped = dropped + ${dropped},
      dropped_reason = CASE WHEN ${dropped}::int > 0 THEN ${reason} ELSE dropped_reason END, last_match_at = now(),
      window_count = CASE WHEN ${isNewWindow} THEN 0 ELSE greatest(window_count - ${replaced}, 0) END + ${taken.length},
      window_at = CASE WHEN ${isNewWindow} THEN now() ELSE window_at END
    WHERE g.task_key = ${rule.task_key}`.execute(tx)
}

/** Those that still wait for the end of their debounce; not what a manager has taken, nor records of a replay. */
async function removeDebounced(tx: Transaction, taskKey: number, debounceMs: number): Promise<number> {
  const { rows } = await sql`DELETE FROM task_messages WHERE task_key = ${taskKey} AND due_at > now()
    AND due_at = created_at + make_interval(secs => ${debounceMs / 1000}::float8) RETURNING key`.execute(tx)
  return rows.length
}

const QUEUE_FULL = `${MAX_WAITING_MESSAGES} messages wait for its runs already`
