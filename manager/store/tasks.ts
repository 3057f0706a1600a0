/** SQL of the tasks table, except for the states, which the run writer owns. Converts between rows and domain values. */
import {
  Keyset,
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
import { countedRows, deletedRows, recordManaged, storeRemoved } from '#api/identity/index.ts'
import type { TrialRows } from '#api/identity/index.ts'
import { visibleDomainCondition, type TaskCaller, type VisibleDomainKeys } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { noteTasks } from './notes.ts'
import { RESULT_BYTES } from './runs.ts'
import { fromModuleRow, type ModuleFacts, type ModuleRow } from './catalogue.ts'
import type { RunIf } from '../model/result-references.ts'
import { TASK_COLUMNS, TASK_FIELDS, type TaskColumn, type TaskFields } from '../model/task-fields.ts'
import { writeTrigger, type TriggerRule } from '#queues/index.ts'

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

export type TriggerStatus = {
  matched: number
  dropped: number
  dropped_reason: string | null
  last_match_at: string | null
}

/** Facts about a task besides its fields; the names are those of the database. */
type TaskFacts = {
  key: number
  id: string
  domain_id: string | null
  user_key: number | null
  state: TaskState
  next_tick_at: string | null
  trigger_status: TriggerStatus | null
  secret_names: string[]
  workflow_id: string | null
  depends_on: string[]
  run_if: RunIf
  run_key: number | null
  run_id: string | null
  /** Of the last run; null also for an omitted result, whose size is in `result_bytes`. */
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

const columnsWith = (description: Sql<unknown>) => sql`
  t.key, t.id, t.domain_id, t.user_key, t.state, t.run_key, t.module_key, ${sql.raw(columnsOf(TASK_COLUMNS))}, t.next_tick_at,
    t.secret_names, t.depends_on, t.run_if, t.start_time, t.finish_time, t.created_at, t.updated_at, f.id AS workflow_id,
    CASE WHEN g.task_key IS NOT NULL THEN json_build_object('matched', g.matched, 'dropped', g.dropped,
      'dropped_reason', g.dropped_reason, 'last_match_at', g.last_match_at) END AS trigger_status,
    r.id AS run_id, r.error, r.reason, m.digest, m.size_bytes, m.kind, m.runtime, ${description}`

const OTHERS = sql`LEFT JOIN modules m ON m.key = t.module_key LEFT JOIN runs r ON r.key = t.run_key
    LEFT JOIN workflows f ON f.key = t.workflow_key LEFT JOIN task_triggers g ON g.task_key = t.key`
const FROM = sql`tasks t ${OTHERS}`

const tasksWith = (description: Sql<unknown>) => sql`SELECT ${columnsWith(description)} FROM ${FROM}`

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

export async function findTask(db: Queryable | Transaction, key: number): Promise<TaskRecord | undefined> {
  const { rows } = await sql<TaskRow>`${tasksWith(WHOLE_TASK)} WHERE t.key = ${key}`.executePrepared(db, 'find-task')
  const row = rows[0]
  return row === undefined ? undefined : fromRow(row)
}

/** The key of the run that the state of the task follows; null: it is not under way, or there is no such task. */
export async function findOpenRun(db: Queryable, key: number): Promise<number | null> {
  const { rows } = await sql<{ run_key: number | null }>`
    SELECT run_key FROM tasks t WHERE key = ${key} AND NOT ${AT_REST}`.executePrepared(db, 'find-open-run')
  return rows[0]?.run_key ?? null
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

export type NewTaskRow = TaskFields &
  TaskExtras & {
    id: string
    domain: { key: number; id: string } | null
    caller: TaskCaller
    workflow: { key: number; dependsOn: readonly string[]; runIf: RunIf } | null
  }

/**
 * Returns the task; undefined, when there is no module with this digest. With a trigger, in a transaction. A module replaces the
 * image reference.
 */
export async function insertTask(
  db: Queryable | Transaction,
  given: NewTaskRow,
  moduleDigest: string | null,
): Promise<TaskRecord | undefined> {
  const task = moduleDigest === null ? given : { ...given, image_url: null }
  const { id, domain, caller, workflow, triggerRule } = task
  const { rows } = await sql<TaskRow>`
    WITH held AS (SELECT key FROM modules WHERE digest = ${moduleDigest} FOR KEY SHARE),
    changed AS (INSERT INTO tasks (id, module_key, domain_key, domain_id, user_key, next_tick_at, secrets, secret_names, workflow_key,
      depends_on, run_if, ${sql.raw(TASK_COLUMNS.join(', '))})
    SELECT ${id}, (SELECT key FROM held), ${domain?.key ?? null}, ${domain?.id ?? null}, ${caller?.key ?? null}, ${task.nextTickAt},
      ${task.secrets}, ${[...task.secretNames]}::text[], ${workflow?.key ?? null}, ${[...(workflow?.dependsOn ?? [])]}::text[],
      ${workflow?.runIf ?? 'success'}, ${sql.join(TASK_COLUMNS.map((column) => stored(column, task[column])))}
     WHERE ${moduleDigest === null} OR EXISTS (SELECT FROM held)
    RETURNING *), noted AS (${NOTE}), recorded AS (${recordManaged(actorOf(caller), { type: 'task', change: 'create' })})
    SELECT ${columnsWith(WHOLE_TASK)} FROM changed t ${OTHERS}`.executePrepared(db, 'insert-task')
  const [row] = rows
  if (row === undefined || triggerRule === null) return row === undefined ? undefined : fromRow(row)
  await writeTrigger(db, row.key, triggerRule)
  return await findTask(db, row.key)
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

/** Who changes a task, and the attributes of the change in the journal. */
export type RecordedChange = { caller: TaskCaller; attributes: Readonly<Record<string, unknown>> }

const recordUpdate = ({ caller, attributes }: RecordedChange) =>
  recordManaged(actorOf(caller), { type: 'task', change: 'update', attributes })

/** False if the task is active or deleted. An image reference clears the uploaded module. */
export async function updateTask(
  tx: Transaction,
  key: number,
  { fields, extras, moduleKey }: TaskChange,
  change: RecordedChange,
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
  if (change.caller !== undefined) sets.push(sql`user_key = ${change.caller.key}`)
  const { rows } =
    await sql`WITH changed AS (UPDATE tasks t SET ${sql.join([...sets, AS_NEW])} WHERE t.key = ${key} AND ${AT_REST}
      RETURNING t.key, t.id, t.name, t.domain_key, t.state), noted AS (${NOTE}), recorded AS (${recordUpdate(change)})
      SELECT key FROM changed`.execute(tx)
  if (rows.length === 0) return false
  if (extras.triggerRule !== undefined) await writeTrigger(tx, key, extras.triggerRule)
  return true
}

/** False if the task is active or deleted. An upload clears the image reference. */
export async function setModule(
  tx: Transaction,
  key: number,
  moduleKey: number,
  change: RecordedChange,
): Promise<boolean> {
  const { rows } = await sql`
    WITH changed AS (UPDATE tasks t SET module_key = ${moduleKey}, image_url = NULL,
        user_key = coalesce(${change.caller?.key ?? null}, user_key), ${AS_NEW}
      WHERE t.key = ${key} AND ${AT_REST} RETURNING t.key, t.id, t.name, t.domain_key, t.state), noted AS (${NOTE}),
      recorded AS (${recordUpdate(change)})
    SELECT key FROM changed`.executePrepared(tx, 'set-module')
  return rows.length === 1
}

const INACTIVE = sql<boolean>`${AT_REST}
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.task_key = t.key AND r.next_check_at IS NOT NULL)`

/** False if a run of it is active, it belongs to a workflow, or it is deleted. */
export async function deleteTask(database: Database, key: number, caller: TaskCaller): Promise<boolean> {
  const work = sql`WITH changed AS (DELETE FROM tasks t WHERE t.key = ${key} AND ${INACTIVE} AND t.workflow_key IS NULL
    RETURNING t.key, t.id, t.name, t.domain_key), removed AS (${sql.raw(storeRemoved('task'))}),
      recorded AS (${recordManaged(actorOf(caller), { type: 'task', change: 'remove' })})
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

function keysetOf({ order, dir }: TaskFilter): Keyset {
  const created: SortColumn[] = [
    { by: sql`t.created_at`, type: 'time' },
    { by: sql`t.id`, type: 'uuid' },
  ]
  return new Keyset([...(ORDERS[order] ?? [UPDATED_AT]), ...created], dir)
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

export async function listTasks(
  db: Queryable,
  filter: TaskFilter,
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
  const joined = { alias: 't', tables: OTHERS }
  const source = { columns: columnsWith(LISTED_TASK), from: sql`tasks t`, where, keyset: keysetOf(filter), joined }
  const [{ rows, next }, counted] = await Promise.all([
    readPage<TaskRow>(db, source, filter),
    sql<{ total: number }>`SELECT count(*) AS total FROM tasks t WHERE ${where}`.execute(db),
  ])
  return { total: counted.rows[0]?.total ?? 0, tasks: rows.map(fromListedRow), next }
}

export function taskUnderWay(): ServiceError {
  return new ServiceError('invalid_state', 'the task is scheduled or running: stop it before you change it')
}
