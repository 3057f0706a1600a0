/**
 * SQL of tasks whose ticks a worker starts (decision 0161). A row of `offline_tasks` gives them to the worker until the task is changed; the task has no
 * `next_tick_at` meanwhile, so no manager starts its ticks.
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { RunNeeds } from '../model/needs.ts'
import type { FailureReason, RunSpec } from '../model/run.ts'
import { noteRuns, noteTasks } from './notes.ts'

const VERSION = sql`coalesce(t.updated_at, t.created_at)`
/** Of `offline_tasks g` and `tasks t`: the task is as it was when the worker got it. */
const IN_FORCE = sql<boolean>`(t.offline AND t.schedule IS NOT NULL AND t.paused_at IS NULL AND g.task_version = ${VERSION}
  AND EXISTS (SELECT FROM workers w WHERE w.key = g.worker_key AND w.id = t.worker_id AND w.revoked_at IS NULL))`

export type OfflineTask = {
  key: number
  id: string
  worker_id: string
  version: string
  schedule: string
  timezone: string
  catch_up: 'none' | 'once'
  next_tick_at: string | null
  /** null: the manager starts its ticks. */
  fence: number | null
  first_tick_at: string | null
  /** When it was read, by the clock of the database. */
  now: string
}

/** Whether there is any, or one that a worker had and that nobody has taken back. */
export async function hasOfflineTasks({ db }: Pick<Database, 'db'>): Promise<boolean> {
  const { rows } = await sql<{ has_some: boolean }>`
    SELECT EXISTS (SELECT FROM tasks WHERE offline) OR EXISTS (SELECT FROM offline_tasks) AS has_some`.executePrepared(
    db,
    'has-offline-tasks',
  )
  return rows[0]?.has_some === true
}

/** The offline tasks of these workers, by id. */
export async function findOfflineTasks(
  db: Queryable,
  workerIds: readonly string[],
): Promise<Map<string, OfflineTask[]>> {
  const { rows } = await sql<OfflineTask>`
    SELECT t.key, t.id, t.worker_id, ${VERSION}::text AS version, t.schedule, t.timezone, t.catch_up, t.next_tick_at, g.fence, g.first_tick_at,
           now() AS now
      FROM tasks t LEFT JOIN offline_tasks g ON g.task_key = t.key AND ${IN_FORCE}
     WHERE t.offline AND t.worker_id = ANY (${[...workerIds]}::uuid[]) AND t.schedule IS NOT NULL AND t.paused_at IS NULL
     ORDER BY t.key`.executePrepared(db, 'find-offline-tasks')
  return Map.groupBy(rows, ({ worker_id: id }) => id)
}

/** The specs of the runs of tasks that workers have, by task. */
export async function findOfflineSpecs(
  db: Queryable,
  taskKeys: readonly number[],
): Promise<Map<number, { spec: RunSpec; digest: string }>> {
  const { rows } = await sql<{ task_key: number; spec: RunSpec; module_digest: string }>`
    SELECT task_key, spec, module_digest FROM offline_tasks WHERE task_key = ANY (${[...taskKeys]}::bigint[])`.execute(
    db,
  )
  return new Map(rows.map(({ task_key: key, spec, module_digest: digest }) => [key, { spec, digest }]))
}

export type Grant = {
  task: Pick<OfflineTask, 'key' | 'version'>
  worker: { key: number; epoch: number }
  /** The worker starts ticks at or after this time; `skipped` ticks before it start no run. */
  firstTick: Date
  skipped: number
  run: { specJson: string; digest: string; needs: RunNeeds; needsHash: string }
}

/**
 * Gives a task to a worker. False if either has changed meanwhile, or this took so long that the first tick is not surely in the future: a manager may
 * be starting it.
 */
