/** Worker routes and the explanation of a placement (task-manager.md section 1). */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Callers } from '../callers.ts'
import { TaskId } from '../tasks/schema.ts'
import { Placement, Worker, WorkerId, WorkerPage, WorkerQuery } from './schema.ts'
import type { WorkersService } from './service.ts'

export function workerRoutes({ workers, callers }: { workers: WorkersService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: true })
  return (app) => {
    app.get(
      '/workers',
      {
        onRequest,
        config: config('worker_read'),
        schema: {
          tags: ['workers'],
          summary: 'List workers',
          querystring: WorkerQuery,
          response: responses({ 200: WorkerPage }, 'unauthenticated'),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await workers.list(callers.of(request), request.query)
        return { offset, limit, total: page.total, workers: page.workers }
      },
    )
    app.get(
      '/workers/:worker_id',
      {
        onRequest,
        config: config('worker_read'),
        schema: {
          tags: ['workers'],
          summary: 'View a worker',
          params: Type.Object({ worker_id: WorkerId }),
          response: responses({ 200: Worker }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => await workers.get(callers.of(request), request.params.worker_id),
    )
    app.get(
      '/tasks/:task_id/placement',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags: ['tasks'],
          summary: 'Why the newest run is where it is',
          params: Type.Object({ task_id: TaskId }),
          response: responses({ 200: Placement }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const { runId, reason, workers: explained } = await workers.explain(callers.of(request), request.params.task_id)
        return {
          run_id: runId,
          reason,
          workers: explained.map(({ workerId, name, chosen, reason: why }) => ({
            worker_id: workerId,
            name,
            chosen,
            reason: why,
          })),
        }
      },
    )
  }
}
