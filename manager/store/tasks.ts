/** SQL of the tasks table, except for the states, which the run writer owns. Converts between rows and domain values. */
import {
  Keyset,
  hasOlderNodes,
  readPage,
  refusing,
  withinPage,
  type Database,
  type Queryable,
  type SortColumn,
  type Transaction,
} from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { MAX_LISTED_RESULT_BYTES } from '#core/page.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import {
  ACTOR_COLUMNS,
  actorColumns,
  countedRows,
  deletedRows,
  recordManaged,
  recordManagedOfMany,
  storeRemoved,
} from '#api/identity/index.ts'
import type { TrialRows } from '#api/identity/index.ts'
import { visibleDomainCondition, type TaskCaller, type VisibleDomainKeys } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { HELD_MODULES, insertTasks, type KnownModule, type NewTask } from './new-tasks.ts'
import { noteTasks } from './notes.ts'
import { areStill } from './pauses.ts'
import { releaseBytesOf } from './run-bytes.ts'
import { RESULT_BYTES } from './runs.ts'
import { fromModuleRow, type ModuleFacts, type ModuleRow } from './catalogue.ts'
import type { RunIf } from '../model/result-references.ts'
import { TASK_COLUMNS, TASK_FIELDS, type TaskColumn, type TaskFields } from '../model/task-fields.ts'
import {
  clearRefusals,
  releaseTask,
  removeLettersOf,
  writeTrigger,
  type TaskErrorSource,
  type TriggerRule,
} from '#queues/index.ts'

/** Derived values that are stored besides the fields. */
export type TaskExtras = {
  /** The next tick of the schedule; null: no schedule, or no further tick. */
  nextTickAt: Date | null
  /** The rule of the trigger with the key of its channel; null: none. */
  triggerRule: TriggerRule | null
  /** Sealed; null: none. */
  secrets: Buffer | null
  secretNames: readonly string[]
}

/** What was refused outside of a request since the last success; see `task_errors`. */
export type LastError = { at: string; reason: string; count: number; source: TaskErrorSource }

/** Its newest run. `at`: its end, or its creation while it has not ended. */
export type LastRun = { id: string; state: TaskState; at: string }

export type TriggerStatus = {
  matched: number
  dropped: number
  dropped_reason: string | null
  last_match_at: string | null
  expired: number
  /** Arrival of the first message that it has not taken; null: it is not behind. */
  behind_since: string | null
}

/** Facts about a task besides its fields; the names are those of the database. */
type TaskFacts = {
  key: number
  id: string
  domain_id: string | null
  user_key: number | null
  state: TaskState
  next_tick_at: string | null
  /** Times of its schedule that started no run. */
  missed_ticks: number
  /** Since when its worker starts its ticks; null: a manager does. */
  offline_since: string | null
  paused_at: string | null
  /** Id of the user whose rights it uses; null: it uses none, or they were deleted. */
  granted_by: string | null
  trigger_status: TriggerStatus | null
  last_error: LastError | null
  /** A person must change something before that succeeds again. */
  needs_action: boolean | null
  /** The last run of a task with a trigger or a schedule, or that answers commands. */
  last_run: LastRun | null
  secret_names: string[]
  workflow_id: string | null
  depends_on: string[]
  run_if: RunIf
  run_key: number | null
  run_id: string | null
  /** The results of the last run; null also for an omitted result, whose size is in `result_bytes`. */
  results: unknown
  result_bytes: number | null
  error: string | null
  reason: string | null
  start_time: string | null
  finish_time: string | null
  created_at: string
  updated_at: string | null
}

export type TaskRecord = TaskFields & TaskFacts & { module: ModuleFacts | null }

/** The immutable part of a task. */
export type TaskIdentity = { key: number; id: string; domainId: string | null }

type TaskRow = TaskFields & TaskFacts & Omit<ModuleRow, 'key'> & { module_key: number | null }

