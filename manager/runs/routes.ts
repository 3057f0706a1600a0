/** Routes below a task: start, stop, invoke, results, runs and output (task-manager.md section 1). */
import { responses, sendEventStream } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { Type } from '#core/schema.ts'
import type { Streams } from '#core/streams/index.ts'
import type { TaskAccess } from '../access.ts'
import type { Callers } from '../callers.ts'
import { NO_USER } from '../callers.ts'
import { TaskId } from '../tasks/schema.ts'
import {
  InvokeBody,
  InvokeManyBody,
  Invoked,
  InvokedMany,
  LogQuery,
  Run,
  RunPage,
  RunQuery,
  StartBody,
  Started,
  Stopped,
  TaskResults,
  presentInvocation,
  presentRun,
} from './schema.ts'
import type { RunsService } from './service.ts'

const Params = Type.Object({ task_id: TaskId })
const RunParams = Type.Object({ task_id: TaskId, run_id: TaskId })
const tags = ['tasks']

export type RunRoutesDeps = { runs: RunsService; access: TaskAccess; callers: Callers; streams: Streams }

export function runRoutes({ runs, access, callers, streams }: RunRoutesDeps): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: true })
  return (app) => {
    app.post(
      '/tasks/:task_id/start',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Start a run; the state of the task follows it',
          description: 'With an Idempotency-Key header the same start happens once.',
          params: Params,
          body: StartBody,
          response: responses(
            { 200: Started },
            'unauthenticated',
            'forbidden',
            'not_found',
            'invalid_state',
            'unprocessable',
            'unsupported_media_type',
            'too_large',
            'timeout',
          ),
        },
      },
      async (request) => {
        const key = request.headers['idempotency-key']
        const { runId } = await runs.start(
          callers.of(request),
          request.params.task_id,
          request.body,
          Array.isArray(key) ? key[0] : key,
        )
        return { started: true as const, run_id: runId }
      },
    )
    app.post(
      '/tasks/:task_id/stop',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Stop every run of a task',
          params: Params,
          response: responses({ 200: Stopped }, 'unauthenticated', 'forbidden', 'not_found', 'too_large'),
        },
      },
      async (request) => {
        await runs.stop(callers.of(request), request.params.task_id)
        return { stopped: true as const }
      },
    )
    app.post(
      '/tasks/:task_id/invoke',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Start a run and wait for its result',
          params: Params,
          body: InvokeBody,
          response: responses(
            { 200: Invoked },
            'unauthenticated',
            'forbidden',
            'not_found',
            'unprocessable',
            'unsupported_media_type',
            'too_large',
            'rate_limited',
            'unavailable',
            'timeout',
          ),
        },
      },
      async (request) =>
        presentInvocation(await runs.invoke(callers.of(request), request.params.task_id, request.body)),
    )
    app.post(
      '/tasks/:task_id/invoke-many',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Start a run for each of up to 1,000 inputs and wait for all results',
          description:
            'Each is a run of its own, with its own row under /runs. Those that have not ended when the time is over go on. When none can be started, the answer is the refusal of the first.',
          params: Params,
          body: InvokeManyBody,
          response: responses(
            { 200: InvokedMany },
            'unauthenticated',
            'forbidden',
            'not_found',
            'unprocessable',
            'unsupported_media_type',
            'too_large',
            'rate_limited',
            'unavailable',
          ),
        },
      },
      async (request) => {
        const invocations = await runs.invokeMany(callers.of(request), request.params.task_id, request.body)
        return { runs: invocations.map(presentInvocation) }
      },
    )
    app.get(
      '/tasks/:task_id/results',
      {
        onRequest,
        config: config('task_read'),
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
        config: config('task_read'),
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
        config: config('task_read'),
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
        config: config('task_read'),
        schema: {
          tags,
          summary: 'Output of a run as text, or as it comes',
          description:
            'Of the last start unless `run_id` names a run. With `follow=true` server-sent events `stdout` and `stderr` with `{stream, offset, text}`, and `end` with the state once the run has ended.',
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
