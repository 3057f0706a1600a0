/**
 * `task_triggers`: the rules by which messages start tasks. Managers write the rule of a task, the platform matches messages with the
 * rules, and both count dropped ones.
 */
import { behindColumn, behindOf, setBehind } from '#core/changelog/index.ts'
import type { BehindColumn, BehindPlace } from '#core/changelog/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { MESSAGE_COUNT, ROW_BYTES } from './packs.ts'
import { clearRefusals } from './task-errors.ts'
import type { SenmlRecord } from './trigger-message.ts'

/** What waits for runs of one task, at most: with more its trigger falls behind. */
export const MAX_WAITING = { messages: 1_000, bytes: 16 * 1024 * 1024 } as const
/** The limit of messages with `batch`, with those that its runs have: while these run, the next ones are queued. */
const MAX_BATCHED = 4 * MAX_WAITING.messages
/** A trigger that is behind goes on when less waits. */
const REFILLED_BELOW = { messages: MAX_WAITING.messages / 2, bytes: MAX_WAITING.bytes / 2 } as const

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
  /** What becomes of matches beyond the rate. */
  excess: Excess
  /** Largest number of messages that one run gets as a list; null: one, which is not a list. */
  batch: number | null
  /** The messages that run one after another; null: none. */
  ordering: Ordering | null
}

export const EXCESS = ['drop', 'wait'] as const
export type Excess = (typeof EXCESS)[number]

export const ORDERINGS = ['client', 'channel', 'none'] as const
export type Ordering = (typeof ORDERINGS)[number]
/** Messages of one run, at most. */
export const MAX_BATCH = 500

/** Messages in the queue of one task, at most. */
export const maxWaiting = ({ batch }: Pick<TriggerRule, 'batch'>): number =>
  batch === null ? MAX_WAITING.messages : MAX_BATCHED

/** How many messages of the trigger can be handled now, if they are small. With debounce, one replaces the others. */
export function roomOf(rule: StoredTriggerRule): number {
  if (rule.debounceMs !== null) return MAX_WAITING.messages
  const room = Math.max(maxWaiting(rule) - rule.waiting, 0)
  return rule.excess === 'wait' ? Math.min(room, rule.windowLeft ?? Infinity) : room
}

/** Its messages are kept until their run has ended (batches.ts). */
export const keepsMessages = ({ batch, ordering }: Pick<TriggerRule, 'batch' | 'ordering'>): boolean =>
  batch !== null || ordering !== null

export type MatchCounts = { taskKey: number; matched: number; taken: number; replaced: number; dropped: number }

export type StoredTriggerRule = TriggerRule & {
  taskKey: number
  domainKey: number
  channelId: string
  /** Messages of the task that wait for runs, and their size as it is stored. */
  waiting: number
  waitingBytes: number
  /** The remaining rate in this window; null without a rate. */
  windowLeft: number | null
  /** The subtopic of this channel to which the task publishes its results, if any. */
  publishesTo: string | null
  /** The place where it goes on; undefined: it goes on with what the others get next. */
  behind: BehindPlace | undefined
}

/** What a trigger asks of a message. */
export type TriggerFilter = Pick<
  StoredTriggerRule,
  'taskKey' | 'domainKey' | 'channelKey' | 'channelId' | 'subtopic' | 'name' | 'comparator' | 'value' | 'publishesTo'
>

/** The filter of a trigger that is not behind. */
export type ServedFilter = TriggerFilter & {
  /** First half of a position. Messages before it were stored before the trigger was, and are not for it. */
  sinceXid: bigint
}

