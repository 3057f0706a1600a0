/** What an offline task requires and excludes: everything that a worker would need a task manager for. */
import { refusedField } from '#core/errors/index.ts'
import { usesState } from '#guests/wasm/index.ts'
import type { TaskFields } from '../model/task-fields.ts'
import type { TaskRecord } from '../store/tasks.ts'

/** A task as it will be. `module`: null if it was not read. */
export type OfflineCandidate = Pick<
  TaskFields,
  | 'offline'
  | 'schedule'
  | 'worker_id'
  | 'broadcast'
  | 'daemon'
  | 'trigger'
  | 'publish_result'
  | 'grants'
  | 'answers'
  | 'http'
> & {
  secretNames: readonly string[]
  isInWorkflow: boolean
  module: Pick<NonNullable<TaskRecord['module']>, 'imports'> | null
}

/** Throws `malformed` with the field that an offline task must have or must not have. */
export function requireOffline(task: OfflineCandidate): void {
  if (!task.offline) return
  if (task.isInWorkflow) throw refusedField('/offline', 'must not be true in a workflow: its engine starts the tasks')
  if (task.schedule === null) throw refusedField('/schedule', 'must be set for an offline task')
  if (task.worker_id === null)
    throw refusedField('/worker_id', 'must be set for an offline task: only this worker starts it')
  const excluded: [field: string, isSet: boolean, why: string][] = [
    ['secrets', task.secretNames.length > 0, 'a worker never writes secrets to disk'],
    ['trigger', task.trigger !== null, 'messages come through the task manager'],
    ['grants', task.grants.length > 0, 'channels are used through the task manager'],
    ['publish_result', task.publish_result !== null, 'results are published by the task manager'],
    ['answers', task.answers !== null, 'commands come through the task manager'],
    ['http', task.http !== null, 'requests of its guests are logged by the task manager'],
    ['broadcast', task.broadcast, 'one worker starts it'],
    ['daemon', task.daemon, 'a daemon has no ticks'],
  ]
  for (const [field, isSet, why] of excluded)
    if (isSet) throw refusedField(`/${field}`, `must not be set for an offline task: ${why}`)
  if (task.module !== null && usesState(task.module.imports))
    throw refusedField('/offline', 'must not be true for a module that uses the state of its task')
}