/** The result of its last run, if it is shown. */
const resultIf = (isShown: Sql<boolean>) => sql`
  CASE WHEN ${isShown} THEN r.results END AS results, CASE WHEN NOT ${isShown} THEN ${RESULT_BYTES} END AS result_bytes`

/** A list contains the module of a task; its exports and imports, and a long result, are only in the single task. */
const LISTED_TASK = sql`NULL AS exports, NULL AS imports,
  ${resultIf(sql<boolean>`(r.result_digest IS NULL AND ${RESULT_BYTES} <= ${MAX_LISTED_RESULT_BYTES})`)}`
const WHOLE_TASK = sql`m.exports, m.imports, ${resultIf(sql<boolean>`(r.result_digest IS NULL)`)}`

const columnsWith = (description: Sql<unknown>, history: Sql<unknown>) => sql`
  t.key, t.id, t.domain_id, t.user_key, t.state, t.run_key, t.module_key, ${sql.raw(columnsOf(TASK_COLUMNS))}, t.next_tick_at, t.missed_ticks, ${OFFLINE_SINCE},
    t.paused_at, ${GRANTED_BY}, t.secret_names, t.depends_on, t.run_if, t.start_time, t.finish_time, t.created_at, t.updated_at, f.id AS workflow_id,
    CASE WHEN g.task_key IS NOT NULL THEN json_build_object('matched', g.matched, 'dropped', g.dropped,
      'dropped_reason', g.dropped_reason, 'last_match_at', g.last_match_at, 'expired', g.expired, 'behind_since', g.behind_since) END AS trigger_status,
    r.id AS run_id, r.error, r.reason, m.digest, m.size_bytes, m.kind, m.runtime, ${history}, ${description}`

/** Looked up only for an offline task. */
const OFFLINE_SINCE = sql`(SELECT o.granted_at FROM offline_tasks o
    WHERE t.offline AND o.task_key = t.key AND o.task_version = coalesce(t.updated_at, t.created_at)) AS offline_since`

/** The user is looked up only for a task that uses channels. */
const GRANTED_BY = sql`(SELECT u.id FROM users u WHERE u.key = t.user_key
    AND (t.trigger IS NOT NULL OR t.publish_result IS NOT NULL OR json_array_length(t.grants) > 0 OR t.answers IS NOT NULL)) AS granted_by`

const OTHERS = sql`LEFT JOIN modules m ON m.key = t.module_key LEFT JOIN runs r ON r.key = t.run_key
    LEFT JOIN workflows f ON f.key = t.workflow_key LEFT JOIN task_triggers g ON g.task_key = t.key`
/**
 * What happened to a task outside of requests. One look-up in an index per task each, and none of runs for a task that is started by
 * hand. Parts of a broadcast are no runs of their own.
 */
const HISTORY = sql`
  (SELECT json_build_object('id', l.id, 'state', l.state, 'at', coalesce(l.finished_at, l.created_at)) FROM runs l
    WHERE (t.trigger IS NOT NULL OR t.schedule IS NOT NULL OR t.answers IS NOT NULL) AND l.task_key = t.key AND l.parent_id IS NULL
    ORDER BY l.key DESC LIMIT 1) AS last_run, e.last_error, e.needs_action`
const WITH_HISTORY = sql`${OTHERS} LEFT JOIN LATERAL (
  SELECT (array_agg(json_build_object('at', e.at, 'reason', e.reason, 'count', e.count, 'source', e.source) ORDER BY e.at DESC))[1]
      AS last_error, bool_or(e.needs_action) AS needs_action
    FROM task_errors e WHERE e.task_key = t.key) e ON true`

const tasksWith = (description: Sql<unknown>) =>
  sql`SELECT ${columnsWith(description, HISTORY)} FROM tasks t ${WITH_HISTORY}`

/** Columns of `tasks t`. */
export function columnsOf(columns: readonly string[]): string {
  return columns.map((column) => `t.${column}`).join(', ')
}

function fromRow({
  module_key: key,
  digest,
  size_bytes,
  kind,
  runtime,
  exports,
  imports,
  ...task
}: TaskRow): TaskRecord {
  const module = key === null ? null : fromModuleRow({ key, digest, size_bytes, kind, runtime, exports, imports })
  return { ...task, module }
}

