/** Routes that start runs and wait for them: invoke one, invoke many (task-manager.md section 1). */
import { Type } from 'typebox'
import { responses, traceparentOf } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import { idempotencyKeyOf } from './idempotency.ts'
import type { Invocations } from './invocations.ts'
import { InvokeBody, InvokeManyBody, Invoked, InvokedMany, presentInvocation } from './schema.ts'

const Params = Type.Object({ task_id: TaskId })
const tags = ['tasks']

export function invokeRoutes({ invocations, callers }: { invocations: Invocations; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = { action: 'task_start', ownCredentials: BEARER }
  return (app) => {
    app.post(
      '/tasks/:task_id/invoke',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'Start a run and wait for its result',
          description:
            'If no worker fits, the answer is 409 with the reason for each worker, as in `/placement`: at once, or after `wait`. With an Idempotency-Key header, a repeated call, at any manager, waits for the run of the first one. A worker fits until its lease expires, also while it is disconnected.',
          params: Params,
          body: InvokeBody,
          response: responses(
            { 200: Invoked },
            'not_found',
            'invalid_state',
            'unprocessable',
            'rate_limited',
            'timeout',
          ),
        },
      },
      async (request) =>
        presentInvocation(
          await invocations.invoke(callers.of(request), request.params.task_id, request.body, {
            traceparent: traceparentOf(request),
            idempotencyKey: idempotencyKeyOf(request),
          }),
        ),
    )
    app.post(
      '/tasks/:task_id/invoke-many',
      {
        onRequest,
        config,
        schema: {
          tags,
          summary: 'Start a run for each of up to 1,000 inputs and wait for all results',
          description:
            'Each is a separate run, listed under /runs. Runs that have not ended at the deadline continue. If none can be started, the answer is the error of the first: 409 if no worker fits.',
          params: Params,
          body: InvokeManyBody,
          response: responses({ 200: InvokedMany }, 'not_found', 'invalid_state', 'unprocessable', 'rate_limited'),
        },
      },
      async (request) => {
        const many = await invocations.invokeMany(
          callers.of(request),
          request.params.task_id,
          request.body,
          traceparentOf(request),
        )
        return { runs: many.map(presentInvocation) }
      },
    )
  }
}
