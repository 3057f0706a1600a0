/** Inserts tasks: those of several callers in one statement, with their notes and their records in the journal. */
import { ACTOR_COLUMNS, actorColumns, recordManagedOfMany } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskCaller } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import type { RunIf } from '../model/result-references.ts'
import { TASK_COLUMNS, type TaskColumn, type TaskFields } from '../model/task-fields.ts'
import type { ModuleFacts } from './catalogue.ts'
import { noteTasks } from './notes.ts'
import type { TaskExtras, TaskRecord } from './tasks.ts'

export type NewTaskRow = TaskFields &
  TaskExtras & {
    id: string
    domain: { key: number; id: string } | null
    caller: TaskCaller
    workflow: { key: number; id: string; dependsOn: readonly string[]; runIf: RunIf } | null
  }

/** What is known of a module before it is stored. */
export type KnownModule = Omit<ModuleFacts, 'key'>

/** A row and its module, which replaces the image reference. `json`: the row as the statement reads it. */
export type NewTask = { row: NewTaskRow; module: KnownModule | undefined; json: string }

export function newTask(row: NewTaskRow, module: KnownModule | undefined): NewTask {
  return { row, module, json: JSON.stringify(columnsOf(row, module)) }
}

const TYPES: Readonly<Record<TaskColumn, string>> = {
  name: 'text',
  inputs: 'json',
  cli_args: 'json',
  image_url: 'text',
  function: 'text',
  env: 'json',
  labels: 'jsonb',
  worker_id: 'uuid',
  priority: 'smallint',
  timeout_ms: 'bigint',
  queue_timeout_ms: 'bigint',
  memory_limit_bytes: 'bigint',
  max_output_bytes: 'integer',
  max_attempts: 'smallint',
  backoff_ms: 'bigint',
  on_lost: 'text',
  metadata: 'jsonb',
  broadcast: 'boolean',
  daemon: 'boolean',
  schedule: 'text',
  timezone: 'text',
  catch_up: 'text',
  trigger: 'json',
  publish_result: 'json',
  grants: 'json',
  answers: 'json',
  http: 'json',
  offline: 'boolean',
}

const OTHERS = {
  id: 'uuid',
  domain_key: 'bigint',
  domain_id: 'uuid',
  user_key: 'bigint',
  next_tick_at: 'timestamptz',
  secrets: 'bytea',
  secret_names: 'text[]',
  workflow_key: 'bigint',
  depends_on: 'text[]',
  run_if: 'text',
} as const

const COLUMNS = [...Object.keys(OTHERS), ...TASK_COLUMNS]
const columns = sql.raw(COLUMNS.join(', '))
const types = sql.raw(
  [...Object.entries(OTHERS), ...Object.entries(TYPES)].map(([column, type]) => `${column} ${type}`).join(', '),
)

/** The modules that rows of `given` name, locked against removal: each is looked up on its own, as in `findTasks`. */
export const HELD_MODULES = sql`SELECT n.digest, m.key FROM (SELECT DISTINCT module_digest AS digest FROM given) n
    CROSS JOIN LATERAL (SELECT m.key FROM modules m WHERE m.digest = n.digest FOR KEY SHARE) m`

/** What the database adds to a row, and the form in which it keeps JSON. */
type InsertedRow = Pick<TaskRecord, 'key' | 'id' | 'created_at' | 'next_tick_at' | 'labels' | 'metadata'> & {
  module_key: number | null
}

/**
 * Returns the tasks in the same order; undefined where no module with this digest is stored. A trigger is not written: the caller does that
 * in the same transaction.
 */