const fromListedRow = (row: TaskRow): TaskRecord => fromRow({ ...row, exports: [], imports: [] })

/** Changes with every change of what is shown of a task: its row, its last runs, the counts of its trigger and its refusals. */
const VERSION = sql`concat_ws(' ', t.xmin, coalesce(r.xmin::text, '-'), coalesce(g.xmin::text, '-'), coalesce((
  SELECT l.key || ' ' || l.xmin FROM runs l
   WHERE (t.trigger IS NOT NULL OR t.schedule IS NOT NULL OR t.answers IS NOT NULL) AND l.task_key = t.key AND l.parent_id IS NULL
   ORDER BY l.key DESC LIMIT 1), '-'), (
  SELECT string_agg(e.xmin::text, ',' ORDER BY e.source) FROM task_errors e WHERE e.task_key = t.key))`
/** What a version is made of. */
const VERSIONED = sql`LEFT JOIN runs r ON r.key = t.run_key LEFT JOIN task_triggers g ON g.task_key = t.key`

/** A task as it was read. It is never changed. */
export type KnownTask = { version: string; task: TaskRecord }

/**
 * Finds tasks by key; a missing task is left out. Each key is looked up on its own, so that the plan of the prepared statement is the same
 * for any number of keys and of tasks: PostgreSQL estimates a hundred elements, and would read all tasks of a small table for them.
 */
export async function findTasks(db: Queryable, keys: readonly number[]): Promise<Map<number, KnownTask>> {
  const select = sql<
    TaskRow & { version: string }
  >`SELECT ${columnsWith(WHOLE_TASK, HISTORY)}, ${VERSION} AS version FROM tasks t ${WITH_HISTORY}`
  const rows = await lookUp(db, 'find-tasks', select, keys)
  return new Map(rows.map(({ version, ...row }) => [row.key, { version, task: fromRow(row) }]))
}

/** The versions of these tasks, by key: much less work than reading them. */
export async function findVersions(db: Queryable, keys: readonly number[]): Promise<Map<number, string>> {
  const select = sql<{ key: number; version: string }>`SELECT t.key, ${VERSION} AS version FROM tasks t ${VERSIONED}`
  const rows = await lookUp(db, 'find-versions', select, keys)
  return new Map(rows.map(({ key, version }) => [key, version]))
}

async function lookUp<Row>(db: Queryable, name: string, select: Sql<Row>, keys: readonly number[]): Promise<Row[]> {
  const [only, ...others] = keys
  const statement =
    others.length === 0
      ? sql<Row>`${select} WHERE t.key = ${only ?? null}`
      : sql<Row>`SELECT found.* FROM json_array_elements_text(${JSON.stringify(keys)}::json) AS asked (key)
          CROSS JOIN LATERAL (${select} WHERE t.key = asked.key::bigint LIMIT 1) found`
  const { rows } = await statement.executePrepared(db, others.length === 0 ? `${name}: one` : name)
  return rows
}

/** What callers wait for: `runKey` of the run that the state of the task follows, or the start of its step in a workflow that runs. */
export type OpenRun = { runKey: number | null; isStepDue: boolean }

export async function findOpenRun(db: Queryable, key: number): Promise<OpenRun> {
  const { rows } = await sql<OpenRun>`
    SELECT CASE WHEN NOT ${AT_REST} THEN t.run_key END AS "runKey", EXISTS (
      SELECT FROM workflow_runs f JOIN workflow_steps s ON s.workflow_run_key = f.key AND s.task_key = t.key
       WHERE f.workflow_key = t.workflow_key AND f.next_check_at IS NOT NULL
         AND (s.state = ${TASK_STATE.pending}
           OR (s.state = ${TASK_STATE.scheduled} AND NOT EXISTS (SELECT FROM runs r WHERE r.id = s.run_id)))) AS "isStepDue"
      FROM tasks t WHERE t.key = ${key}`.executePrepared(db, 'find-open-run')
  return rows[0] ?? { runKey: null, isStepDue: false }
}

