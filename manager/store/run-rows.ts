/** The columns of a RunHandle, for the statements of the writer. */
import type { TaskState } from '#proto/index.ts'
import type { RunHandle, RunSpec } from '../model/run.ts'

export const RUN_COLUMNS =
  'r.key, r.id, r.task_key, r.drives_task, r.parent_id, r.attempt, r.fence, r.module_digest, r.needs, r.spec, r.state'

export type RunRow = {
  key: number
  id: string
  task_key: number
  drives_task: boolean
  parent_id: string | null
  attempt: number
  fence: number | null
  module_digest: string
  needs: string
  spec: RunSpec
  state: TaskState
}

export function fromRunRow(row: RunRow): RunHandle {
  return {
    key: row.key,
    id: row.id,
    taskKey: row.task_key,
    drivesTask: row.drives_task,
    parentId: row.parent_id,
    attempt: row.attempt,
    fence: row.fence,
    digest: row.module_digest,
    needs: row.needs,
    spec: row.spec,
    state: row.state,
  }
}