export async function insertTasks(db: Queryable, given: readonly NewTask[]): Promise<(TaskRecord | undefined)[]> {
  const rows = `[${given.map(({ json }) => json).join(',')}]`
  const inserted = await sql<InsertedRow>`
    WITH given AS MATERIALIZED (
      SELECT * FROM json_to_recordset(${rows}::json) AS n (${types}, module_digest text, ${ACTOR_COLUMNS})),
    held AS (${HELD_MODULES}),
    changed AS (INSERT INTO tasks (module_key, ${columns})
      SELECT (SELECT h.key FROM held h WHERE h.digest = n.module_digest), ${columns} FROM given n
       WHERE n.module_digest IS NULL OR n.module_digest IN (SELECT h.digest FROM held h)
      RETURNING key, id, name, domain_key, state, module_key, created_at, next_tick_at, labels, metadata),
    noted AS (${sql.raw(noteTasks('changed'))}),
    acted AS (SELECT c.key, c.id, c.name, c.domain_key, NULL::jsonb AS attributes, n.actor_kind, n.actor_key, n.actor_id, n.address,
      n.request_id, n.token_type, n.super_admin FROM changed c JOIN given n ON n.id = c.id),
    recorded AS (${recordManagedOfMany({ type: 'task', change: 'create' }, 'acted')})
    SELECT key, id, created_at, next_tick_at, labels, metadata, module_key FROM changed`.executePrepared(
    db,
    'insert-tasks',
  )
  const byId = new Map(inserted.rows.map((row) => [row.id, row]))
  return given.map((one) => {
    const row = byId.get(one.row.id)
    return row === undefined ? undefined : recordOf(one, row)
  })
}

/** One row of the statement. An absent column is NULL. */
function columnsOf(row: NewTaskRow, module: KnownModule | undefined): Record<string, unknown> {
  const { domain, caller, workflow, secrets, triggerRule: _rule, nextTickAt, secretNames, ...fields } = row
  return {
    ...fields,
    image_url: module === undefined ? fields.image_url : null,
    domain_key: domain?.key,
    domain_id: domain?.id,
    user_key: caller?.key,
    next_tick_at: nextTickAt,
    secrets: secrets === null ? null : `\\x${secrets.toString('hex')}`,
    secret_names: secretNames,
    workflow_key: workflow?.key,
    depends_on: workflow?.dependsOn ?? [],
    run_if: workflow?.runIf ?? 'success',
    module_digest: module?.digest,
    ...actorColumns(actorOf(caller)),
  }
}

/** A task as it is read right after it was inserted. */
function recordOf({ row, module }: NewTask, inserted: InsertedRow): TaskRecord {
  const {
    domain,
    caller,
    workflow,
    secrets: _secrets,
    triggerRule: _rule,
    nextTickAt: _tick,
    secretNames,
    ...fields
  } = row
  const { module_key: moduleKey, ...ofDatabase } = inserted
  return {
    ...fields,
    image_url: module === undefined ? fields.image_url : null,
    ...ofDatabase,
    domain_id: domain?.id ?? null,
    user_key: caller?.key ?? null,
    state: TASK_STATE.pending,
    paused_at: null,
    granted_by: isPlain(fields) ? null : (caller?.id ?? null),
    missed_ticks: 0,
    offline_since: null,
    trigger_status: null,
    last_error: null,
    needs_action: null,
    last_run: null,
    secret_names: [...secretNames],
    workflow_id: workflow?.id ?? null,
    depends_on: [...(workflow?.dependsOn ?? [])],
    run_if: workflow?.runIf ?? 'success',
    module: module === undefined || moduleKey === null ? null : { ...factsOf(module), key: moduleKey },
    run_key: null,
    run_id: null,
    results: null,
    result_bytes: null,
    error: null,
    reason: null,
    start_time: null,
    finish_time: null,
    updated_at: null,
  }
}

/** It uses no rights of a user. */
const isPlain = ({ trigger, publish_result: target, grants, answers }: TaskFields) =>
  trigger === null && target === null && grants.length === 0 && answers === null

/** The facts alone: the bytes are not kept with the task. */
function factsOf({ digest, sizeBytes, kind, runtime, exports, imports }: KnownModule): KnownModule {
  return { digest, sizeBytes, kind, runtime, exports, imports }
}