/** The tasks of a workflow in the given order, as many as fit on a page; `total`: their number. */
export async function listTasksOf(db: Queryable, workflowKey: number): Promise<{ total: number; tasks: TaskRecord[] }> {
  const { rows } = await withinPage(
    sql<TaskRow>`${tasksWith(LISTED_TASK)} WHERE t.workflow_key = ${workflowKey} ORDER BY t.key`,
  ).execute(db)
  return { total: rows[0]?.page_rows ?? 0, tasks: rows.map(fromListedRow) }
}

export async function findIdentity(db: Queryable, id: string): Promise<TaskIdentity | undefined> {
  const { rows } = await sql<{ key: number; id: string; domain_id: string | null }>`
    SELECT key, id, domain_id FROM tasks WHERE id = ${id}`.executePrepared(db, 'identify-task')
  const row = rows[0]
  return row === undefined ? undefined : { key: row.key, id: row.id, domainId: row.domain_id }
}

const NOTE = sql.raw(noteTasks('changed'))

/**
 * Returns the task with its trigger; undefined, when there is no module with this digest. It runs in the transaction that stores the
 * module, and for a task with a trigger.
 */
export async function insertTask(tx: Transaction, given: NewTask): Promise<TaskRecord | undefined> {
  const [task] = await insertTasks(tx, [given])
  const { triggerRule } = given.row
  if (task === undefined || triggerRule === null) return task
  await writeTrigger(tx, task.key, triggerRule)
  return (await findTasks(tx, [task.key])).get(task.key)?.task
}

/** A value as it is stored in its column. */
function stored(column: TaskColumn, value: unknown): Sql {
  const { json }: { json?: string } = TASK_FIELDS[column]
  if (json === undefined) return sql`${value}`
  return sql`${value === null ? null : JSON.stringify(value)}::${sql.raw(json)}`
}

const AT_REST = sql<boolean>`t.state NOT IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})`
// An edited task is reset to a new one; its runs stay in the listing.
const AS_NEW = sql`state = ${TASK_STATE.pending}, run_key = NULL, start_time = NULL, finish_time = NULL, updated_at = now()`

/** What an update sets. */
export type TaskChange = {
  fields: Partial<TaskFields>
  extras: Partial<TaskExtras>
  /** An uploaded module, which clears the image reference. */
  moduleKey?: number | undefined
}

/** The permission for a change, as it was found; see `grantorAfter`. */
export type Permission = {
  before: Pick<TaskRecord, 'user_key' | 'trigger' | 'publish_result' | 'grants' | 'answers' | 'secret_names'>
  /** The user whose rights the task uses from now on; undefined: the same as before. */
  grantorKey: number | undefined
}

/** Condition on `tasks t`: what the permission was about is unchanged, so that two changes at the same time lend no rights. */
const isAsChecked = ({ before }: Permission) =>
  sql<boolean>`(t.user_key IS NOT DISTINCT FROM ${before.user_key} AND t.secret_names = ${[...before.secret_names]}::text[]
    AND ${areStill(before)})`

/** The caller who changes a task, and the attributes of the change in the journal. */
export type RecordedChange = { caller: TaskCaller; attributes: Readonly<Record<string, unknown>> }

const recordUpdate = ({ caller, attributes }: RecordedChange) =>
  recordManaged(actorOf(caller), { type: 'task', change: 'update', attributes })

