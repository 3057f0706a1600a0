/** Worker routes (task-manager.md section 1). */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { formatTime } from '#core/time.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { NewWorkerToken, Worker, WorkerId, WorkerPage, WorkerQuery, WorkerToken } from './schema.ts'
import type { WorkersService } from './service.ts'

const Params = Type.Object({ worker_id: WorkerId })

export function workerRoutes({ workers, callers }: { workers: WorkersService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: BEARER })
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
          response: responses({ 200: WorkerPage }),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await workers.list(callers.of(request), request.query)
        return { offset, limit, ...page }
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
          params: Params,
          response: responses({ 200: Worker }, 'not_found'),
        },
      },
      async (request) => await workers.get(callers.of(request), request.params.worker_id),
    )
    app.post(
      '/workers/tokens',
      {
        onRequest,
        config: config('worker_manage'),
        schema: {
          tags: ['workers'],
          summary: 'Create a join token for workers',
          description:
            'A worker that joins with the token of a domain runs only tasks of that domain. The token is shown once and is valid for `uses` workers and at most an hour.',
          body: Type.Optional(Type.Union([NewWorkerToken, Type.Null()])),
          response: responses({ 201: WorkerToken }),
        },
      },
      async (request, reply) => {
        const { domainId, expiresAt, ...made } = await workers.createToken(callers.of(request), request.body ?? {})
        void reply.code(201)
        return { ...made, ...(domainId === null ? {} : { domain_id: domainId }), expires_at: formatTime(expiresAt) }
      },
    )
    const drive = [
      {
        verb: 'drain',
        summary: 'Drain a worker',
        description:
          'The worker finishes its runs and gets no new ones; afterwards it can be stopped or deleted safely.',
      },
      { verb: 'resume', summary: 'Resume a drained worker', description: 'The worker gets new runs again.' },
    ] as const
    for (const { verb, summary, description } of drive) {
      app.post(
        `/workers/:worker_id/${verb}`,
        {
          onRequest,
          config: config('worker_manage'),
          schema: {
            tags: ['workers'],
            summary,
            description,
            params: Params,
            response: responses({ 200: Worker }, 'not_found'),
          },
        },
        async (request) => await workers[verb](callers.of(request), request.params.worker_id),
      )
    }
    app.post(
      '/workers/:worker_id/revoke',
      {
        onRequest,
        config: config('worker_manage'),
        schema: {
          tags: ['workers'],
          summary: 'Revoke a worker',
          description:
            'Its secret and certificates become invalid, its session ends, and its runs are requeued. With a new join token the machine can join as a new worker.',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async (request, reply) => {
        await workers.revoke(callers.of(request), request.params.worker_id)
        void reply.code(204)
        return null
      },
    )
    app.delete(
      '/workers/:worker_id',
      {
        onRequest,
        config: config('worker_manage'),
        schema: {
          tags: ['workers'],
          summary: 'Delete a worker',
          description: 'Refused while it is alive and runs tasks: drain it first.',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
        },
      },
      async (request, reply) => {
        await workers.remove(callers.of(request), request.params.worker_id)
        void reply.code(204)
        return null
      },
    )
  }
}
