/** Routes that read the results, runs and output of tasks (task-manager.md section 1). */
import { Type } from 'typebox'
import { EVENT_STREAM, responses, sendEventStream } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { Callers } from '../access/callers.ts'
import { BEARER, NO_USER } from '../access/callers.ts'
import { numberOfStream } from '../model/log-streams.ts'
import { TaskId } from '../tasks/schema.ts'
import { LogQuery, Run, RunPage, RunQuery, RunsQuery, TaskResults, presentInputs, presentRun } from './schema.ts'
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
          response: responses({ 200: TaskResults }, 'not_found'),
        },
      },
      async (request) => {
        const { runId, ...results } = await runs.results(callers.of(request), request.params.task_id)
        return { ...results, run_id: runId }
      },
    )
    app.get(
      '/runs',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'List runs of all tasks, the newest first',
          description:
            'Runs of the tasks that the caller can read, each with its cause. `total` is exact up to 100,000.',
          querystring: RunsQuery,
          response: responses({ 200: RunPage }),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await runs.search(callers.of(request), request.query)
        return { offset, limit, ...page, runs: page.runs.map((run) => presentRun(run, run.results)) }
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
          response: responses({ 200: RunPage }, 'not_found'),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await runs.list(callers.of(request), request.params.task_id, request.query)
        return { offset, limit, ...page, runs: page.runs.map((run) => presentRun(run, run.results)) }
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
          response: responses({ 200: Run }, 'not_found'),
        },
      },
      async (request) => {
        const { task_id: taskId, run_id: runId } = request.params
        const { run, results, inputs } = await runs.get(callers.of(request), taskId, runId)
        return { ...presentRun(run, results), ...presentInputs(inputs) }
      },
    )
    app.get(
      '/tasks/:task_id/logs',
      {
        onRequest,
        config: { ...config, mediaType: ['text/plain', 'application/octet-stream', EVENT_STREAM] },
        schema: {
          tags,
          summary: 'Output of a run as text or as a stream',
          description:
            '`run_id` selects a run; default: the newest one, started or invoked. Output that is not UTF-8 is `application/octet-stream`. With `follow=true` the answer is a stream of server-sent events: `stdout`, `stderr` and `http` (the HTTP requests that were sent for the run) with `{stream, offset, text}`, or `base64` instead of `text` where they are not UTF-8, and `end` with the state once the run has ended.',
          params: Params,
          querystring: LogQuery,
          response: responses({ 200: Type.String() }, 'not_found', 'rate_limited'),
        },
      },
      async (request, reply) => {
        const { run_id: runId, stream, follow } = request.query
        const number = stream === undefined ? undefined : numberOfStream(stream)
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
        const output = await runs.logs(callers.of(request), taskId, { runId, stream: number })
        void reply.type(typeof output === 'string' ? 'text/plain; charset=utf-8' : 'application/octet-stream')
        // Bytes are sent without the schema of the response.
        return output as string
      },
    )
  }
}
