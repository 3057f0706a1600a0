/** Task routes (task-manager.md section 1). Each handler is one call. */
import { Type } from 'typebox'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, requireStorable, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import { isId } from '#core/ids.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import type { BodyReceiver } from '../modules/received-body.ts'
import { NewTask, Task, TaskId, TaskPage, TaskQuery, TaskUpdate, presentListedTask, presentTask } from './schema.ts'
import type { TasksService } from './service.ts'
import { uploadRoute } from './upload-routes.ts'

const Params = Type.Object({ task_id: TaskId })
const tags = ['tasks']

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
        config: { ...config('task_create'), location: '/tasks/{id}' },
        schema: {
          tags,
          summary: 'Create a task',
          body: NewTask,
          response: responses(
            { 201: Task },
            'unauthenticated',
            'forbidden',
            'unprocessable',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request, reply) => {
        const task = presentTask(await tasks.create(callers.of(request), request.body))
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
          response: responses({ 200: TaskPage }, 'unauthenticated'),
        },
      },
      async (request) => {
        const { offset, limit, state, name, metadata, worker_id: workerId, order, dir } = request.query
        const filter = {
          offset,
          limit,
          state,
          name,
          metadata: parseMetadata(metadata),
          workerId: requireUuid(workerId),
          order,
          dir: dir ?? ('asc' as const),
        }
        const page = await tasks.list(callers.of(request), filter)
        return { offset, limit, total: page.total, tasks: page.tasks.map(presentListedTask) }
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
          params: Params,
          response: responses({ 200: Task }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => presentTask(await tasks.get(callers.of(request), request.params.task_id)),
    )
    app.put(
      '/tasks/:task_id',
      {
        onRequest,
        config: config('task_update'),
        schema: {
          tags,
          summary: 'Change a task; absent fields stay',
          params: Params,
          body: TaskUpdate,
          response: responses(
            { 200: Task },
            'unauthenticated',
            'forbidden',
            'not_found',
            'invalid_state',
            'unprocessable',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) => presentTask(await tasks.update(callers.of(request), request.params.task_id, request.body)),
    )
    app.delete(
      '/tasks/:task_id',
      {
        onRequest,
        config: config('task_delete'),
        schema: {
          tags,
          summary: 'Delete a task with its runs',
          params: Params,
          querystring: Type.Object({ force: Type.Optional(Type.Boolean({ description: 'Stop it first' })) }),
          response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found', 'invalid_state'),
        },
      },
      async (request, reply) => {
        await tasks.remove(callers.of(request), request.params.task_id, request.query.force === true)
        void reply.code(204)
        return null
      },
    )
    // Multipart bodies are read by this route alone, so its parser stays in a scope of its own.
    void app.register((scope, _options, done) => {
      uploadRoute(scope as unknown as HttpApp, { tasks, callers, bodies })
      done()
    })
  }
}

function parseMetadata(text: string | undefined): Record<string, unknown> | undefined {
  if (text === undefined) return undefined
  const refusal = new ServiceError('malformed', 'metadata must be a JSON object', {
    details: [{ path: 'metadata', message: 'must be a JSON object' }],
  })
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw refusal
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw refusal
  requireStorable(value, '', 0)
  return value as Record<string, unknown>
}

function requireUuid(text: string | undefined): string | undefined {
  if (text !== undefined && !isId(text)) {
    throw new ServiceError('malformed', 'worker_id must be the id of a worker', {
      details: [{ path: 'worker_id', message: 'must be a UUID' }],
    })
  }
  return text
}
