/** Wire shapes of workflows (task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf } from '#core/http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import type { TaskRecord } from '../store/tasks.ts'
import { ListedTask, NewTask, RunIf, TaskId, Timestamp, presentListedTask } from '../tasks/schema.ts'
import type { WorkflowRecord, WorkflowRunRecord } from '../store/workflows.ts'

const PAGE_LIMIT = 100
const MAX_TASKS = 500
const MAX_PARENTS = 100
const Name = Type.String({ minLength: 1, maxLength: 1024 })

export const WorkflowTask = Type.Intersect([
  NewTask,
  Type.Object({
    depends_on: Type.Optional(
      Type.Union([Type.Array(Name, { maxItems: MAX_PARENTS }), Type.Null()], {
        description: 'Names of tasks of the workflow that end before it starts',
      }),
    ),
    run_if: Type.Optional(
      Type.Union([RunIf, Type.Null()], {
        description:
          'success: all of them completed; failure: one of them failed; always. Where it is not so, the task is skipped.',
      }),
    ),
  }),
])
export type WorkflowTask = Static<typeof WorkflowTask>

export const NewWorkflow = Type.Object(
  {
    name: Name,
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
      state: Type.Integer({ description: '0: waits for the tasks it depends on; 1: started; else how it ended' }),
      run_id: Type.Optional(TaskId),
      error: Type.Union([Type.String(), Type.Null()]),
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
    state: Type.Integer({ description: 'Of the newest run; 0: it was never started' }),
    tasks: Type.Array(ListedTask, { description: 'As many as 8 MiB hold' }),
    tasks_total: Type.Optional(Type.Integer({ description: 'Number of tasks, where not all of them are shown' })),
    run: Type.Optional(WorkflowRun),
  },
  { $id: 'Workflow', description: 'Tasks that depend on each other' },
)
export type Workflow = Static<typeof Workflow>

export const WorkflowQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  name: Type.Optional(Type.String({ maxLength: 1024 })),
})
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
            })),
          },
        }),
  }
}
