/** Reads and locks tasks to be started, with their modules, in the transaction of the start. */
import { MODULE_COLUMNS } from '../store/catalogue.ts'
import type { ModuleRow } from '../store/catalogue.ts'
import { START_COLUMNS } from '../model/task-fields.ts'
import { columnsOf } from '../store/tasks.ts'
import type { RunBatch } from './batch.ts'
import type { StartTask, StartTasks } from './known-tasks.ts'
import type { StartRequest } from '../model/start.ts'

// A start changes the task, so its row is locked first, in key order. An invocation does not change it; the reference
// from the run protects it against deletion.
const READ_TASKS = `
  SELECT t.key, t.id, t.domain_key, t.domain_id, t.user_key, t.state, t.module_key, t.secrets, t.paused_at, t.xmin::text AS version,
    ${columnsOf(START_COLUMNS)} FROM tasks t WHERE t.id = ANY($1::uuid[])`
const LOCK_TASKS = `SELECT key FROM tasks WHERE id = ANY($1::uuid[]) ORDER BY key FOR NO KEY UPDATE`
const READ_MODULES = `SELECT ${MODULE_COLUMNS} FROM modules m WHERE m.key = ANY($1::bigint[])`

/** The tasks to be started, and their modules. */
export async function readTasks(batch: RunBatch, requests: readonly StartRequest[]): Promise<StartTasks> {
  const driving = requests.filter((request) => request.drivesTask)
  const locked =
    driving.length === 0
      ? undefined
      : batch.rows('lock-tasks', LOCK_TASKS, [unique(driving.map(({ taskId }) => taskId))])
  // This is sent behind the lock, so that it sees the changes that the lock waited for.
  const read = batch.rows<StartTask>('read-tasks', READ_TASKS, [unique(requests.map(({ taskId }) => taskId))])
  const [rows] = await Promise.all([read, locked])
  const moduleKeys = rows.flatMap((row) => row.module_key ?? [])
  const modules = await batch.context.modules.find(moduleKeys, (missing) =>
    batch.rows<ModuleRow>('read-modules', READ_MODULES, [missing]),
  )
  batch.context.tasks.put(rows, modules)
  return { tasks: new Map(rows.map((row) => [row.id, row])), modules, areFresh: true }
}

function unique(ids: readonly string[]): string[] {
  return [...new Set(ids)]
}
