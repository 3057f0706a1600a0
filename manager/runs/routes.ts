/** Routes that read what became of runs: results, runs and output (task-manager.md section 1). */
import { Type } from 'typebox'
import { EVENT_STREAM, responses, sendEventStream } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { Callers } from '../access/callers.ts'
import { BEARER, NO_USER } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import { LogQuery, Run, RunPage, RunQuery, TaskResults, presentRun } from './schema.ts'
import type { RunsService } from './service.ts'

const Params = Type.Object({ task_id: TaskId })
const RunParams = Type.Object({ task_id: TaskId, run_id: TaskId })
const tags = ['tasks']

export type RunRoutesDeps = { runs: RunsService; access: TaskAccess; callers: Callers; streams: Streams }

export function runRoutes({ runs, access, callers, streams }: RunRoutesDeps): RoutePlugin {
  const { onRequest } = callers
  const config = { action: 'task_read', ownCredentials: BEARER }
  return (app) => {
    app.get(
      '/tasks/:task_id/results',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'Result of the last start',
          params: Params,
          response: responses({ 200: TaskResults }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const { runId, ...results } = await runs.results(callers.of(request), request.params.task_id)
        return { ...results, run_id: runId }
      },
    )
    app.get(
      '/tasks/:task_id/runs',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'List the runs of a task, the newest first',
          params: Params,
          querystring: RunQuery,
          response: responses({ 200: RunPage }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await runs.list(callers.of(request), request.params.task_id, { offset, limit })
        return { offset, limit, total: page.total, runs: page.runs.map((run) => presentRun(run, run.results)) }
      },
    )
    app.get(
      '/tasks/:task_id/runs/:run_id',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'View a run',
          params: RunParams,
          response: responses({ 200: Run }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const { run, results } = await runs.get(callers.of(request), request.params.task_id, request.params.run_id)
        return presentRun(run, results)
      },
    )
    app.get(
      '/tasks/:task_id/logs',
      {
        onRequest,
        config: { ...config, mediaType: ['text/plain', EVENT_STREAM] },
        schema: {
          tags,
          summary: 'Output of a run as text, or as it comes',
          description:
            'Of the newest run, started or invoked, unless `run_id` names one. With `follow=true` server-sent events `stdout` and `stderr` with `{stream, offset, text}`, and `end` with the state once the run has ended.',
          params: Params,
          querystring: LogQuery,
          response: responses({ 200: Type.String() }, 'unauthenticated', 'not_found', 'rate_limited', 'unavailable'),
        },
      },
      async (request, reply) => {
        const { run_id: runId, stream, follow } = request.query
        const number = stream === undefined ? undefined : stream === 'stdout' ? (1 as const) : (2 as const)
        const { task_id: taskId } = request.params
        if (follow === true) {
          const caller = callers.of(request)
          const source = await runs.logSource(caller, taskId, { runId, stream: number })
          const owner = { user: caller?.key ?? NO_USER, domain: source.domainId ?? undefined }
          const authenticate = async () => await access.authenticate(request)
          return (await sendEventStream(
            reply as never,
            { streams, owner },
            async (reader) => await runs.followLogs(source, authenticate, reader),
          )) as never
        }
        void reply.type('text/plain; charset=utf-8')
        return await runs.logs(callers.of(request), taskId, { runId, stream: number })
      },
    )
  }
}
