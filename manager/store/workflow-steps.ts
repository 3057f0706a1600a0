/** SQL of the engine of workflows: an advance reads the steps that are started, and writes those that change. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import { clearRefusals } from '#queues/index.ts'
import type { RunIf } from '../model/result-references.ts'
import type { RunInput } from '../model/task-fields.ts'
import { noteTasks } from './notes.ts'

export type StepProgress = {
  taskKey: number
  taskId: string
  name: string
  dependsOn: string[]
  runIf: RunIf
  state: TaskState
  runId: string
}

/** An open run with all its steps. */
export type OpenSteps = {
  key: number
  id: string
  workflowId: string
  domainId: string | null
  steps: StepProgress[]
  byName: ReadonlyMap<string, StepProgress>
  byTask: ReadonlyMap<number, StepProgress>
}

/** Undefined if it has ended. */
export async function findOpenSteps(db: Queryable, key: number): Promise<OpenSteps | undefined> {
  const { rows } = await sql<StepProgress & Pick<OpenSteps, 'id' | 'workflowId' | 'domainId'>>`
    SELECT r.id, f.id AS "workflowId", f.domain_id AS "domainId", s.task_key AS "taskKey", t.id AS "taskId", t.name,
      t.depends_on AS "dependsOn", t.run_if AS "runIf", s.state, s.run_id AS "runId"
    FROM workflow_runs r JOIN workflows f ON f.key = r.workflow_key JOIN workflow_steps s ON s.workflow_run_key = r.key
      JOIN tasks t ON t.key = s.task_key
    WHERE r.key = ${key} AND r.next_check_at IS NOT NULL ORDER BY s.task_key`.execute(db)
  const [first] = rows
  if (first === undefined) return undefined
  const { id, workflowId, domainId } = first
  const steps = rows.map(({ taskKey, taskId, name, dependsOn, runIf, state, runId }) => ({
    taskKey,
    taskId,
    name,
    dependsOn,
    runIf,
    state,
    runId,
  }))
  const byName = new Map(steps.map((step) => [step.name, step]))
  const byTask = new Map(steps.map((step) => [step.taskKey, step]))
  return { key, id, workflowId, domainId, steps, byName, byTask }
}

export type StartedStep = {
  taskKey: number
  /** The final state of its run; null: not ended, or not created. */
  runState: TaskState | null
  runExists: boolean
  /** The inputs of a step whose run does not exist. */
  inputs: RunInput[] | null
}

/** The steps that are started, by the index of those alone; undefined if the run has ended. */
export async function findStartedSteps(db: Queryable, key: number): Promise<StartedStep[] | undefined> {
  const { rows } = await sql<Omit<StartedStep, 'taskKey'> & { taskKey: number | null }>`
    SELECT s.task_key AS "taskKey", CASE WHEN l.next_check_at IS NULL THEN l.state END AS "runState",
      l.key IS NOT NULL AS "runExists", CASE WHEN l.key IS NULL THEN t.inputs END AS inputs
    FROM workflow_runs r LEFT JOIN workflow_steps s ON s.workflow_run_key = r.key AND s.state = ${sql.raw(String(TASK_STATE.scheduled))}
      LEFT JOIN runs l ON l.id = s.run_id LEFT JOIN tasks t ON t.key = s.task_key AND l.key IS NULL
    WHERE r.key = ${key} AND r.next_check_at IS NOT NULL`.executePrepared(db, 'started-steps')
  if (rows.length === 0) return undefined
  return rows.flatMap((row) => (row.taskKey === null ? [] : [{ ...row, taskKey: row.taskKey }]))
}

/** Runs that are taken for a check in a round. */
const MAX_DUE = 200

/** Runs that are due for a check, domains in turn; they become due again later, in case this manager dies. */
export async function takeDue(db: Queryable, checkMs: number): Promise<{ key: number; domainId: string | null }[]> {
  const { rows } = await sql<{ key: number; domainId: string | null }>`
    WITH due AS (
      SELECT r.key, f.domain_id, row_number() OVER (PARTITION BY f.domain_key ORDER BY r.next_check_at) AS place
        FROM workflow_runs r JOIN workflows f ON f.key = r.workflow_key WHERE r.next_check_at <= now()
       ORDER BY place, r.next_check_at LIMIT ${MAX_DUE}),
    taken AS MATERIALIZED (
      SELECT key FROM workflow_runs WHERE key IN (SELECT key FROM due) AND next_check_at <= now() ORDER BY key FOR UPDATE SKIP LOCKED)
    UPDATE workflow_runs r SET next_check_at = now() + make_interval(secs => ${checkMs / 1000}::float8)
      FROM taken JOIN due ON due.key = taken.key WHERE r.key = taken.key
    RETURNING r.key, due.domain_id AS "domainId"`.execute(db)
  return rows
}

/** Ends steps whose runs have ended; they have run, which ends the refusals of their tasks. Returns how many were started until now. */
export async function endSteps(
  db: Queryable,
  runKey: number,
  ends: readonly { taskKey: number; state: TaskState }[],
): Promise<number> {
  const keys = ends.map(({ taskKey }) => taskKey)
  const { rows } = await sql`WITH cleared AS (${clearRefusals('workflow', keys)})
    UPDATE workflow_steps s SET state = e.state, error = NULL
      FROM unnest(${keys}::bigint[], ${ends.map(({ state }) => state)}::smallint[]) AS e (task_key, state)
     WHERE s.workflow_run_key = ${runKey} AND s.task_key = e.task_key AND s.state = ${TASK_STATE.scheduled} RETURNING s.task_key`.execute(
    db,
  )
  return rows.length
}

/** Skips steps and their tasks, unless a run of the task is active. Returns how many steps waited until now. */
export async function skipSteps(
  db: Queryable,
  runKey: number,
  taskKeys: readonly number[],
  state: TaskState,
): Promise<number> {
  const { rows } = await sql`
    WITH moved AS (UPDATE workflow_steps SET state = ${state}, error = NULL
      WHERE workflow_run_key = ${runKey} AND task_key = ANY (${[...taskKeys]}::bigint[]) AND state = ${TASK_STATE.pending} RETURNING task_key),
    changed AS (UPDATE tasks t SET state = ${state}, run_key = NULL, start_time = NULL, finish_time = now()
      FROM moved WHERE t.key = moved.task_key AND t.state NOT IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})
      RETURNING t.key, t.state),
    noted AS (${sql.raw(noteTasks('changed'))})
    SELECT task_key FROM moved`.execute(db)
  return rows.length
}

/** Marks steps as started, with the present inputs of their tasks; those that waited until now. */
export async function beginSteps(
  db: Queryable,
  runKey: number,
  taskKeys: readonly number[],
): Promise<{ taskKey: number; inputs: RunInput[] }[]> {
  const { rows } = await sql<{ taskKey: number; inputs: RunInput[] }>`
    UPDATE workflow_steps s SET state = ${TASK_STATE.scheduled}, error = NULL FROM tasks t
     WHERE t.key = s.task_key AND s.workflow_run_key = ${runKey} AND s.task_key = ANY (${[...taskKeys]}::bigint[]) AND s.state = ${TASK_STATE.pending}
    RETURNING s.task_key AS "taskKey", t.inputs`.execute(db)
  return rows
}
