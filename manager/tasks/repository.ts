/** SQL of the tasks table, but for the states, which the run writer owns. Rows in, domain values out. */
import { refusing, withinPage, type Database, type Queryable, type Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import { isVisible, type VisibleDomains } from '../access.ts'
import { noteTasks } from '../events/note.ts'
import { fromModuleRow, type ModuleFacts, type ModuleRow } from '../modules/catalogue.ts'
import type { Grant, Target, Trigger, TriggerRule } from '../channels/fields.ts'
import type { OnLost, RunInput } from '../runs/spec.ts'
import { TASK_RUN_COLUMNS, type TaskRunFields } from './run-fields.ts'

export type TaskFields = {
  name: string
  inputs: readonly RunInput[]
  cliArgs: readonly string[] | null
  imageUrl: string | null
  function: string | null
  env: Readonly<Record<string, string>>
  labels: Readonly<Record<string, string>>
  workerId: string | null
  priority: number
  timeoutMs: number
  memoryLimitBytes: number
  maxAttempts: number | null
  backoffMs: number
  onLost: OnLost
  metadata: Readonly<Record<string, unknown>>
  broadcast: boolean
  daemon: boolean
  schedule: string | null
  timezone: string
  catchUp: 'none' | 'once'
  trigger: Trigger | null
  publishResult: Target | null
  grants: readonly Grant[]
}

/** What is written beside the fields and not given by anybody as it is. */
export type TaskExtras = {
  /** When a schedule ticks next; null: no schedule, or no tick any more. */
  nextTickAt: Date | null
  /** The rule of the trigger with the key of its channel; null: none. */
  triggerRule: (TriggerRule & { channelKey: number }) | null
  /** Sealed; null: none. */
  secrets: Buffer | null
  secretNames: readonly string[]
}

export type TriggerStatus = {
  matched: number
  dropped: number
  droppedReason: string | null
  lastMatchAt: string | null
}
export type RunIf = 'success' | 'failure' | 'always'

export type TaskRecord = TaskFields & {
  userKey: number | null
  nextTickAt: string | null
  triggerStatus: TriggerStatus | null
  secretNames: readonly string[]
  workflowId: string | null
  dependsOn: readonly string[]
  runIf: RunIf
  key: number
  id: string
  domainId: string | null
  state: TaskState
  module: ModuleFacts | null
  runId: string | null
  startTime: string | null
  finishTime: string | null
  createdAt: string
  updatedAt: string | null
}

/** What never changes about a task. */
export type TaskIdentity = { key: number; id: string; domainId: string | null }

type TaskRow = TaskRunFields & {
  metadata: Record<string, unknown>
  schedule: string | null
  timezone: string
  catch_up: 'none' | 'once'
  next_tick_at: string | null
  trigger: Trigger | null
  secret_names: string[]
  depends_on: string[]
  run_if: RunIf
  workflow_id: string | null
  trigger_status: {
    matched: number
    dropped: number
    dropped_reason: string | null
    last_match_at: string | null
  } | null
  run_id: string | null
  start_time: string | null
  finish_time: string | null
  created_at: string
  updated_at: string | null
  digest: string
  size_bytes: number
  kind: 'core' | 'component'
  runtime: string
  exports: ModuleRow['exports']
  imports: ModuleRow['imports']
}

/** A list says which module a task has; what it exports and imports is shown with the task alone. */
const LISTED_TASK = sql`NULL AS exports, NULL AS imports`
const WHOLE_TASK = sql`m.exports, m.imports`

const tasksWith = (description: Sql<unknown>) => sql`
  SELECT ${sql.raw(TASK_RUN_COLUMNS)}, t.metadata, t.start_time, t.finish_time, t.created_at, t.updated_at, t.schedule, t.timezone,
    t.catch_up, t.next_tick_at, t.trigger, t.secret_names, t.depends_on, t.run_if, f.id AS workflow_id,
    CASE WHEN g.task_key IS NOT NULL THEN json_build_object('matched', g.matched, 'dropped', g.dropped,
      'dropped_reason', g.dropped_reason, 'last_match_at', g.last_match_at) END AS trigger_status,
    r.id AS run_id, m.digest, m.size_bytes, m.kind, m.runtime, ${description}
  FROM tasks t LEFT JOIN modules m ON m.key = t.module_key LEFT JOIN runs r ON r.key = t.run_key
    LEFT JOIN workflows f ON f.key = t.workflow_key LEFT JOIN task_triggers g ON g.task_key = t.key`

function fromRow(row: TaskRow): TaskRecord {
  return {
    key: row.key,
    id: row.id,
    domainId: row.domain_id,
    name: row.name,
    state: row.state,
    inputs: row.inputs,
    cliArgs: row.cli_args,
    imageUrl: row.image_url,
    function: row.function,
    env: row.env,
    labels: row.labels,
    workerId: row.worker_id,
    priority: row.priority,
    timeoutMs: row.timeout_ms,
    memoryLimitBytes: row.memory_limit_bytes,
    maxAttempts: row.max_attempts,
    backoffMs: row.backoff_ms,
    onLost: row.on_lost,
    metadata: row.metadata,
    userKey: row.user_key,
    broadcast: row.broadcast,
    daemon: row.daemon,
    schedule: row.schedule,
    timezone: row.timezone,
    catchUp: row.catch_up,
    nextTickAt: row.next_tick_at,
    trigger: row.trigger,
    publishResult: row.publish_result,
    grants: row.grants,
    secretNames: row.secret_names,
    dependsOn: row.depends_on,
    runIf: row.run_if,
    workflowId: row.workflow_id,
    triggerStatus:
      row.trigger_status === null
        ? null
        : {
            matched: row.trigger_status.matched,
            dropped: row.trigger_status.dropped,
            droppedReason: row.trigger_status.dropped_reason,
            lastMatchAt: row.trigger_status.last_match_at,
          },
    module: row.module_key === null ? null : fromModuleRow({ ...row, key: row.module_key }),
    runId: row.run_id,
    startTime: row.start_time,
    finishTime: row.finish_time,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  }
}

const fromListedRow = (row: TaskRow): TaskRecord => fromRow({ ...row, exports: [], imports: [] })

export async function findTask(db: Queryable | Transaction, key: number): Promise<TaskRecord | undefined> {
  const { rows } = await sql<TaskRow>`${tasksWith(WHOLE_TASK)} WHERE t.key = ${key}`.execute(db)
  const row = rows[0]
  return row === undefined ? undefined : fromRow(row)
}

/** The tasks of a workflow in the order in which they were given, as many as fit on a page; `total`: all of them. */
export async function listTasksOf(db: Queryable, workflowKey: number): Promise<{ total: number; tasks: TaskRecord[] }> {
  const { rows } = await withinPage(
    sql<TaskRow>`${tasksWith(LISTED_TASK)} WHERE t.workflow_key = ${workflowKey} ORDER BY t.key`,
  ).execute(db)
  return { total: rows[0]?.page_rows ?? 0, tasks: rows.map(fromListedRow) }
}

export async function findIdentity(db: Queryable, id: string): Promise<TaskIdentity | undefined> {
  const { rows } = await sql<{ key: number; id: string; domain_id: string | null }>`
    SELECT key, id, domain_id FROM tasks WHERE id = ${id}`.execute(db)
  const row = rows[0]
  return row === undefined ? undefined : { key: row.key, id: row.id, domainId: row.domain_id }
}

const NOTE = sql.raw(noteTasks('changed'))

export type NewTaskRow = TaskFields &
  TaskExtras & {
    id: string
    domain: { key: number; id: string } | null
    userKey: number | null
    workflow: { key: number; dependsOn: readonly string[]; runIf: RunIf } | null
  }

export async function insertTask(db: Queryable | Transaction, task: NewTaskRow): Promise<number> {
  const { rows } = await sql<{ key: number }>`
    WITH changed AS (INSERT INTO tasks (id, domain_key, domain_id, user_key, name, inputs, cli_args, image_url, function, env, labels, worker_id,
      priority, timeout_ms, memory_limit_bytes, max_attempts, backoff_ms, on_lost, metadata, broadcast, daemon, schedule, timezone, catch_up,
      next_tick_at, trigger, publish_result, grants, secrets, secret_names, workflow_key, depends_on, run_if)
    VALUES (${task.id}, ${task.domain?.key ?? null}, ${task.domain?.id ?? null}, ${task.userKey}, ${task.name},
      ${JSON.stringify(task.inputs)}::json, ${task.cliArgs === null ? null : JSON.stringify(task.cliArgs)}::json, ${task.imageUrl},
      ${task.function}, ${JSON.stringify(task.env)}::json, ${JSON.stringify(task.labels)}::jsonb, ${task.workerId}, ${task.priority},
      ${task.timeoutMs}, ${task.memoryLimitBytes}, ${task.maxAttempts}, ${task.backoffMs}, ${task.onLost},
      ${JSON.stringify(task.metadata)}::jsonb, ${task.broadcast}, ${task.daemon}, ${task.schedule}, ${task.timezone}, ${task.catchUp},
      ${task.nextTickAt}, ${jsonOrNull(task.trigger)}::json, ${jsonOrNull(task.publishResult)}::json, ${JSON.stringify(task.grants)}::json,
      ${task.secrets}, ${[...task.secretNames]}::text[], ${task.workflow?.key ?? null}, ${[...(task.workflow?.dependsOn ?? [])]}::text[],
      ${task.workflow?.runIf ?? 'success'})
    RETURNING key, state), noted AS (${NOTE})
    SELECT key FROM changed`.execute(db)
  const [row] = rows
  if (row === undefined) throw new Error('the task was not inserted')
  if (task.triggerRule !== null) await writeTrigger(db, row.key, task.triggerRule)
  return row.key
}

function jsonOrNull(value: unknown): string | null {
  return value === null ? null : JSON.stringify(value)
}

/** A new rule begins to count anew; null takes the trigger away. */
async function writeTrigger(
  db: Queryable | Transaction,
  taskKey: number,
  rule: TaskExtras['triggerRule'],
): Promise<void> {
  await sql`DELETE FROM task_triggers WHERE task_key = ${taskKey}`.execute(db)
  if (rule === null) return
  await sql`INSERT INTO task_triggers (task_key, channel_key, subtopic, name, comparator, value, debounce_ms, rate_count, rate_ms)
    VALUES (${taskKey}, ${rule.channelKey}, ${rule.subtopic}, ${rule.name}, ${rule.comparator}, ${rule.value}, ${rule.debounceMs},
      ${rule.rateCount}, ${rule.rateMs})`.execute(db)
}

const COLUMNS: { readonly [K in keyof TaskFields]: { column: string; cast?: 'json' | 'jsonb' } } = {
  name: { column: 'name' },
  inputs: { column: 'inputs', cast: 'json' },
  cliArgs: { column: 'cli_args', cast: 'json' },
  imageUrl: { column: 'image_url' },
  function: { column: 'function' },
  env: { column: 'env', cast: 'json' },
  labels: { column: 'labels', cast: 'jsonb' },
  workerId: { column: 'worker_id' },
  priority: { column: 'priority' },
  timeoutMs: { column: 'timeout_ms' },
  memoryLimitBytes: { column: 'memory_limit_bytes' },
  maxAttempts: { column: 'max_attempts' },
  backoffMs: { column: 'backoff_ms' },
  onLost: { column: 'on_lost' },
  metadata: { column: 'metadata', cast: 'jsonb' },
  broadcast: { column: 'broadcast' },
  daemon: { column: 'daemon' },
  schedule: { column: 'schedule' },
  timezone: { column: 'timezone' },
  catchUp: { column: 'catch_up' },
  trigger: { column: 'trigger', cast: 'json' },
  publishResult: { column: 'publish_result', cast: 'json' },
  grants: { column: 'grants', cast: 'json' },
}

const AT_REST = sql<boolean>`t.state NOT IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})`
// An edited task is as if it had not run yet; its runs stay in the listing.
const AS_NEW = sql`state = ${TASK_STATE.pending}, run_key = NULL, start_time = NULL, finish_time = NULL, updated_at = now()`

/** False when the task is under way or gone. An image reference clears the uploaded module. */
export async function updateTask(
  tx: Transaction,
  key: number,
  fields: Partial<TaskFields>,
  extras: Partial<TaskExtras>,
  userKey: number | null,
): Promise<boolean> {
  const sets = (Object.entries(fields) as [keyof TaskFields, unknown][]).map(([field, value]) => {
    const { column, cast } = COLUMNS[field]
    const stored = cast === undefined || value === null ? value : JSON.stringify(value)
    return cast === undefined
      ? sql`${sql.ref(column)} = ${stored}`
      : sql`${sql.ref(column)} = ${stored}::${sql.raw(cast)}`
  })
  if (extras.nextTickAt !== undefined) sets.push(sql`next_tick_at = ${extras.nextTickAt}`)
  if (extras.secrets !== undefined) sets.push(sql`secrets = ${extras.secrets}`)
  if (extras.secretNames !== undefined) sets.push(sql`secret_names = ${[...extras.secretNames]}::text[]`)
  if (typeof fields.imageUrl === 'string') sets.push(sql`module_key = NULL`)
  if (userKey !== null) sets.push(sql`user_key = ${userKey}`)
  const { rows } =
    await sql`WITH changed AS (UPDATE tasks t SET ${sql.join([...sets, AS_NEW])} WHERE t.key = ${key} AND ${AT_REST}
      RETURNING t.key, t.state), noted AS (${NOTE}) SELECT key FROM changed`.execute(tx)
  if (rows.length === 0) return false
  if (extras.triggerRule !== undefined) await writeTrigger(tx, key, extras.triggerRule)
  return true
}

/** False when the task is under way or gone. An upload clears the image reference. */
export async function setModule(
  tx: Transaction,
  key: number,
  moduleKey: number,
  userKey: number | null,
): Promise<boolean> {
  const { rows } = await sql`
    WITH changed AS (UPDATE tasks t SET module_key = ${moduleKey}, image_url = NULL, user_key = coalesce(${userKey}, user_key), ${AS_NEW}
      WHERE t.key = ${key} AND ${AT_REST} RETURNING t.key, t.state), noted AS (${NOTE})
    SELECT key FROM changed`.execute(tx)
  return rows.length === 1
}

/** False when a run of it is under way, a workflow has it, or it is gone. */
export async function deleteTask(database: Database, key: number): Promise<boolean> {
  const work = sql`DELETE FROM tasks t WHERE t.key = ${key} AND ${AT_REST} AND t.workflow_key IS NULL
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.task_key = t.key AND r.next_check_at IS NOT NULL) RETURNING t.key`.execute(
    database.db,
  )
  const { rows } = await refusing({}, work)
  return rows.length === 1
}

export type TaskFilter = {
  domains: VisibleDomains
  state?: number | undefined
  name?: string | undefined
  metadata?: Readonly<Record<string, unknown>> | undefined
  workerId?: string | undefined
  order: string
  dir: 'asc' | 'desc'
  offset: number
  limit: number
}

const ORDERS: Readonly<Record<string, Sql<unknown>>> = {
  name: sql`t.name`,
  created_at: sql`t.created_at`,
  updated_at: sql`coalesce(t.updated_at, t.created_at)`,
}

/** The sealed secrets of a task, for whoever changes some of them. */
export async function findSecrets(db: Queryable, key: number): Promise<Buffer | null> {
  const { rows } = await sql<{ secrets: Buffer | null }>`SELECT secrets FROM tasks WHERE key = ${key}`.execute(db)
  return rows[0]?.secrets ?? null
}

export async function listTasks(db: Queryable, filter: TaskFilter): Promise<{ total: number; tasks: TaskRecord[] }> {
  const conditions: Sql<boolean>[] = [isVisible(sql`t.domain_key`, filter.domains)]
  if (filter.state !== undefined) conditions.push(sql`t.state = ${filter.state}`)
  if (filter.name !== undefined && filter.name !== '') {
    conditions.push(sql`t.name ILIKE ${`%${filter.name.replaceAll(/[\\%_]/g, '\\$&')}%`}`)
  }
  if (filter.metadata !== undefined) conditions.push(sql`t.metadata @> ${JSON.stringify(filter.metadata)}::jsonb`)
  if (filter.workerId !== undefined) {
    conditions.push(
      sql`EXISTS (SELECT 1 FROM runs l JOIN workers w ON w.key = l.worker_key WHERE l.key = t.run_key AND w.id = ${filter.workerId})`,
    )
  }
  const where = sql`WHERE ${sql.join(conditions, sql` AND `)}`
  const dir = sql.raw(filter.dir)
  const order = ORDERS[filter.order] ?? ORDERS['updated_at']
  const page = withinPage(
    sql<TaskRow>`${tasksWith(LISTED_TASK)} ${where} ORDER BY ${order} ${dir}, t.created_at ${dir}, t.id ${dir} LIMIT ${filter.limit} OFFSET ${filter.offset}`,
  )
  const count = sql<{ total: number }>`SELECT count(*) AS total FROM tasks t ${where}`
  const [{ rows }, counted] = await Promise.all([page.execute(db), count.execute(db)])
  return { total: counted.rows[0]?.total ?? 0, tasks: rows.map(fromListedRow) }
}

export function taskUnderWay(): ServiceError {
  return new ServiceError('invalid_state', 'the task is scheduled or running: stop it before it is changed')
}