/** False if the task is active or deleted, or was changed meanwhile. An image reference clears the uploaded module. */
export async function updateTask(
  tx: Transaction,
  key: number,
  { fields, extras, moduleKey }: TaskChange,
  { change, permission }: { change: RecordedChange; permission: Permission },
): Promise<boolean> {
  const { image_url: imageUrl, ...others } = fields
  const sets = (Object.entries(others) as [TaskColumn, unknown][]).map(
    ([column, value]) => sql`${sql.ref(column)} = ${stored(column, value)}`,
  )
  if (moduleKey !== undefined) sets.push(sql`module_key = ${moduleKey}, image_url = NULL`)
  else if (imageUrl !== undefined) sets.push(sql`image_url = ${imageUrl}`)
  if (moduleKey === undefined && typeof imageUrl === 'string') sets.push(sql`module_key = NULL`)
  if (extras.nextTickAt !== undefined) sets.push(sql`next_tick_at = ${extras.nextTickAt}`)
  if (extras.secrets !== undefined) sets.push(sql`secrets = ${extras.secrets}`)
  if (extras.secretNames !== undefined) sets.push(sql`secret_names = ${[...extras.secretNames]}::text[]`)
  const { grantorKey } = permission
  if (grantorKey !== undefined) sets.push(sql`user_key = ${grantorKey}, paused_at = NULL`)
  const { rows } =
    await sql`WITH changed AS (UPDATE tasks t SET ${sql.join([...sets, AS_NEW])} WHERE t.key = ${key} AND ${AT_REST}
        AND ${isAsChecked(permission)}
      RETURNING t.key, t.id, t.name, t.domain_key, t.state), noted AS (${NOTE}), recorded AS (${recordUpdate(change)})
      SELECT key FROM changed`.execute(tx)
  if (rows.length === 0) return false
  if (grantorKey !== undefined) await releaseTask(tx, key, grantorKey)
  if (extras.triggerRule !== undefined) await writeTrigger(tx, key, extras.triggerRule)
  // What was refused for a field that is another now can not succeed any more.
  const isElsewhere = fields.publish_result !== undefined || fields.grants !== undefined
  if (fields.schedule !== undefined) await clearRefusals('schedule', [key]).execute(tx)
  if (isElsewhere) await clearRefusals('publication', [key]).execute(tx)
  return true
}

/** Whether a process is alive that offers each command to its device, because it does not know that tasks answer some. */
export async function hasNodesThatOfferAll(db: Queryable): Promise<boolean> {
  const { rows } = await sql<{ found: boolean }>`SELECT ${hasOlderNodes('commands_of_tasks')} AS found`.execute(db)
  return rows[0]?.found === true
}

/** A task that uses no rights of a user and has no secrets: who may change it may change its code. */
const IS_PLAIN = sql<boolean>`(t.trigger IS NULL AND t.publish_result IS NULL AND t.grants::text = '[]' AND t.answers IS NULL
  AND cardinality(t.secret_names) = 0)`

/** True if a task that was read is plain, as `IS_PLAIN` defines it. */
export function isPlainTask(
  task: Pick<TaskRecord, 'trigger' | 'publish_result' | 'grants' | 'answers' | 'secret_names'>,
): boolean {
  const usesChannels = task.trigger !== null || task.publish_result !== null || task.grants.length > 0
  return !usesChannels && task.answers === null && task.secret_names.length === 0
}

/** A module for a plain task. `memoryLimitBytes` is the limit of the task with which it was validated. */
export type GivenModule = { taskKey: number; memoryLimitBytes: number; module: KnownModule; caller: TaskCaller }

/**
 * The outcome of an upload: the changed task; `no module`: none with this digest is stored; `no task`: the task is active or deleted, is
 * not plain, or has another memory limit.
 */
export type ModuleOutcome = TaskRecord | 'no module' | 'no task'

/**
 * Gives modules that are stored to tasks, each of which is named once, and clears their image references. Returns the outcomes in the
 * same order.
 */
