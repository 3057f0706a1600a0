/** Wire shapes of workflows (task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import type { TaskRecord } from '../store/tasks.ts'
import {
  LastError,
  ListedTask,
  NEW_TASK_FIELDS,
  NewTask,
  RunIf,
  TaskId,
  Timestamp,
  presentListedTask,
} from '../tasks/schema.ts'
import type { WorkflowRecord, WorkflowRunRecord } from '../store/workflows.ts'

const PAGE_LIMIT = 100
const MAX_TASKS = 500
const MAX_PARENTS = 100
const Name = Type.String({ minLength: 1, maxLength: 1024 })

export const WorkflowTask = Type.Intersect([
  NewTask,
  Type.Object({
    id: Type.Optional(
      Type.String({
        maxLength: 1024,
        description: 'Another name of the task, for `depends_on` of this request; not stored',
      }),
    ),
    depends_on: Type.Optional(
      Type.Union([Type.Array(Name, { maxItems: MAX_PARENTS }), Type.Null()], {
        description: 'Names of tasks of the workflow that must end before it starts',
      }),
    ),
    run_if: Type.Optional(
      Type.Union([RunIf, Type.Null()], {
        description:
          'success: all dependencies completed; failure: one of them failed; always. If the condition is false, the task is skipped.',
      }),
    ),
  }),
])
export type WorkflowTask = Static<typeof WorkflowTask>
export const WORKFLOW_TASK_FIELDS = [...NEW_TASK_FIELDS, 'id']

export const NewWorkflow = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: 1024, description: 'Default: a generated name' })),
    domain_id: Type.Optional(Type.Union([TaskId, Type.Null()])),
    metadata: Type.Optional(Type.Union([recordOf(Type.Unknown()), Type.Null()])),
    tasks: Type.Array(WorkflowTask, { minItems: 1, maxItems: MAX_TASKS }),
  },
  { $id: 'WorkflowCreate' },
)
export type NewWorkflow = Static<typeof NewWorkflow>

const WorkflowRun = Type.Object({
  id: TaskId,
  state: Type.Integer({ description: '2 running, 3 completed, 4 failed, 6 stopped' }),
  created_at: Timestamp,
  finished_at: Timestamp,
  steps: Type.Array(
    Type.Object({
      task_id: TaskId,
      name: Type.String(),
      state: Type.Integer({ description: '0: waits for its dependencies; 1: started; otherwise its end state' }),
      run_id: Type.Optional(TaskId),
      error: Type.Union([Type.String(), Type.Null()]),
      last_error: Type.Optional(LastError),
    }),
  ),
})

export const Workflow = Type.Object(
  {
    id: TaskId,
    domain_id: Type.Optional(TaskId),
    name: Type.String(),
    metadata: recordOf(Type.Unknown()),
    created_at: Timestamp,
    state: Type.Integer({ description: 'State of the newest run; 0: never started' }),
    tasks: Type.Array(ListedTask, { description: 'The tasks, up to 8 MiB' }),
    tasks_total: Type.Optional(Type.Integer({ description: 'Number of tasks, if not all are shown' })),
    run: Type.Optional(WorkflowRun),
  },
  { $id: 'Workflow', description: 'Tasks that depend on each other' },
)
export type Workflow = Static<typeof Workflow>

export const WorkflowQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  name: Type.Optional(Type.String({ maxLength: 1024 })),
  domain_id: Type.Optional(Type.String({ maxLength: 64, description: 'Workflows of this domain' })),
  trigger: Type.Optional(
    Type.Boolean({ description: 'true: workflows with a task that messages start; false: the others' }),
  ),
  channel_id: Type.Optional(
    Type.String({ maxLength: 64, description: 'Workflows with a task that names this channel' }),
  ),
})
export type WorkflowQuery = Static<typeof WorkflowQuery>
export const WorkflowSummary = Type.Omit(Workflow, ['tasks', 'tasks_total', 'run'])
export const WorkflowPage = Type.Object({ ...pageFields, workflows: Type.Array(WorkflowSummary) })
export const WorkflowStarted = Type.Object({ started: Type.Boolean({ description: 'true' }), run_id: TaskId })
export const WorkflowStopped = Type.Object({ stopped: Type.Boolean({ description: 'true' }) })

export function presentSummary(workflow: WorkflowRecord): Static<typeof WorkflowSummary> {
  return {
    id: workflow.id,
    ...(workflow.domainId === null ? {} : { domain_id: workflow.domainId }),
    name: workflow.name,
    metadata: { ...workflow.metadata },
    created_at: formatTime(workflow.createdAt),
    state: workflow.state ?? 0,
  }
}

export function presentWorkflow(
  workflow: WorkflowRecord,
  { total, tasks }: { total: number; tasks: readonly TaskRecord[] },
  run: WorkflowRunRecord | undefined,
): Workflow {
  return {
    ...presentSummary(workflow),
    tasks: tasks.map(presentListedTask),
    ...(tasks.length < total ? { tasks_total: total } : {}),
    ...(run === undefined
      ? {}
      : {
          run: {
            id: run.id,
            state: run.state,
            created_at: formatTime(run.createdAt),
            finished_at: formatTime(run.finishedAt),
            steps: run.steps.map((step) => ({
              task_id: step.taskId,
              name: step.name,
              state: step.state,
              ...(step.state === 0 ? {} : { run_id: step.runId }),
              error: step.error,
              ...(step.lastError === null
                ? {}
                : { last_error: { ...step.lastError, at: formatTime(step.lastError.at) } }),
            })),
          },
        }),
  }
}
