/** `/tasks/{task_id}/metrics` of Propeller (contract, decision 63). A worker measures itself as a whole; of a run the duration is known. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId, Timestamp } from '../tasks/schema.ts'
import type { RunsService } from './service.ts'

const PAGE_LIMIT = 100
const Nullable = Type.Union([TaskId, Type.Null()])

const TaskMetrics = Type.Object({
  task_id: TaskId,
  run_id: TaskId,
  proplet_id: Nullable,
  timestamp: Timestamp,
  metrics: Type.Object({ duration_ms: Type.Union([Type.Number(), Type.Null()]) }),
})

export function taskMetricsRoute({ runs, callers }: { runs: RunsService; callers: Callers }): RoutePlugin {
  return (app) => {
    app.get(
      '/tasks/:task_id/metrics',
      {
        onRequest: callers.onRequest,
        config: { action: 'task_read', ownCredentials: BEARER },
        schema: {
          tags: ['tasks'],
          summary: 'List the durations of the runs of a task, the newest first',
          params: Type.Object({ task_id: TaskId }),
          querystring: Type.Object(pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT })),
          response: responses({ 200: Type.Object({ ...pageFields, metrics: Type.Array(TaskMetrics) }) }, 'not_found'),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const { task_id: taskId } = request.params
        const page = await runs.list(callers.of(request), taskId, request.query)
        const metrics = page.runs.map((run) => ({
          task_id: taskId,
          run_id: run.id,
          proplet_id: run.workerId,
          timestamp: formatTime(run.finishedAt ?? run.createdAt),
          metrics: { duration_ms: run.durationMs },
        }))
        return { offset, limit, total: page.total, metrics, next: page.next }
      },
    )
  }
}