export async function setModules(db: Queryable, given: readonly GivenModule[]): Promise<ModuleOutcome[]> {
  const items = JSON.stringify(
    // This is the order in which other writers lock tasks.
    given
      .toSorted((left, right) => left.taskKey - right.taskKey)
      .map(({ taskKey, memoryLimitBytes, module, caller }) => ({
        task_key: taskKey,
        memory_limit_bytes: memoryLimitBytes,
        module_digest: module.digest,
        ...actorColumns(actorOf(caller)),
      })),
  )
  const { rows } = await sql<TaskRow & { task_key: number; is_held: boolean; is_changed: boolean }>`
    WITH given AS MATERIALIZED (SELECT * FROM json_to_recordset(${items}::json) AS n (task_key bigint, memory_limit_bytes bigint,
      module_digest text, ${ACTOR_COLUMNS})),
    held AS (${HELD_MODULES}),
    before AS (SELECT n.*, h.key AS module_key, b.digest FROM given n JOIN held h ON h.digest = n.module_digest
      CROSS JOIN LATERAL (SELECT (SELECT m.digest FROM modules m WHERE m.key = t.module_key) AS digest FROM tasks t
        WHERE t.key = n.task_key AND t.memory_limit_bytes = n.memory_limit_bytes AND ${AT_REST} AND ${IS_PLAIN} FOR NO KEY UPDATE) b),
    changed AS (UPDATE tasks t SET module_key = (SELECT b.module_key FROM before b WHERE b.task_key = t.key), image_url = NULL, ${AS_NEW}
      WHERE t.key = ANY (ARRAY(SELECT b.task_key FROM before b)) RETURNING t.*),
    noted AS (${NOTE}),
    acted AS (SELECT c.key, c.id, c.name, c.domain_key, n.actor_kind, n.actor_key, n.actor_id, n.address, n.request_id, n.token_type,
        n.super_admin, CASE WHEN n.digest = n.module_digest THEN '{"before": {}, "after": {}}' ELSE jsonb_build_object(
          'before', jsonb_build_object('module', n.digest), 'after', jsonb_build_object('module', n.module_digest)) END AS attributes
      FROM changed c JOIN before n ON n.task_key = c.key),
    recorded AS (${recordManagedOfMany({ type: 'task', change: 'update' }, 'acted')})
    SELECT n.task_key, EXISTS (SELECT FROM held h WHERE h.digest = n.module_digest) AS is_held, t.key IS NOT NULL AS is_changed, t.*
      FROM given n LEFT JOIN LATERAL (SELECT ${columnsWith(LISTED_TASK, HISTORY)} FROM changed t ${WITH_HISTORY} WHERE t.key = n.task_key LIMIT 1) t ON true`.executePrepared(
    db,
    'set-modules',
  )
  const found = new Map(rows.map((row) => [row.task_key, row]))
  return given.map(({ taskKey, module }) => {
    const row = found.get(taskKey)
    if (row === undefined) throw new Error('a row of the statement is missing')
    const { task_key: _key, is_held: isHeld, is_changed: isChanged, ...task } = row
    if (!isHeld) return 'no module'
    return isChanged ? fromRow({ ...task, exports: module.exports, imports: module.imports }) : 'no task'
  })
}

/** False if the task is active or deleted, or was changed meanwhile. An upload clears the image reference. */
export async function setModule(
  tx: Transaction,
  key: number,
  moduleKey: number,
  { change, permission }: { change: RecordedChange; permission: Permission },
): Promise<boolean> {
  const { grantorKey } = permission
  const { rows } = await sql`
    WITH changed AS (UPDATE tasks t SET module_key = ${moduleKey}, image_url = NULL,
        user_key = coalesce(${grantorKey ?? null}, user_key),
        paused_at = CASE WHEN ${grantorKey ?? null}::bigint IS NULL THEN paused_at END, ${AS_NEW}
      WHERE t.key = ${key} AND ${AT_REST} AND ${isAsChecked(permission)} RETURNING t.key, t.id, t.name, t.domain_key, t.state), noted AS (${NOTE}),
      recorded AS (${recordUpdate(change)})
    SELECT key FROM changed`.executePrepared(tx, 'set-module')
  if (rows.length === 0) return false
  if (grantorKey !== undefined) await releaseTask(tx, key, grantorKey)
  return true
}

const INACTIVE = sql<boolean>`${AT_REST}
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.task_key = t.key AND r.next_check_at IS NOT NULL)`

