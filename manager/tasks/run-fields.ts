/** What a task says about its runs, as its row holds it: the part that readers of tasks and starts of runs share. */
import type { TaskState } from '#proto/index.ts'
import type { Grant, Target } from '../channels/fields.ts'
import type { OnLost, RunInput } from '../runs/spec.ts'

export type TaskRunFields = {
  key: number
  id: string
  domain_id: string | null
  user_key: number | null
  name: string
  state: TaskState
  inputs: RunInput[]
  cli_args: string[] | null
  env: Record<string, string>
  image_url: string | null
  module_key: number | null
  function: string | null
  labels: Record<string, string>
  worker_id: string | null
  priority: number
  timeout_ms: number
  memory_limit_bytes: number
  max_attempts: number | null
  backoff_ms: number
  on_lost: OnLost
  broadcast: boolean
  daemon: boolean
  publish_result: Target | null
  grants: Grant[]
}

const COLUMNS = {
  key: true,
  id: true,
  domain_id: true,
  user_key: true,
  name: true,
  state: true,
  inputs: true,
  cli_args: true,
  env: true,
  image_url: true,
  module_key: true,
  function: true,
  labels: true,
  worker_id: true,
  priority: true,
  timeout_ms: true,
  memory_limit_bytes: true,
  max_attempts: true,
  backoff_ms: true,
  on_lost: true,
  broadcast: true,
  daemon: true,
  publish_result: true,
  grants: true,
} as const satisfies Record<keyof TaskRunFields, true>

/** Of `tasks t`. */
export const TASK_RUN_COLUMNS = Object.keys(COLUMNS)
  .map((column) => `t.${column}`)
  .join(', ')