const RULE_COLUMNS = [
  'channel_key',
  'subtopic',
  'name',
  'comparator',
  'value',
  'debounce_ms',
  'rate_count',
  'rate_ms',
  'excess',
  'batch',
  'ordering',
]
const of = (row: 'g' | 'excluded') => RULE_COLUMNS.map((column) => `${row}.${column}`).join(', ')
const NEW_RULE = RULE_COLUMNS.map((column) => sql.raw(`${column} = excluded.${column}`))
const KEPT_OF_SAME_CHANNEL = [
  ['behind_xid', 'NULL'],
  ['behind_seq', 'NULL'],
  ['behind_message', 'NULL'],
  ['behind_since', 'NULL'],
  ['since_xid', 'excluded.since_xid'],
].map(([column, initial]) =>
  sql.raw(`${column} = CASE WHEN g.channel_key = excluded.channel_key THEN g.${column} ELSE ${initial} END`),
)
const KEPT_OF_SAME_RULE = [
  ['matched', '0'],
  ['dropped', '0'],
  ['expired', '0'],
  ['window_count', '0'],
  ['window_at', 'NULL'],
  ['dropped_reason', 'NULL'],
  ['last_match_at', 'NULL'],
].map(([column, initial]) =>
  sql.raw(
    `${column} = CASE WHEN (${of('g')}) IS NOT DISTINCT FROM (${of('excluded')}) THEN g.${column} ELSE ${initial} END`,
  ),
)

/**
 * Clears its refusals. A changed rule starts its counts at zero; messages of the same channel that wait for it are compared with it when their
 * turn comes. Null removes the trigger.
 */
export async function writeTrigger(
  db: Queryable | Transaction,
  taskKey: number,
  rule: TriggerRule | null,
): Promise<void> {
  await clearRefusals('message', [taskKey]).execute(db)
  if (rule === null) {
    await sql`DELETE FROM task_triggers WHERE task_key = ${taskKey}`.execute(db)
    return
  }
  await sql`INSERT INTO task_triggers AS g (task_key, channel_key, subtopic, name, comparator, value, debounce_ms, rate_count, rate_ms, excess, batch, ordering)
    VALUES (${taskKey}, ${rule.channelKey}, ${rule.subtopic}, ${rule.name}, ${rule.comparator}, ${rule.value}, ${rule.debounceMs},
      ${rule.rateCount}, ${rule.rateMs}, ${rule.excess}, ${rule.batch}, ${rule.ordering})
    ON CONFLICT ON CONSTRAINT task_triggers_pkey DO UPDATE SET ${sql.join([...NEW_RULE, ...KEPT_OF_SAME_CHANNEL, ...KEPT_OF_SAME_RULE])}`.execute(
    db,
  )
  if (!keepsMessages(rule)) return
  // These are the messages that no manager has taken yet.
  await sql`UPDATE task_messages SET lane = message ->> 'publisher', due_at = 'infinity'
    WHERE task_key = ${taskKey} AND lane IS NULL AND refused_at IS NULL AND due_at <= now() AND origin LIKE 'message %'`.execute(
    db,
  )
}

/** Tasks of one round of warnings. */
const MAX_WARNED = 500

const IS_NEW_WINDOW = sql`(g.window_at IS NULL OR g.window_at + make_interval(secs => g.rate_ms / 1000.0) <= now())`

const FILTER = sql`g.task_key AS "taskKey", g.channel_key AS "channelKey", c.id AS "channelId", c.domain_key AS "domainKey", g.subtopic, g.name, g.comparator, g.value,
      CASE WHEN t.publish_result ->> 'channel_id' = c.id::text
        THEN replace(coalesce(t.publish_result ->> 'subtopic', ''), '/', '.') END AS "publishesTo"`

const RULE_TABLES = sql`task_triggers g JOIN channels c ON c.key = g.channel_key JOIN tasks t ON t.key = g.task_key`

