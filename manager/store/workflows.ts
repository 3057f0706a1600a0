/** SQL of workflows, their runs and steps. */
import { countedRows, deletedRows } from '#api/identity/index.ts'
import type { TrialRows } from '#api/identity/index.ts'
import { Keyset, readPage, refusing, type Queryable, type Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import { visibleDomainCondition, type TaskCaller, type VisibleDomainKeys } from '../access/access.ts'
import { recordManaged, storeRemoved } from '#api/identity/index.ts'
import { actorOf } from '../access/callers.ts'
import { removeLettersOf } from '#queues/index.ts'
import { releaseBytesOf } from './run-bytes.ts'
import { noteRuns, noteTasks } from './notes.ts'
import { namesChannel } from './tasks.ts'
import type { LastError } from './tasks.ts'
import type { RunCause } from '../model/cause.ts'
import { requireNextState } from '../model/lifecycle.ts'
import { REFUSED } from '../model/run.ts'

export type WorkflowRecord = {
  key: number
  id: string
  domainId: string | null
  name: string
  metadata: Readonly<Record<string, unknown>>
  createdAt: string
  /** State of its newest run; null: never started. */
  state: TaskState | null
}

const COLUMNS = sql`
  f.key, f.id, f.domain_id AS "domainId", f.name, f.metadata, f.created_at AS "createdAt",
    (SELECT r.state FROM workflow_runs r WHERE r.workflow_key = f.key ORDER BY r.key DESC LIMIT 1) AS state`

const OLDEST_FIRST = new Keyset([{ by: sql`f.key`, type: 'number' }])

export async function insertWorkflow(
  tx: Transaction,
  workflow: {
    id: string
    domain: { key: number; id: string } | null
    name: string
    metadata: Readonly<Record<string, unknown>>
    caller: TaskCaller
  },
): Promise<number> {
  const change = { type: 'workflow', change: 'create' } as const
  const { rows } = await sql<{ key: number }>`
    WITH changed AS (INSERT INTO workflows (id, domain_key, domain_id, name, metadata)
    VALUES (${workflow.id}, ${workflow.domain?.key ?? null}, ${workflow.domain?.id ?? null}, ${workflow.name},
      ${JSON.stringify(workflow.metadata)}::jsonb) RETURNING key, id, name, domain_key),
    recorded AS (${recordManaged(actorOf(workflow.caller), change)})
    SELECT key FROM changed`.execute(tx)
  const [row] = rows
  if (row === undefined) throw new Error('the workflow was not inserted')
  return row.key
}

export async function findWorkflow(db: Queryable, id: string): Promise<WorkflowRecord | undefined> {
  const { rows } = await sql<WorkflowRecord>`SELECT ${COLUMNS} FROM workflows f WHERE f.id = ${id}`.execute(db)
  return rows[0]
}

export type WorkflowFilter = PageRange & {
  domains: VisibleDomainKeys
  name: string | undefined
  /** States of the newest run; 0 is of a workflow that was never started. */
  states?: readonly number[] | undefined
  /** A task of the workflow names this channel. */
  channelId?: string | undefined
  /** A message can start a task of the workflow. */
  hasTrigger?: boolean | undefined
}

function taskFilter({ channelId, hasTrigger }: WorkflowFilter): Sql<boolean> {
  const tasksOf = (condition: Sql<boolean>) =>
    sql<boolean>`EXISTS (SELECT FROM tasks t WHERE t.workflow_key = f.key AND ${condition})`
  const triggered = tasksOf(sql<boolean>`t.trigger IS NOT NULL`)
  const conditions = [
    ...(channelId === undefined ? [] : [tasksOf(namesChannel('t', channelId))]),
    ...(hasTrigger === undefined ? [] : [hasTrigger ? triggered : sql<boolean>`NOT ${triggered}`]),
  ]
  return conditions.length === 0 ? sql<boolean>`true` : sql<boolean>`${sql.join(conditions, sql` AND `)}`
}

export async function listWorkflows(
  db: Queryable,
  filter: WorkflowFilter,
): Promise<{ total: number; workflows: WorkflowRecord[]; next: PageEnd }> {
  const inDomains = visibleDomainCondition(sql`f.domain_key`, filter.domains)
  const named =
    filter.name === undefined || filter.name === ''
      ? sql`true`
      : sql`f.name ILIKE ${`%${filter.name.replaceAll(/[\\%_]/g, '\\$&')}%`}`
  const inState =
    filter.states === undefined
      ? sql`true`
      : sql`coalesce((SELECT r.state FROM workflow_runs r WHERE r.workflow_key = f.key ORDER BY r.key DESC LIMIT 1), 0)
          = ANY (${[...filter.states]}::smallint[])`
  const where = sql<boolean>`${inDomains} AND ${named} AND ${inState} AND ${taskFilter(filter)}`
  const joined = { alias: 'f', key: 'key' }
  const source = { columns: COLUMNS, from: sql`workflows f`, where, keyset: OLDEST_FIRST, joined }
  const [{ rows, next }, counted] = await Promise.all([
    readPage<WorkflowRecord>(db, source, filter),
    sql<{ total: number }>`SELECT count(*) AS total FROM workflows f WHERE ${where}`.execute(db),
  ])
  return { total: counted.rows[0]?.total ?? 0, workflows: rows, next }
}

const INACTIVE = sql<boolean>`
  NOT EXISTS (SELECT 1 FROM workflow_runs r WHERE r.workflow_key = f.key AND r.next_check_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM tasks t JOIN runs r ON r.task_key = t.key
      WHERE t.workflow_key = f.key AND r.next_check_at IS NOT NULL)`

/** Deletes the workflow with its tasks, each of which has a record too. Returns false while the workflow, or one of its tasks, is running. */
export async function deleteWorkflow(tx: Transaction, key: number, caller: TaskCaller): Promise<boolean> {
  const actor = actorOf(caller)
  const { rows } = await sql`WITH changed AS (DELETE FROM workflows f WHERE f.key = ${key} AND ${INACTIVE}
      RETURNING f.key, f.id, f.name, f.domain_key),
    removed AS (${sql.raw(storeRemoved('workflow'))}),
    recorded AS (${recordManaged(actor, { type: 'workflow', change: 'remove' })}),
    changed_tasks AS (DELETE FROM tasks t USING changed f WHERE t.workflow_key = f.key
      RETURNING t.key, t.id, t.name, t.domain_key),
    removed_tasks AS (${sql.raw(storeRemoved('task', 'changed_tasks'))}),
    recorded_tasks AS (${recordManaged(actor, { type: 'task', change: 'remove' }, 'changed_tasks')}),
    letters AS (${removeLettersOf('changed_tasks')}), ${releaseBytesOf('changed_tasks')}
    SELECT key FROM changed`.execute(tx)
  return rows.length === 1
}

/** What `deleteWorkflow` would delete; undefined where it would return false. */
export async function countWithWorkflow(db: Queryable, key: number): Promise<TrialRows[] | undefined> {
  const { rows } = await sql<{ tasks: number; workflow_runs: number; runs: number }>`
    SELECT ${countedRows(sql`SELECT FROM tasks t WHERE t.workflow_key = f.key`)} AS tasks,
           ${countedRows(sql`SELECT FROM workflow_runs r WHERE r.workflow_key = f.key`)} AS workflow_runs,
           ${countedRows(sql`SELECT FROM tasks t JOIN runs r ON r.task_key = t.key WHERE t.workflow_key = f.key`)} AS runs
      FROM workflows f WHERE f.key = ${key} AND ${INACTIVE}`.execute(db)
  return rows[0] === undefined ? undefined : deletedRows({ workflows: 1, ...rows[0] })
}

/** Starts a run with a step per task. Throws `invalid_state` while one is active. */
export async function beginRun(
  tx: Transaction,
  workflowKey: number,
  { id, caller }: { id: string; caller: TaskCaller },
): Promise<number> {
  const change = { type: 'workflow', change: 'start', attributes: { run_id: id } } as const
  const open = () =>
    new ServiceError('invalid_state', 'the workflow is running: it can be started again when it has ended')
  const work = sql<{ key: number }>`
    WITH changed AS (SELECT key, id, name, domain_key FROM workflows WHERE key = ${workflowKey}),
      recorded AS (${recordManaged(actorOf(caller), change)})
    INSERT INTO workflow_runs (id, workflow_key, state, next_check_at)
    VALUES (${id}, ${workflowKey}, ${TASK_STATE.running}, now()) RETURNING key`.execute(tx)
  const { rows } = await refusing({ workflow_runs_open_key: open }, work)
  const [row] = rows
  if (row === undefined) throw new Error('the run of the workflow was not inserted')
  await sql`INSERT INTO workflow_steps (workflow_run_key, task_key, run_id)
    SELECT ${row.key}, t.key, gen_random_uuid() FROM tasks t WHERE t.workflow_key = ${workflowKey}`.execute(tx)
  return row.key
}

export type StepRecord = {
  taskKey: number
  taskId: string
  name: string
  state: TaskState
  runId: string
  error: string | null
  /** The last error of the starts of its task by the workflow. */
  lastError: LastError | null
}

export type WorkflowRunRecord = {
  key: number
  id: string
  workflowKey: number
  workflowId: string
  domainId: string | null
  state: TaskState
  isOpen: boolean
  createdAt: string
  finishedAt: string | null
  steps: StepRecord[]
}

const RUN_COLUMNS = sql`
  r.key, r.id, r.workflow_key AS "workflowKey", f.id AS "workflowId", f.domain_id AS "domainId", r.state, r.next_check_at IS NOT NULL AS "isOpen",
  r.created_at AS "createdAt", r.finished_at AS "finishedAt"`

export async function findNewestRun(db: Queryable, workflowKey: number): Promise<WorkflowRunRecord | undefined> {
  const { rows } = await sql<Omit<WorkflowRunRecord, 'steps'>>`SELECT ${RUN_COLUMNS}
    FROM workflow_runs r JOIN workflows f ON f.key = r.workflow_key
    WHERE r.workflow_key = ${workflowKey} ORDER BY r.key DESC LIMIT 1`.execute(db)
  const [run] = rows
  return run === undefined ? undefined : { ...run, steps: await readSteps(db, run.key) }
}

async function readSteps(db: Queryable, runKey: number): Promise<StepRecord[]> {
  const { rows } = await sql<StepRecord>`
    SELECT s.task_key AS "taskKey", t.id AS "taskId", t.name, s.state, s.run_id AS "runId", s.error, CASE WHEN e.task_key IS NOT NULL
        THEN json_build_object('at', e.at, 'reason', e.reason, 'count', e.count, 'source', e.source) END AS "lastError"
    FROM workflow_steps s JOIN tasks t ON t.key = s.task_key
      LEFT JOIN task_errors e ON e.task_key = t.key AND e.source = 'workflow'
    WHERE s.workflow_run_key = ${runKey} ORDER BY s.task_key`.execute(db)
  return rows
}

/** The states in which a refused start leaves a task: failed from scheduled, without running. */
const REFUSED_STATE = requireNextState(requireNextState(TASK_STATE.pending, 'start'), 'fail')

/**
 * Ends a step whose start was refused. Its run is stored as failed, so that its id, the task and callers that wait show the reason; the
 * task keeps a run that is active. False if another manager changed the step.
 */
export async function refuseStep(
  tx: Transaction,
  step: { runKey: number; taskKey: number; reason: string; cause: RunCause },
): Promise<boolean> {
  const { rows } = await sql`
    WITH refused AS (UPDATE workflow_steps SET state = ${REFUSED_STATE}, error = ${step.reason}
      WHERE workflow_run_key = ${step.runKey} AND task_key = ${step.taskKey} AND state = ${TASK_STATE.scheduled}
      RETURNING task_key, run_id),
    ended AS (INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, finished_at, reason, error,
        domain_key, cause)
      SELECT s.run_id, t.key, true, ${REFUSED_STATE},
        json_build_object('task_id', t.id, 'task_name', t.name, 'domain_id', t.domain_id, 'timeout_ms', t.timeout_ms),
        coalesce(m.digest, ''), '', t.priority, now(), ${REFUSED}, ${step.reason}, t.domain_key, ${JSON.stringify(step.cause)}::json
      FROM refused s JOIN tasks t ON t.key = s.task_key LEFT JOIN modules m ON m.key = t.module_key
      RETURNING key, id, task_key, state, worker_key, reason),
    noted_runs AS (${sql.raw(noteRuns('ended'))}),
    changed AS (UPDATE tasks t SET state = ${REFUSED_STATE}, run_key = e.key, start_time = NULL, finish_time = now()
      FROM ended e WHERE t.key = e.task_key AND t.state NOT IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})
      RETURNING t.key, t.state),
    noted AS (${sql.raw(noteTasks('changed'))})
    SELECT task_key FROM refused`.execute(tx)
  return rows.length === 1
}

export async function endRun(db: Queryable, key: number, state: TaskState): Promise<boolean> {
  const { rows } = await sql`UPDATE workflow_runs SET state = ${state}, next_check_at = NULL, finished_at = now()
    WHERE key = ${key} AND next_check_at IS NOT NULL RETURNING key`.execute(db)
  return rows.length === 1
}

/** Stops a run together with its steps that were not started. */
export async function stopRun(tx: Transaction, key: number, caller: TaskCaller): Promise<void> {
  await sql`UPDATE workflow_steps SET state = ${TASK_STATE.stopped}
    WHERE workflow_run_key = ${key} AND state IN (${TASK_STATE.pending}, ${TASK_STATE.scheduled})`.execute(tx)
  await sql`WITH stopped AS (UPDATE workflow_runs SET state = ${TASK_STATE.stopped}, next_check_at = NULL, finished_at = now()
      WHERE key = ${key} AND next_check_at IS NOT NULL RETURNING workflow_key),
    changed AS (SELECT f.key, f.id, f.name, f.domain_key FROM stopped JOIN workflows f ON f.key = stopped.workflow_key)
    ${recordManaged(actorOf(caller), { type: 'workflow', change: 'stop' })}`.execute(tx)
}
