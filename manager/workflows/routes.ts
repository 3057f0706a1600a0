/** Routes of workflows (task-manager.md section 1). Each handler is one call. */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TASK_BODY_BYTES } from '../tasks/legacy-fields.ts'
import { TaskId } from '../tasks/schema.ts'
import { newerWorkflow } from './legacy-fields.ts'
import { NewWorkflow, Workflow, WorkflowPage, WorkflowQuery, WorkflowStarted, WorkflowStopped } from './schema.ts'
import type { WorkflowsService } from './service.ts'

const Params = Type.Object({ workflow_id: TaskId })
const tags = ['workflows']

export function workflowRoutes({ workflows, callers }: { workflows: WorkflowsService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: BEARER })
  return (app) => {
    app.post(
      '/workflows',
      {
        onRequest,
        bodyLimit: TASK_BODY_BYTES,
        config: { ...config('task_create'), location: '/workflows/{id}', maxWholeBytes: TASK_BODY_BYTES },
        schema: {
          tags,
          summary: 'Create a workflow with its tasks',
          description:
            'A task lists the tasks that it depends on and can use their results as inputs: `{"from": "<task>", "result": 0}`. Modules are uploaded as for other tasks.',
          body: NewWorkflow,
          response: responses({ 201: Workflow }, 'unprocessable', 'rate_limited', 'timeout'),
        },
      },
      async (request, reply) => {
        const given = newerWorkflow(request.body)
        const workflow = await workflows.create(callers.of(request), given.workflow, given.files)
        void reply.code(201).header('Location', `/workflows/${workflow.id}`)
        return workflow
      },
    )
    app.get(
      '/workflows',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'List workflows',
          querystring: WorkflowQuery,
          response: responses({ 200: WorkflowPage }),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await workflows.list(callers.of(request), request.query)
        return { offset, limit, ...page }
      },
    )
    app.get(
      '/workflows/:workflow_id',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'View a workflow, its tasks and its newest run',
          params: Params,
          response: responses({ 200: Workflow }, 'not_found'),
        },
      },
      async (request) => await workflows.get(callers.of(request), request.params.workflow_id),
    )
    app.post(
      '/workflows/:workflow_id/start',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Start a workflow',
          description: 'Tasks without dependencies start at once, the others when their dependencies end.',
          params: Params,
          response: responses({ 200: WorkflowStarted }, 'not_found', 'invalid_state'),
        },
      },
      async (request) => {
        const { runId } = await workflows.start(callers.of(request), request.params.workflow_id)
        return { started: true as const, run_id: runId }
      },
    )
    app.post(
      '/workflows/:workflow_id/stop',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Stop a workflow',
          description: 'Pending tasks are not started, running ones are stopped.',
          params: Params,
          response: responses({ 200: WorkflowStopped }, 'not_found'),
        },
      },
      async (request) => {
        await workflows.stop(callers.of(request), request.params.workflow_id)
        return { stopped: true as const }
      },
    )
    app.delete(
      '/workflows/:workflow_id',
      {
        onRequest,
        config: { ...config('task_delete'), dryRun: true },
        schema: {
          tags,
          summary: 'Delete a workflow with its tasks and their runs',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
        },
      },
      async (request, reply) => {
        await workflows.remove(callers.of(request), request.params.workflow_id)
        void reply.code(204)
        return null
      },
    )
  }
}
