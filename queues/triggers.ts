/**
 * `task_triggers`: the rules by which messages start tasks. Managers write the rule of a task, the platform matches messages with the
 * rules, and both count dropped ones.
 */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { SenmlRecord } from './trigger-message.ts'

export const COMPARATORS = ['eq', 'lt', 'le', 'gt', 'ge'] as const
export type Comparator = (typeof COMPARATORS)[number]

export type TriggerRule = {
  channelKey: number
  /** Elements joined by `.`; empty: every subtopic. */
  subtopic: string
  name: string | null
  comparator: Comparator | null
  value: number | null
  debounceMs: number | null
  rateCount: number | null
  rateMs: number | null
}

export type MatchCounts = { matched: number; taken: number; replaced: number; dropped: number; reason: string }

export type StoredTriggerRule = TriggerRule & {
  taskKey: number
  channelId: string
  /** Messages of the task that wait for runs. */
  waiting: number
  /** The remaining rate in this window; null without a rate. */
  windowLeft: number | null
  /** The subtopic of this channel to which the task publishes its results, if any. */
  publishesTo: string | null
}

/** A new rule starts its counts at zero; null removes the trigger. */
export async function writeTrigger(
  db: Queryable | Transaction,
  taskKey: number,
  rule: TriggerRule | null,
): Promise<void> {
  await sql`DELETE FROM task_triggers WHERE task_key = ${taskKey}`.execute(db)
  if (rule === null) return
  await sql`INSERT INTO task_triggers (task_key, channel_key, subtopic, name, comparator, value, debounce_ms, rate_count, rate_ms)
    VALUES (${taskKey}, ${rule.channelKey}, ${rule.subtopic}, ${rule.name}, ${rule.comparator}, ${rule.value}, ${rule.debounceMs},
      ${rule.rateCount}, ${rule.rateMs})`.execute(db)
}

const IS_NEW_WINDOW = sql`(g.window_at IS NULL OR g.window_at + make_interval(secs => g.rate_ms / 1000.0) <= now())`

/** Every trigger with the free capacity of its queue and its window. */
export async function readTriggerRules(tx: Transaction): Promise<StoredTriggerRule[]> {
  const { rows } = await sql<StoredTriggerRule>`
    SELECT g.task_key AS "taskKey", g.channel_key AS "channelKey", c.id AS "channelId", g.subtopic, g.name, g.comparator, g.value,
      g.debounce_ms AS "debounceMs", g.rate_count AS "rateCount", g.rate_ms AS "rateMs",
      (SELECT count(*) FROM task_messages m WHERE m.task_key = g.task_key)::int AS waiting,
      CASE WHEN g.rate_count IS NULL THEN NULL WHEN ${IS_NEW_WINDOW} THEN g.rate_count
        ELSE greatest(g.rate_count - g.window_count, 0) END AS "windowLeft",
      CASE WHEN t.publish_result ->> 'channel_id' = c.id::text
        THEN replace(coalesce(t.publish_result ->> 'subtopic', ''), '/', '.') END AS "publishesTo"
    FROM task_triggers g JOIN channels c ON c.key = g.channel_key JOIN tasks t ON t.key = g.task_key ORDER BY g.task_key`.execute(
    tx,
  )
  return rows
}

/** The records that match the rule, in order. */
export function matchingRecords(
  rule: Pick<TriggerRule, 'subtopic' | 'name' | 'comparator' | 'value'>,
  subtopic: string,
  records: readonly SenmlRecord[],
): SenmlRecord[] {
  if (!coversSubtopic(rule.subtopic, subtopic)) return []
  return records.filter((record) => {
    if (rule.name !== null && rule.name !== record.n) return false
    return rule.comparator === null || rule.value === null || compares(record, rule.comparator, rule.value)
  })
}

/** Matches the subtopic itself and those below it. */
export function coversSubtopic(wanted: string, subtopic: string): boolean {
  return wanted === '' || subtopic === wanted || subtopic.startsWith(`${wanted}.`)
}

function compares(record: SenmlRecord, comparator: Comparator, value: number): boolean {
  const number = record.v ?? record.s ?? (record.vb === undefined ? undefined : Number(record.vb))
  if (number === undefined) return false
  switch (comparator) {
    case 'eq':
      return number === value
    case 'lt':
      return number < value
    case 'le':
      return number <= value
    case 'gt':
      return number > value
    case 'ge':
      return number >= value
  }
}

/** Counts matched messages: `taken` were queued and replaced `replaced` earlier ones. */
export async function countMatches(
  tx: Transaction,
  taskKey: number,
  { matched, taken, replaced, dropped, reason }: MatchCounts,
): Promise<void> {
  await sql`UPDATE task_triggers g SET matched = matched + ${matched}, dropped = dropped + ${dropped},
      dropped_reason = CASE WHEN ${dropped}::int > 0 THEN ${reason} ELSE dropped_reason END, last_match_at = now(),
      window_count = CASE WHEN ${IS_NEW_WINDOW} THEN 0 ELSE greatest(window_count - ${replaced}, 0) END + ${taken},
      window_at = CASE WHEN ${IS_NEW_WINDOW} THEN now() ELSE window_at END
    WHERE g.task_key = ${taskKey}`.execute(tx)
}

/** Counts runs that were not started, with the last reason of each task. */
export async function countDropped(
  db: Queryable,
  drops: readonly { taskKey: number; count: number; reason: string }[],
): Promise<void> {
  if (drops.length === 0) return
  const counts = [...Map.groupBy(drops, ({ taskKey }) => taskKey)]
    .map(([taskKey, some]) => ({
      taskKey,
      count: some.reduce((sum, { count }) => sum + count, 0),
      reason: some.at(-1)?.reason ?? '',
    }))
    .toSorted((left, right) => left.taskKey - right.taskKey)
  await sql`UPDATE task_triggers g SET dropped = g.dropped + c.count, dropped_reason = c.reason
    FROM unnest(${counts.map(({ taskKey }) => taskKey)}::bigint[], ${counts.map(({ count }) => count)}::int[],
      ${counts.map(({ reason }) => reason)}::text[]) AS c (task_key, count, reason)
    WHERE g.task_key = c.task_key`.execute(db)
}
