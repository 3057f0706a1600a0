/** A change of a task in the journal. */
import { formatHttpGrant } from '../model/http-grant.ts'
import { TASK_FIELDS, type TaskColumn, type TaskFields } from '../model/task-fields.ts'
import type { TaskExtras, TaskRecord } from '../store/tasks.ts'

type Given = {
  fields?: Partial<TaskFields>
  extras?: Partial<TaskExtras>
  module?: { digest: string } | undefined
}

/**
 * The plain fields that differ, with their old and new values. The other fields can be long and can hold what the owner keeps to themselves
 * (inputs, environment, secrets), so `fields` has only the names of those that were given.
 */
export function describeChange(
  before: TaskFields & Pick<TaskRecord, 'module'>,
  { fields = {}, extras = {}, module }: Given,
): Record<string, unknown> {
  const old: Record<string, unknown> = {}
  const now: Record<string, unknown> = {}
  const given: string[] = []
  for (const column of Object.keys(fields) as TaskColumn[]) {
    const { json }: { json?: string } = TASK_FIELDS[column]
    // The journal says in full where the task can send what it knows.
    if (column === 'http') {
      const [was, is] = [formatHttpGrant(before.http), formatHttpGrant(fields.http)]
      if (was !== is) [old[column], now[column]] = [was, is]
    } else if (json !== undefined) given.push(column)
    else if (fields[column] !== before[column]) [old[column], now[column]] = [before[column], fields[column]]
  }
  if (extras.secretNames !== undefined) given.push('secrets')
  if (module !== undefined && module.digest !== before.module?.digest)
    [old['module'], now['module']] = [before.module?.digest ?? null, module.digest]
  return { before: old, after: now, ...(given.length === 0 ? {} : { fields: given }) }
}
