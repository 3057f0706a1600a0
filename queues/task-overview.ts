/** Tasks, runs and workers of a domain in numbers, as the platform shows them beside its own. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskState } from '#proto/index.ts'

/** Newest runs that are counted: reading them takes some 50 ms. */
const MAX_COUNTED_RUNS = 20_000

export type TaskCounts = { total: number; scheduled: number; running: number; failed: number }

/** Undefined `domainKey`: all domains, and tasks without one. */
export async function countTasks(db: Queryable, domainKey: number | undefined): Promise<TaskCounts> {
  const { rows } = await sql<TaskCounts>`
    SELECT count(*) AS total, ${countOf(TASK_STATE.scheduled)} AS scheduled, ${countOf(TASK_STATE.running)} AS running,
           ${countOf(TASK_STATE.failed)} AS failed
      FROM tasks t WHERE ${ofDomain(sql`t.domain_key`, domainKey)}`.execute(db)
  return rows[0] as TaskCounts
}

export type RunCounts = {
  since: string
  started: number
  open: number
  completed: number
  failed: number
  stopped: number
  /**
   * The runs by the step in which they were started, oldest first; `at` is the start of the step in seconds since 1970. Steps before
   * `since` are absent.
   */
  steps: { at: number; started: number; failed: number }[]
}

/**
 * Runs that were started in the window, by their present state, together and by steps of `stepSeconds`. If there are more than 20,000, the
 * newest are counted, and `since` is when the oldest of them was started.
 */
export async function countRuns(
  db: Queryable,
  domainKey: number | undefined,
  { windowSeconds, stepSeconds }: { windowSeconds: number; stepSeconds: number },
): Promise<RunCounts> {
  const stepOf = (time: Sql<unknown>) =>
    sql`floor(extract(epoch FROM ${time}) / ${stepSeconds}::bigint)::bigint * ${stepSeconds}::bigint`
  // Without a domain the newest keys are read first: no index orders the runs of all domains by time.
  const newest =
    domainKey === undefined
      ? sql`(SELECT o.state, o.created_at FROM runs o ORDER BY o.key DESC LIMIT ${MAX_COUNTED_RUNS}) r`
      : sql`(SELECT o.state, o.created_at FROM runs o WHERE o.domain_key = ${domainKey}
              ORDER BY o.created_at DESC, o.key DESC LIMIT ${MAX_COUNTED_RUNS}) r`
  const { rows } = await sql<RunCounts>`
    WITH recent AS MATERIALIZED (SELECT r.state, r.created_at FROM ${newest}
      WHERE r.created_at >= now() - make_interval(secs => ${windowSeconds}::float8)
    ), beginning AS (
      SELECT CASE WHEN count(*) < ${MAX_COUNTED_RUNS} THEN now() - make_interval(secs => ${windowSeconds}::float8)
                  ELSE min(r.created_at) END AS since FROM recent r
    ), by_step AS (
      SELECT ${stepOf(sql`r.created_at`)} AS at, count(*) AS started, ${countOf(TASK_STATE.failed, sql`r.state`)} AS failed
        FROM recent r GROUP BY 1
    ), steps AS (
      SELECT at, coalesce(b.started, 0) AS started, coalesce(b.failed, 0) AS failed
        FROM generate_series(${stepOf(sql`now()`)} - ${windowSeconds - stepSeconds}::bigint, ${stepOf(sql`now()`)}, ${stepSeconds}::bigint) AS at
        LEFT JOIN by_step b USING (at) WHERE at >= extract(epoch FROM (SELECT since FROM beginning))
    )
    SELECT (SELECT since FROM beginning) AS since, count(*) AS started,
           count(*) FILTER (WHERE r.state IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})) AS open,
           ${countOf(TASK_STATE.completed, sql`r.state`)} AS completed, ${countOf(TASK_STATE.failed, sql`r.state`)} AS failed,
           ${countOf(TASK_STATE.stopped, sql`r.state`)} AS stopped,
           (SELECT coalesce(json_agg(s ORDER BY s.at), '[]') FROM steps s) AS steps
      FROM recent r`.execute(db)
  return rows[0] as RunCounts
}

