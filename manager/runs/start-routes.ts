/** Routes that start and stop runs (task-manager.md section 1). */
import { Type } from 'typebox'
import { responses, traceparentOf } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import { idempotencyKeyOf } from './idempotency.ts'
import { StartBody, Started, Stopped } from './schema.ts'
import type { RunsService } from './service.ts'

const Params = Type.Object({ task_id: TaskId })
const tags = ['tasks']

export function startRoutes({ runs, callers }: { runs: RunsService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = { action: 'task_start', ownCredentials: BEARER }
  return (app) => {
    app.post(
      '/tasks/:task_id/start',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'Start a run; the state of the task follows it',
          description: 'A start is repeatable with an Idempotency-Key header: the same key starts once.',
          params: Params,
          body: StartBody,
          response: responses({ 200: Started }, 'not_found', 'invalid_state', 'unprocessable', 'timeout'),
        },
      },
      async (request) => {
        const { runId } = await runs.start(
          callers.of(request),
          request.params.task_id,
          request.body,
          idempotencyKeyOf(request),
          traceparentOf(request),
        )
        return { started: true as const, run_id: runId }
      },
    )
    app.post(
      '/tasks/:task_id/stop',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'Stop every run of a task',
          params: Params,
          response: responses({ 200: Stopped }, 'not_found'),
        },
      },
      async (request) => {
        await runs.stop(callers.of(request), request.params.task_id)
        return { stopped: true as const }
      },
    )
  }
}
