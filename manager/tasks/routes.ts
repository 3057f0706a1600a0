/** Task routes (task-manager.md section 1). Each handler is one call. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { Type } from 'typebox'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { NoBody, requireStorable, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { isId } from '#core/ids.ts'
import { DURATION_PATTERN, parseDurationMs } from '#core/time.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import type { BodyReceiver } from '../modules/received-body.ts'
import { TASK_BODY_BYTES, newerFields } from './legacy-fields.ts'
import {
  NEW_TASK_FIELDS,
  NewTask,
  Task,
  TaskId,
  TaskPage,
  TaskQuery,
  TaskUpdate,
  presentInList,
  presentTask,
} from './schema.ts'
import type { TasksService } from './service.ts'
import { uploadRoute } from './upload-routes.ts'

const Params = Type.Object({ task_id: TaskId })
const tags = ['tasks']
/** The longest wait of a caller for the end of a run. */
const MAX_WAIT_MS = 60_000

export function taskRoutes({
  tasks,
  callers,
  bodies,
}: {
  tasks: TasksService
  callers: Callers
  bodies: BodyReceiver
}): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: BEARER })
  return (app) => {
    app.post(
      '/tasks',
      {
        onRequest,
        bodyLimit: TASK_BODY_BYTES,
        config: { ...config('task_create'), location: '/tasks/{id}', maxWholeBytes: TASK_BODY_BYTES },
        schema: {
          tags,
          summary: 'Create a task',
          body: NewTask,
          response: responses({ 201: Task }, 'unprocessable', 'rate_limited', 'timeout'),
        },
      },
      async (request, reply) => {
        const { body, file } = newerFields(request.body, NEW_TASK_FIELDS)
        const task = presentTask(await tasks.create(callers.of(request), body, file))
        void reply.code(201).header('Location', `/tasks/${task.id}`)
        return task
      },
    )
    app.get(
      '/tasks',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'List tasks',
          querystring: TaskQuery,
          response: responses({ 200: TaskPage }),
        },
      },
      async (request) => {
        const { offset, limit, cursor, state, name, metadata, trigger, order, dir } = request.query
        const filter = {
          offset,
          limit,
          cursor,
          state,
          name,
          metadata: parseMetadata(metadata),
          workerId: requireUuid('worker_id', request.query.worker_id),
          channelId: requireUuid('channel_id', request.query.channel_id),
          hasTrigger: trigger,
          order,
          dir: dir ?? ('asc' as const),
        }
        const page = await tasks.list(callers.of(request), filter, request.query.domain_id)
        return { offset, limit, ...page, tasks: page.tasks.map(presentInList) }
      },
    )
    app.get(
      '/tasks/:task_id',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'View a task',
          description:
            'With `wait`, the answer comes when its run has ended, or after that time with the task as it is.',
          params: Params,
          querystring: Type.Object({
            wait: Type.Optional(Type.String({ pattern: DURATION_PATTERN, description: 'At most 60s' })),
            recent: Type.Optional(
              Type.Boolean({ description: 'true: with `recent_runs`, how often it runs and how often it fails' }),
            ),
          }),
          response: responses({ 200: Task }, 'not_found', 'rate_limited'),
        },
      },
      async (request) => {
        const waitMs = waitOf(request.query.wait)
        const task = await tasks.getEnded(callers.of(request), request.params.task_id, waitMs)
        const shown = presentTask(task)
        return request.query.recent === true ? { ...shown, recent_runs: await tasks.recentRuns(task) } : shown
      },
    )
    app.put(
      '/tasks/:task_id',
      {
        onRequest,
        bodyLimit: TASK_BODY_BYTES,
        config: { ...config('task_update'), maxWholeBytes: TASK_BODY_BYTES },
        schema: {
          tags,
          summary: 'Update a task; absent fields are unchanged',
          params: Params,
          body: TaskUpdate,
          response: responses({ 200: Task }, 'not_found', 'invalid_state', 'unprocessable', 'rate_limited', 'timeout'),
        },
      },
      async (request) => {
        const { body, file } = newerFields(request.body, NEW_TASK_FIELDS)
        return presentTask(await tasks.update(callers.of(request), request.params.task_id, body, file))
      },
    )
    app.post(
      '/tasks/:task_id/take-over',
      {
        onRequest,
        config: config('task_update'),
        schema: {
          tags,
          summary: 'Grant the channels of a task',
          description:
            'The caller needs every right on channels that the task uses, and is its grantor from now on. A paused task continues where it was paused.',
          params: Params,
          response: responses({ 200: Task }, 'not_found', 'invalid_state', 'unprocessable'),
        },
      },
      async (request) => presentTask(await tasks.takeOver(callers.of(request), request.params.task_id)),
    )
    app.delete(
      '/tasks/:task_id',
      {
        onRequest,
        config: { ...config('task_delete'), dryRun: true },
        schema: {
          tags,
          summary: 'Delete a task with its runs',
          params: Params,
          querystring: Type.Object({ force: Type.Optional(Type.Boolean({ description: 'Stop the task first' })) }),
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
        },
      },
      async (request, reply) => {
        await tasks.remove(callers.of(request), request.params.task_id, request.query.force === true)
        void reply.code(204)
        return null
      },
    )
    // This route reads multipart bodies, so its parser stays in a scope of its own.
    void app.register((scope, _options, done) => {
      uploadRoute(scope as unknown as HttpApp, { tasks, callers, bodies })
      done()
    })
  }
}

function waitOf(text: string | undefined): number {
  const waitMs = text === undefined ? 0 : parseDurationMs(text, '/wait')
  if (waitMs > MAX_WAIT_MS) throw refusedField('/wait', 'must be between 0s and 60s')
  return waitMs
}

function parseMetadata(text: string | undefined): Record<string, unknown> | undefined {
  if (text === undefined) return undefined
  const refusal = new ServiceError('malformed', 'metadata must be a JSON object', {
    details: [{ path: 'metadata', message: 'must be a JSON object' }],
  })
  let value: unknown
  try {
    value = parseWithExactIntegers(text)
  } catch {
    throw refusal
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw refusal
  requireStorable(value, '', 0)
  return value as Record<string, unknown>
}

function requireUuid(name: 'worker_id' | 'channel_id', text: string | undefined): string | undefined {
  if (text !== undefined && !isId(text)) {
    throw new ServiceError('malformed', `${name} must be the id of a ${name.slice(0, -'_id'.length)}`, {
      details: [{ path: name, message: 'must be a UUID' }],
    })
  }
  return text
}