/** False if a run of it is active, it belongs to a workflow, or it is deleted. */
export async function deleteTask(database: Database, key: number, caller: TaskCaller): Promise<boolean> {
  const work = sql`WITH changed AS (DELETE FROM tasks t WHERE t.key = ${key} AND ${INACTIVE} AND t.workflow_key IS NULL
    RETURNING t.key, t.id, t.name, t.domain_key), removed AS (${sql.raw(storeRemoved('task'))}),
      recorded AS (${recordManaged(actorOf(caller), { type: 'task', change: 'remove' })}), letters AS (${removeLettersOf('changed')}), ${releaseBytesOf('changed')}
    SELECT key FROM changed`.execute(database.db)
  const { rows } = await refusing({}, work)
  return rows.length === 1
}

/** What `deleteTask` would delete; undefined where it would return false. `isForced`: its runs are stopped first. */
export async function countWithTask(
  { db }: Database,
  key: number,
  isForced: boolean,
): Promise<{ name: string; rows: TrialRows[] } | undefined> {
  const { rows } = await sql<{ name: string; runs: number; triggers: number; replays: number }>`
    SELECT t.name, ${countedRows(sql`SELECT FROM runs r WHERE r.task_key = t.key`)} AS runs,
           ${countedRows(sql`SELECT FROM task_triggers g WHERE g.task_key = t.key`)} AS triggers,
           ${countedRows(sql`SELECT FROM task_replays p WHERE p.task_key = t.key`)} AS replays
      FROM tasks t WHERE t.key = ${key} AND t.workflow_key IS NULL AND ${isForced ? sql`true` : INACTIVE}`.execute(db)
  const [found] = rows
  if (found === undefined) return undefined
  const { name, runs, triggers, replays } = found
  return { name, rows: deletedRows({ tasks: 1, runs, task_triggers: triggers, task_replays: replays }) }
}

export type TaskFilter = PageRange & {
  domains: VisibleDomainKeys
  state?: number | undefined
  name?: string | undefined
  metadata?: Readonly<Record<string, unknown>> | undefined
  workerId?: string | undefined
  channelId?: string | undefined
  hasTrigger?: boolean | undefined
  order: string
  dir: 'asc' | 'desc'
}

const UPDATED_AT: SortColumn = { by: sql`coalesce(t.updated_at, t.created_at)`, type: 'time' }
const ORDERS: Readonly<Record<string, readonly SortColumn[]>> = {
  name: [{ by: sql`t.name`, type: 'text' }],
  created_at: [],
  updated_at: [UPDATED_AT],
}

const DEFAULT_ORDER = 'updated_at'

function keysetOf({ order, dir }: TaskFilter): Keyset {
  const created: SortColumn[] = [
    { by: sql`t.created_at`, type: 'time' },
    { by: sql`t.id`, type: 'uuid' },
  ]
  return new Keyset([...(ORDERS[order] ?? [UPDATED_AT]), ...created], dir)
}

/** Tells apart the statements of pages without a filter, which are prepared: parsing one takes as long as reading its rows. */
function nameOf({ domains, order, dir, cursor }: TaskFilter): string {
  const of = typeof domains === 'string' ? domains : domains.length === 1 ? 'one domain' : 'domains'
  const by = Object.hasOwn(ORDERS, order) ? order : DEFAULT_ORDER
  return `tasks of ${of} by ${by} ${dir}${cursor === undefined ? '' : ' after a place'}`
}

/** The sealed secrets of a task, for a partial change. */
export async function findSecrets(db: Queryable, key: number): Promise<Buffer | null> {
  const { rows } = await sql<{ secrets: Buffer | null }>`SELECT secrets FROM tasks WHERE key = ${key}`.execute(db)
  return rows[0]?.secrets ?? null
}

/** Condition on the table `alias` of tasks: a trigger, a target of results or a grant names the channel. */
export function namesChannel(alias: string, channelId: string): Sql<boolean> {
  const column = (name: string) => sql.ref(`${alias}.${name}`)
  return sql<boolean>`(${column('trigger')} ->> 'channel_id' = ${channelId} OR ${column('publish_result')} ->> 'channel_id' = ${channelId}
    OR ${column('grants')}::jsonb @> jsonb_build_array(jsonb_build_object('channel_id', ${channelId}::text)))`
}

