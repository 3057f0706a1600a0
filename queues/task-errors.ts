/**
 * `task_errors`: what a task was refused outside of a request, by source. The platform and the managers record it; the statement that
 * ends a success of the same source removes it. No row costs a successful task nothing but a look-up in that statement.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** `right`: its grantor has lost a right, and the task is paused. */
export type TaskErrorSource = 'schedule' | 'message' | 'workflow' | 'publication' | 'replay' | 'right'

export type TaskRefusal = {
  taskKey: number
  source: TaskErrorSource
  /** A sentence. */
  reason: string
  /** Number of refusals. */
  count: number
  /** It stays refused until a person changes something. */
  needsAction: boolean
}

/** The first refusal of a row, which the caller records in the journal if it needs an action. */
export type FirstRefusal = Omit<TaskRefusal, 'taskKey' | 'count'> & {
  key: number
  id: string
  name: string
  domainKey: number | null
}

const MAX_REASON_CHARS = 500

/**
 * Counts refusals, and notes the first of each row for `/events`. There may be at most one refusal of each task and source. Refusals of
 * deleted tasks are left out. Returns the first ones.
 */
export async function recordRefusals(db: Queryable, refusals: readonly TaskRefusal[]): Promise<FirstRefusal[]> {
  if (refusals.length === 0) return []
  const column = <T>(value: (refusal: TaskRefusal) => T) => refusals.map(value)
  // The lock keeps the tasks until the commit. Tasks and rows are locked in one order, so that two nodes do not wait for each other.
  const { rows } = await sql<FirstRefusal>`
    WITH given AS (
      SELECT * FROM unnest(${column(({ taskKey }) => taskKey)}::bigint[], ${column(({ source }) => source)}::text[],
        ${column(({ reason }) => reason.slice(0, MAX_REASON_CHARS))}::text[], ${column(({ count }) => count)}::bigint[],
        ${column(({ needsAction }) => needsAction)}::boolean[]) AS g (task_key, source, reason, count, needs_action)),
    owners AS MATERIALIZED (
      SELECT key, id, name, domain_key FROM tasks WHERE key IN (SELECT task_key FROM given) ORDER BY key FOR KEY SHARE),
    changed AS (
      INSERT INTO task_errors AS e (task_key, source, reason, count, needs_action)
      SELECT g.task_key, g.source, g.reason, g.count, g.needs_action FROM given g JOIN owners o ON o.key = g.task_key
       ORDER BY g.task_key, g.source
      ON CONFLICT ON CONSTRAINT task_errors_pkey DO UPDATE
        SET at = now(), reason = excluded.reason, count = e.count + excluded.count, needs_action = excluded.needs_action
      RETURNING e.task_key, e.source, e.reason, e.needs_action, e.xmax = 0 AS is_first),
    firsts AS (SELECT o.*, c.source, c.reason, c.needs_action FROM changed c JOIN owners o ON o.key = c.task_key WHERE c.is_first),
    noted AS (INSERT INTO task_events (events)
      SELECT json_agg(json_build_array('refusal', source, key, reason)) FROM firsts HAVING count(*) > 0)
    SELECT key, id, name, domain_key AS "domainKey", source, reason, needs_action AS "needsAction" FROM firsts`.execute(
    db,
  )
  return rows
}

/** The operation of a first refusal in the journal. */
export function operationOf({ source }: Pick<FirstRefusal, 'source'>): 'pause' | 'refuse' {
  return source === 'right' ? 'pause' : 'refuse'
}

/** A part of the statement that ends a success of these tasks. */
export function clearRefusals(source: TaskErrorSource, taskKeys: readonly number[]): Sql {
  return sql`DELETE FROM task_errors WHERE task_key = ANY(${[...new Set(taskKeys)]}::bigint[]) AND source = ${source}`
}