const RULES = sql`
  SELECT ${FILTER},
      g.debounce_ms AS "debounceMs", g.rate_count AS "rateCount", g.rate_ms AS "rateMs", g.excess, g.batch, g.ordering,
      w.waiting, w."waitingBytes",
      CASE WHEN g.rate_count IS NULL THEN NULL WHEN ${IS_NEW_WINDOW} THEN g.rate_count
        ELSE greatest(g.rate_count - g.window_count, 0) END AS "windowLeft",
      ${behindColumn('g')}
    FROM ${RULE_TABLES}
      CROSS JOIN LATERAL (SELECT coalesce(sum(${MESSAGE_COUNT}), 0)::int AS waiting, coalesce(sum(${ROW_BYTES}), 0)::float8 AS "waitingBytes"
        FROM task_messages m WHERE m.task_key = g.task_key AND m.refused_at IS NULL) w`

type RuleRow = Omit<StoredTriggerRule, 'behind'> & { behind: BehindColumn }

const ruleOf = (row: RuleRow): StoredTriggerRule => ({ ...row, behind: behindOf(row.behind) })

/** Undefined: no trigger is served at the end of the log. Otherwise the channels whose triggers still get earlier messages. */
export async function readServedTriggers(tx: Transaction): Promise<{ remaining: ReadonlySet<number> } | undefined> {
  const { rows } = await sql<{ is_any: boolean; remaining: number[] }>`
    SELECT EXISTS (SELECT FROM task_triggers WHERE behind_since IS NULL) AS is_any,
      ARRAY(SELECT DISTINCT channel_key FROM trigger_remainders) AS remaining`.execute(tx)
  return rows[0]?.is_any === true ? { remaining: new Set(rows[0].remaining) } : undefined
}

/** What the triggers of these channels that are not behind ask of a message, in the order of their tasks. */
export async function readTriggerFilters(
  tx: Transaction,
  channelKeys: readonly number[],
  { afterTaskKey = 0, limit }: { afterTaskKey?: number; limit?: number } = {},
): Promise<ServedFilter[]> {
  if (channelKeys.length === 0) return []
  const { rows } = await sql<TriggerFilter & { sinceXid: string }>`
    SELECT ${FILTER}, coalesce(g.since_xid, '0')::text AS "sinceXid" FROM ${RULE_TABLES}
    WHERE g.channel_key = ANY(${channelKeys}::bigint[]) AND g.behind_since IS NULL AND g.task_key > ${afterTaskKey}
    ORDER BY g.task_key LIMIT ${limit ?? null}::bigint`.execute(tx)
  return rows.map((row) => ({ ...row, sinceXid: BigInt(row.sinceXid) }))
}

/** The triggers of these tasks that are not behind, with the free capacity of their queues and windows. */
export async function readTriggerRules(tx: Transaction, taskKeys: readonly number[]): Promise<StoredTriggerRule[]> {
  if (taskKeys.length === 0) return []
  const { rows } = await sql<RuleRow>`${RULES}
    WHERE g.task_key = ANY(${taskKeys}::bigint[]) AND g.behind_since IS NULL ORDER BY g.task_key`.execute(tx)
  return rows.map(ruleOf)
}

/** The trigger of the task, if it is behind, locked until the transaction ends; undefined also while another process has locked it. */
export async function lockTriggerBehind(tx: Transaction, taskKey: number): Promise<StoredTriggerRule | undefined> {
  const { rows } = await sql<RuleRow>`${RULES} WHERE g.task_key = ${taskKey} AND g.behind_since IS NOT NULL
    FOR NO KEY UPDATE OF g SKIP LOCKED`.execute(tx)
  return rows[0] === undefined ? undefined : ruleOf(rows[0])
}

/**
 * Tasks whose triggers are behind and can take messages now, or let them expire: domains in turn, the longest behind of each first. Those of full
 * domains only let messages expire.
 */