type ListedRow = { key: number; version: string }

export type KnownListedTasks = { get(key: number): KnownTask | undefined; set(key: number, known: KnownTask): unknown }

/** Rows are read only for tasks that have changed since they are known. */
export async function listTasks(
  db: Queryable,
  filter: TaskFilter,
  known: KnownListedTasks = new Map(),
): Promise<{ total: number; tasks: TaskRecord[]; next: PageEnd }> {
  const conditions: Sql<boolean>[] = [visibleDomainCondition(sql`t.domain_key`, filter.domains)]
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
  if (filter.hasTrigger !== undefined)
    conditions.push(filter.hasTrigger ? sql`t.trigger IS NOT NULL` : sql`t.trigger IS NULL`)
  if (filter.channelId !== undefined) conditions.push(namesChannel('t', filter.channelId))
  const where = sql<boolean>`${sql.join(conditions, sql` AND `)}`
  const name = conditions.length === 1 ? nameOf(filter) : undefined
  const joined = { alias: 't', key: 'key', tables: VERSIONED }
  const source = { columns: sql`t.key, ${VERSION} AS version`, from: sql`tasks t`, where, joined, name }
  const [page, counted] = await Promise.all([
    readPage<ListedRow>(db, { ...source, keyset: keysetOf(filter) }, filter),
    sql<{ total: number }>`SELECT count(*) AS total FROM tasks t WHERE ${where}`.execute(db),
  ])
  return { total: counted.rows[0]?.total ?? 0, ...(await readListed(db, page, known)) }
}

/** The rows of a page, as many as fit. A task that was deleted meanwhile is left out. */
async function readListed(
  db: Queryable,
  { rows, next }: { rows: readonly ListedRow[]; next: PageEnd },
  known: KnownListedTasks,
): Promise<{ tasks: TaskRecord[]; next: PageEnd }> {
  const found = new Map<number, TaskRecord>()
  const missing: number[] = []
  for (const { key, version } of rows) {
    const one = known.get(key)
    if (one?.version === version) found.set(key, one.task)
    else missing.push(key)
  }
  const read = missing.length === 0 ? [] : await readRows(db, missing)
  for (const { version, page_place: _place, page_bytes: _bytes, page_rows: _rows, ...row } of read) {
    const task = fromListedRow(row)
    found.set(task.key, task)
    known.set(task.key, { version, task })
  }
  const isCut = read.length > 0 && read.length < (read[0]?.page_rows ?? 0)
  const end = isCut ? rows.findIndex(({ key }) => !found.has(key)) : rows.length
  const shown = [...rows.keys()].slice(0, end).filter((index) => found.has(rows[index]?.key ?? 0))
  const tasks = shown.map((index) => found.get(rows[index]?.key ?? 0) as TaskRecord)
  if (shown.length === rows.length) return { tasks, next }
  return { tasks, next: { places: shown.map((index) => next.places[index] as string), hasMore: isCut || next.hasMore } }
}

async function readRows(db: Queryable, keys: readonly number[]) {
  const { rows } = await withinPage(sql<TaskRow & { version: string; page_place: number; page_bytes: number }>`
    SELECT ${columnsWith(LISTED_TASK, HISTORY)}, ${VERSION} AS version
      FROM unnest(${[...keys]}::bigint[]) WITH ORDINALITY AS asked (key, place) JOIN tasks t ON t.key = asked.key ${WITH_HISTORY}
     ORDER BY asked.place`).executePrepared(db, 'read-listed-tasks')
  return rows
}

export function taskChanged(): ServiceError {
  return new ServiceError('invalid_state', 'the task was changed concurrently; try again')
}

export function taskUnderWay(): ServiceError {
  return new ServiceError('invalid_state', 'the task is scheduled or running: stop it before you change it')
}
