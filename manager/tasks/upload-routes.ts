/** The upload of a module, the one multipart route (task-manager.md section 1). */
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import { ServiceError } from '#core/errors/index.ts'
import { BINARY, readFilePart, responses } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { MAX_MODULE_BYTES } from '../modules/received-body.ts'
import type { BodyReceiver, ReceivedBody } from '../modules/received-body.ts'
import { Task, TaskId, presentTask } from './schema.ts'
import type { TasksService } from './service.ts'

const Params = Type.Object({ task_id: TaskId })
const UploadForm = Type.Object({ file: BINARY })
/** The size of a multipart envelope around its file. */
const MULTIPART_OVERHEAD_BYTES = 64 * 1024
const tags = ['tasks']

export type UploadDeps = { tasks: TasksService; callers: Callers; bodies: BodyReceiver }

export function uploadRoute(app: HttpApp, { tasks, callers, bodies }: UploadDeps): void {
  ;(app as unknown as FastifyInstance).addContentTypeParser('multipart/form-data', (_request, payload, done) =>
    done(null, payload),
  )
  app.put(
    '/tasks/:task_id/upload',
    {
      onRequest: callers.onRequest,
      bodyLimit: MAX_MODULE_BYTES + MULTIPART_OVERHEAD_BYTES,
      config: { action: 'task_update', ownCredentials: BEARER, bodies: { 'multipart/form-data': UploadForm } },
      schema: {
        tags,
        summary: 'Upload the WebAssembly module of a task',
        description: 'multipart/form-data with the module in the field `file`.',
        params: Params,
        response: responses({ 200: Task }, 'not_found', 'invalid_state', 'rate_limited', 'timeout'),
      },
    },
    async (request) => {
      const task = await tasks.requireUploadable(callers.of(request), request.params.task_id)
      if (request.body !== request.raw)
        throw new ServiceError(
          'unsupported_media_type',
          'the module must be sent as multipart/form-data in the field file',
        )
      const body = request.raw.iterator({ destroyOnReturn: false }) as AsyncIterableIterator<Buffer>
      try {
        const part = await readFilePart(body, request.headers['content-type'])
        if (part?.name !== 'file') {
          throw new ServiceError('malformed', 'the module must be in the field file', {
            details: [{ path: 'file', message: 'is required' }],
          })
        }
        const upload = async (received: ReceivedBody) =>
          await tasks.upload(callers.of(request), task, () => received.read())
        return presentTask(await bodies.receive(task.domainId, part.content, upload))
      } finally {
        // Discards the rest of the body, so that the client reads the answer; not awaited, because the rest may never
        // arrive.
        void body.return?.().then(() => request.raw.resume())
      }
    },
  )
}