export async function grantOfflineTask(
  database: Database,
  { task, worker, firstTick, skipped, run }: Grant,
): Promise<boolean> {
  return await database.transaction(async (tx) => {
    const locked = await sql`
      SELECT t.key FROM tasks t JOIN workers w ON w.id = t.worker_id AND w.key = ${worker.key} AND w.session_epoch = ${worker.epoch}
       WHERE t.key = ${task.key} AND t.offline AND t.schedule IS NOT NULL AND t.paused_at IS NULL
         AND ${VERSION} = ${task.version}::timestamptz AND t.next_tick_at > now()
         FOR NO KEY UPDATE OF t`.execute(tx)
    if (locked.rows.length === 0) return false
    await sql`INSERT INTO run_needs (hash, definition) VALUES (${run.needsHash}, ${JSON.stringify(run.needs)}::jsonb)
      ON CONFLICT ON CONSTRAINT run_needs_pkey DO NOTHING`.execute(tx)
    const { rows } = await sql`
      WITH granted AS (INSERT INTO offline_tasks (task_key, worker_key, fence, task_version, first_tick_at, spec, module_digest, needs)
          VALUES (${task.key}, ${worker.key}, nextval('fence'), ${task.version}::timestamptz, ${firstTick}, ${run.specJson}::json,
            ${run.digest}, ${run.needsHash})
          ON CONFLICT ON CONSTRAINT offline_tasks_pkey DO UPDATE SET worker_key = EXCLUDED.worker_key, fence = EXCLUDED.fence,
            task_version = EXCLUDED.task_version, first_tick_at = EXCLUDED.first_tick_at, spec = EXCLUDED.spec,
            module_digest = EXCLUDED.module_digest, needs = EXCLUDED.needs, granted_at = now())
      UPDATE tasks SET next_tick_at = NULL, missed_ticks = missed_ticks + ${skipped}
       WHERE key = ${task.key} AND clock_timestamp() < ${firstTick}::timestamptz - interval '1 second' RETURNING key`.execute(
      tx,
    )
    if (rows.length === 0) throw new TooLate()
    return true
  })
}

/** Ends the transaction of a grant. */
export class TooLate extends Error {}

/** Takes the tasks from workers that cannot start their ticks, which have changed to an earlier version. */
export async function voidTasksOf({ db }: Pick<Database, 'db'>, workerKeys: readonly number[]): Promise<void> {
  await sql`DELETE FROM offline_tasks WHERE worker_key = ANY (${[...workerKeys]}::bigint[])`.execute(db)
}

export type VoidTask = { key: number; schedule: string | null; timezone: string }

/** Tasks that a worker has no longer, and that no manager has taken back. */
export async function findVoidTasks({ db }: Pick<Database, 'db'>, limit: number): Promise<VoidTask[]> {
  const { rows } = await sql<VoidTask>`
    SELECT t.key, t.schedule, t.timezone FROM offline_tasks g JOIN tasks t ON t.key = g.task_key WHERE NOT ${IN_FORCE}
    UNION
    SELECT t.key, t.schedule, t.timezone FROM tasks t
     WHERE t.offline AND t.next_tick_at IS NULL AND NOT EXISTS (SELECT FROM offline_tasks g WHERE g.task_key = t.key)
     LIMIT ${limit}`.executePrepared(db, 'find-void-tasks')
  return rows
}

/** The managers start the ticks of this task again. Rows that another manager has locked are left to it. */
export async function takeBackTask(database: Database, key: number, nextTick: Date | undefined): Promise<void> {
  await database.transaction(async (tx) => {
    const { rows } = await sql`SELECT key FROM tasks WHERE key = ${key} FOR NO KEY UPDATE SKIP LOCKED`.execute(tx)
    if (rows.length === 0) return
    // A statement of its own, which sees what was committed before the lock.
    await sql`
      WITH gone AS (DELETE FROM offline_tasks g USING tasks t WHERE g.task_key = ${key} AND t.key = g.task_key AND NOT ${IN_FORCE} RETURNING g.task_key)
      UPDATE tasks t SET next_tick_at = ${nextTick ?? null}::timestamptz
       WHERE t.key = ${key} AND t.next_tick_at IS NULL AND t.schedule IS NOT NULL
         AND (EXISTS (SELECT FROM gone) OR NOT EXISTS (SELECT FROM offline_tasks g WHERE g.task_key = t.key))`.execute(
      tx,
    )
  })
}

/** A run that a worker has started and ended by itself. Times are those of the worker, in milliseconds since 1970. */
export type OfflineEnd = {
  id: string
  taskId: string
  fence: number
  tickMs: number
  startedMs: number
  finishedMs: number
  ranOffline: boolean
  missed: number
  state: number
  reason: FailureReason | null
  error: string | null
  frames: readonly string[]
  results: string | null
  durationMs: number | null
  prepareMs: number | null
  outputTruncated: boolean
}

export type RecordedOffline = { id: string; key: number; taskKey: number; domainId: string | null }

/**
 * Records the runs of this worker whose tasks it has, each once, in one transaction. `recorded`: the ids of those that are recorded, now or earlier; `added`: now.
 * The others are stale: their task was changed since.
 */