export async function listTriggersBehind(
  db: Queryable,
  { limit, expiryDays, fullDomains }: { limit: number; expiryDays: number; fullDomains: readonly number[] },
): Promise<number[]> {
  const { rows } = await sql<{ task_key: number }>`
    WITH able AS (
      SELECT g.task_key, row_number() OVER (PARTITION BY c.domain_key ORDER BY g.behind_since) AS place
        FROM task_triggers g JOIN channels c ON c.key = g.channel_key
          CROSS JOIN LATERAL (SELECT CASE WHEN g.batch IS NULL THEN ${REFILLED_BELOW.messages}::int ELSE ${MAX_BATCHED / 2}::int END AS refilled_below) l
       WHERE g.behind_since IS NOT NULL AND (g.behind_since < now() - make_interval(days => ${expiryDays})
          OR (c.domain_key <> ALL (${[...fullDomains]}::bigint[]) AND (g.rate_count IS NULL OR ${IS_NEW_WINDOW} OR g.window_count < g.rate_count OR g.excess = 'drop')
            AND (SELECT coalesce(sum(messages), 0) < l.refilled_below AND coalesce(sum(bytes), 0) < ${REFILLED_BELOW.bytes}
              FROM (SELECT ${MESSAGE_COUNT} AS messages, ${ROW_BYTES} AS bytes FROM task_messages m WHERE m.task_key = g.task_key AND m.refused_at IS NULL LIMIT l.refilled_below) counted))))
    SELECT task_key FROM able ORDER BY place, random() LIMIT ${limit}`.execute(db)
  return rows.map(({ task_key: key }) => key)
}

/** Tasks whose waiting messages expire within a day, if nothing else was said of their messages since yesterday. */
export async function listSoonExpired(
  db: Queryable,
  expiryDays: number,
): Promise<{ taskKey: number; since: string }[]> {
  const { rows } = await sql<{ taskKey: number; since: string }>`
    SELECT g.task_key AS "taskKey", g.behind_since AS since FROM task_triggers g
     WHERE g.behind_since < now() - make_interval(days => ${expiryDays - 1})
       AND NOT EXISTS (SELECT FROM task_errors e WHERE e.task_key = g.task_key AND e.source = 'message' AND e.at > now() - interval '1 day')
     ORDER BY g.task_key LIMIT ${MAX_WARNED}`.execute(db)
  return rows
}

/**
 * Stores where a trigger that is behind goes on; undefined: with what the others get next. If the trigger got another channel meanwhile,
 * this has no effect.
 */
export async function storeTriggerPlace(
  tx: Transaction,
  { taskKey, channelKey }: Pick<StoredTriggerRule, 'taskKey' | 'channelKey'>,
  place: BehindPlace | undefined,
): Promise<void> {
  await sql`UPDATE task_triggers SET ${setBehind(place)} WHERE task_key = ${taskKey} AND channel_key = ${channelKey}`.execute(
    tx,
  )
}

/** Counts matches that waited for too long. */
export async function countExpired(tx: Transaction, taskKey: number, count: number): Promise<void> {
  await sql`UPDATE task_triggers SET matched = matched + ${count}, expired = expired + ${count} WHERE task_key = ${taskKey}`.execute(
    tx,
  )
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

/** Counts matched messages of triggers: `taken` were queued and replaced `replaced` earlier ones. Only a rate drops the others. */
export async function countMatches(tx: Transaction, counts: readonly MatchCounts[]): Promise<void> {
  if (counts.length === 0) return
  const of = (name: keyof MatchCounts) => counts.map((count) => count[name])
  await sql`UPDATE task_triggers g SET matched = g.matched + c.matched, dropped = g.dropped + c.dropped,
      dropped_reason = CASE WHEN c.dropped > 0 THEN 'rate_limit' ELSE g.dropped_reason END, last_match_at = now(),
      window_count = CASE WHEN ${IS_NEW_WINDOW} THEN 0 ELSE greatest(g.window_count - c.replaced, 0) END + c.taken,
      window_at = CASE WHEN ${IS_NEW_WINDOW} THEN now() ELSE g.window_at END
    FROM unnest(${of('taskKey')}::bigint[], ${of('matched')}::int[], ${of('dropped')}::int[], ${of('replaced')}::int[], ${of('taken')}::int[])
      AS c (task_key, matched, dropped, replaced, taken)
    WHERE g.task_key = c.task_key`.execute(tx)
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
