/** Task routes (task-manager.md section 1). Each handler is one call. */
import multipart from '@fastify/multipart'
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, requireStorable, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import { isId } from '#core/ids.ts'
import { Type } from '#core/schema.ts'
import type { Callers } from '../callers.ts'
import { MAX_MODULE_BYTES } from '../modules/received-body.ts'
import type { BodyReceiver } from '../modules/received-body.ts'
import type { RunsService } from '../runs/service.ts'
import { NewTask, Task, TaskId, TaskPage, TaskQuery, TaskUpdate, presentListedTask, presentTask } from './schema.ts'
import type { TasksService } from './service.ts'

const Params = Type.Object({ task_id: TaskId })
/** The envelope of a multipart body around its file. */
const MULTIPART_OVERHEAD_BYTES = 64 * 1024
const tags = ['tasks']

export function taskRoutes({
  tasks,
  runs,
  callers,
  bodies,
}: {
  tasks: TasksService
  runs: RunsService
  callers: Callers
  bodies: BodyReceiver
}): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: true })
  return (app) => {
    app.post(
      '/tasks',
      {
        onRequest,
        config: config('task_create'),
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
        await runs.remove(callers.of(request), request.params.task_id, request.query.force === true)
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

type UploadDeps = { tasks: TasksService; callers: Callers; bodies: BodyReceiver }

function uploadRoute(app: HttpApp, { tasks, callers, bodies }: UploadDeps): void {
  void (app as unknown as FastifyInstance).register(multipart, {
    limits: { files: 1, fields: 8, parts: 9, fileSize: MAX_MODULE_BYTES + 1, fieldSize: 1024 },
    throwFileSizeLimit: false,
  })
  app.put(
    '/tasks/:task_id/upload',
    {
      onRequest: callers.onRequest,
      bodyLimit: MAX_MODULE_BYTES + MULTIPART_OVERHEAD_BYTES,
      config: { action: 'task_update', ownCredentials: true },
      schema: {
        tags,
        summary: 'Give the task a WebAssembly module',
        description: 'multipart/form-data with the module in the field `file`.',
        consumes: ['multipart/form-data'],
        params: Params,
        response: responses(
          { 200: Task },
          'unauthenticated',
          'forbidden',
          'not_found',
          'invalid_state',
          'unsupported_media_type',
          'too_large',
          'rate_limited',
          'unavailable',
          'timeout',
        ),
      },
    },
    async (request) => {
      const task = await tasks.requireUploadable(callers.of(request), request.params.task_id)
      if (!request.isMultipart())
        throw new ServiceError(
          'unsupported_media_type',
          'the module must be sent as multipart/form-data in the field file',
        )
      const part = await request.file()
      if (part === undefined || part.fieldname !== 'file') {
        part?.file.resume()
        throw new ServiceError('malformed', 'the module must be in the field file', {
          details: [{ path: 'file', message: 'is required' }],
        })
      }
      const caller = callers.of(request)
      return presentTask(
        await bodies.receive(
          task.domainId,
          part.file,
          async (body) => await tasks.upload(caller, task, await body.read()),
        ),
      )
    },
  )
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