export async function recordOfflineRuns(
  database: Database,
  workerKey: number,
  ends: readonly OfflineEnd[],
): Promise<{ recorded: ReadonlySet<string>; added: RecordedOffline[] }> {
  return await database.transaction(async (tx) => {
    const fences = [...new Set(ends.map(({ fence }) => fence))]
    await sql`SELECT t.key FROM tasks t JOIN offline_tasks g ON g.task_key = t.key
      WHERE g.worker_key = ${workerKey} AND g.fence = ANY (${fences}::bigint[]) ORDER BY t.key FOR NO KEY UPDATE OF t`.execute(
      tx,
    )
    const added = await insertRuns(tx, workerKey, ends)
    const { rows } = await sql<{ id: string; fence: number }>`
      SELECT id, fence FROM runs WHERE id = ANY (${ends.map(({ id }) => id)}::uuid[]) AND worker_key = ${workerKey}`.execute(
      tx,
    )
    return { recorded: new Set(rows.map(({ id }) => id)), added }
  })
}

/** Times of a worker whose clock was wrong are moved between its grant and now. The state of the task follows its newest run. */
async function insertRuns(tx: Transaction, workerKey: number, ends: readonly OfflineEnd[]): Promise<RecordedOffline[]> {
  const items = JSON.stringify(ends)
  const { rows } = await sql<{ id: string; key: number; task_key: number; domain_id: string | null }>`
    WITH given AS MATERIALIZED (SELECT * FROM json_to_recordset(${items}::json) AS n (id uuid, "taskId" uuid, fence bigint, "tickMs" float8,
      "startedMs" float8, "finishedMs" float8, "ranOffline" boolean, missed bigint, state smallint, reason text, error text, frames json,
      results text, "durationMs" float8, "prepareMs" float8, "outputTruncated" boolean)),
    changed AS (INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, worker_key, fence, created_at,
        assigned_at, running_at, finished_at, duration_ms, prepare_ms, results, output_truncated, reason, error, frames, domain_key, cause,
        ran_offline)
      SELECT n.id, t.key, true, n.state, g.spec, g.module_digest, g.needs, t.priority, g.worker_key, g.fence, b.began_at,
          b.began_at, b.began_at, e.ended_at, n."durationMs", n."prepareMs", n.results::json, n."outputTruncated", n.reason, n.error,
          CASE WHEN json_array_length(n.frames) > 0 THEN n.frames END, t.domain_key,
          json_build_object('type', 'schedule', 'tick', to_char(to_timestamp(n."tickMs" / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
          n."ranOffline"
        FROM given n JOIN offline_tasks g ON g.fence = n.fence AND g.worker_key = ${workerKey}
        JOIN tasks t ON t.key = g.task_key AND t.id = n."taskId"
        CROSS JOIN LATERAL (SELECT least(greatest(to_timestamp(n."finishedMs" / 1000), g.granted_at), now()) AS ended_at) e
        CROSS JOIN LATERAL (SELECT least(greatest(to_timestamp(n."startedMs" / 1000), g.granted_at), e.ended_at) AS began_at) b
       WHERE ${IN_FORCE} AND n."tickMs" >= extract(epoch FROM g.first_tick_at) * 1000 ORDER BY n."tickMs"
      ON CONFLICT ON CONSTRAINT runs_id_key DO NOTHING
      RETURNING key, id, task_key, state, worker_key, reason, running_at, finished_at),
    noted AS (${sql.raw(noteRuns('changed'))}),
    newest AS (SELECT DISTINCT ON (task_key) * FROM changed ORDER BY task_key, finished_at DESC, key DESC),
    missed AS (SELECT c.task_key, sum(n.missed)::bigint AS missed FROM changed c JOIN given n ON n.id = c.id GROUP BY c.task_key),
    followed AS (UPDATE tasks t SET missed_ticks = t.missed_ticks + m.missed,
        state = CASE WHEN f.follows THEN n.state ELSE t.state END, run_key = CASE WHEN f.follows THEN n.key ELSE t.run_key END,
        start_time = CASE WHEN f.follows THEN n.running_at ELSE t.start_time END,
        finish_time = CASE WHEN f.follows THEN n.finished_at ELSE t.finish_time END
      FROM newest n JOIN missed m ON m.task_key = n.task_key
      JOIN tasks o ON o.key = n.task_key
      CROSS JOIN LATERAL (SELECT o.state NOT IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})
        AND (o.finish_time IS NULL OR o.finish_time <= n.finished_at) AS follows) f
      WHERE t.key = n.task_key RETURNING t.key, t.state),
    noted_tasks AS (${sql.raw(noteTasks('followed'))})
    SELECT c.id, c.key, c.task_key, t.domain_id FROM changed c JOIN tasks t ON t.key = c.task_key`.execute(tx)
  return rows.map(({ id, key, task_key: taskKey, domain_id: domainId }) => ({ id, key, taskKey, domainId }))
}