export type OpenRuns = { queued: number; held: number }

/** Runs of the domain that wait for a worker, and those that workers have. */
export async function countOpenRuns(db: Queryable, domainKey: number): Promise<OpenRuns> {
  const { rows } = await sql<OpenRuns>`
    SELECT (SELECT count(*) FROM runs r WHERE r.queue_seq IS NOT NULL AND r.domain_key = ${domainKey}) AS queued,
           (SELECT count(*) FROM runs r WHERE r.next_check_at IS NOT NULL AND r.worker_key IS NOT NULL
              AND r.domain_key = ${domainKey}) AS held`.execute(db)
  return rows[0] as OpenRuns
}

/**
 * Bytes of the modules that were uploaded to tasks of the domain, each module once. `except`: without what only this task has, and
 * without this module.
 */
export async function countModuleBytes(
  db: Queryable,
  domainKey: number,
  except: { taskKey: number | null; digest: string } = { taskKey: null, digest: '' },
): Promise<number> {
  const { rows } = await sql<{ bytes: number }>`
    SELECT coalesce(sum(m.size_bytes), 0)::bigint AS bytes FROM modules m
     WHERE m.digest <> ${except.digest} AND m.key IN (
       SELECT t.module_key FROM tasks t WHERE t.domain_key = ${domainKey} AND t.key IS DISTINCT FROM ${except.taskKey}::bigint)`.execute(
    db,
  )
  return rows[0]?.bytes ?? 0
}

export type WorkerCounts = { alive: number; draining: number; dead: number; slots: number; used_slots: number }

const IS_ALIVE = sql<boolean>`(w.manager_id IS NOT NULL AND w.lease_until > now())`

/** Workers that can run tasks of the domain: its own and those of the platform. Revoked ones are not counted. */
export async function countWorkers(db: Queryable, domainKey: number | undefined): Promise<WorkerCounts> {
  const isUsable =
    domainKey === undefined
      ? sql<boolean>`true`
      : sql<boolean>`(w.domain_key = ${domainKey} OR (w.domain_key IS NULL AND NOT w.platform_only))`
  const { rows } = await sql<WorkerCounts>`
    SELECT count(*) FILTER (WHERE ${IS_ALIVE} AND NOT w.draining) AS alive, count(*) FILTER (WHERE ${IS_ALIVE} AND w.draining) AS draining,
           count(*) FILTER (WHERE NOT ${IS_ALIVE}) AS dead, coalesce(sum(w.slots) FILTER (WHERE ${IS_ALIVE}), 0)::bigint AS slots,
           coalesce(sum((SELECT count(*) FROM runs r WHERE r.worker_key = w.key AND r.next_check_at IS NOT NULL))
             FILTER (WHERE ${IS_ALIVE}), 0)::bigint AS used_slots
      FROM workers w WHERE w.revoked_at IS NULL AND ${isUsable}`.execute(db)
  return rows[0] as WorkerCounts
}

/** Workers that are alive and take runs, by the domain that owns them; without a domain, those that run tasks of every domain. */
export async function countAliveWorkers(db: Queryable): Promise<{ domainKey: number | null; workers: number }[]> {
  const { rows } = await sql<{ domainKey: number | null; workers: number }>`
    SELECT w.domain_key AS "domainKey", count(*) AS workers FROM workers w
     WHERE w.revoked_at IS NULL AND ${IS_ALIVE} AND NOT w.draining AND NOT (w.domain_key IS NULL AND w.platform_only)
     GROUP BY 1`.execute(db)
  return rows
}

const countOf = (state: TaskState, column: Sql<unknown> = sql`t.state`) =>
  sql`count(*) FILTER (WHERE ${column} = ${state})`

const ofDomain = (column: Sql<unknown>, domainKey: number | undefined) =>
  domainKey === undefined ? sql<boolean>`true` : sql<boolean>`${column} = ${domainKey}`
