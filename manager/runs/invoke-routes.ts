/** Routes that start runs and wait for them: invoke one, invoke many (task-manager.md section 1). */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
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
            'Where no worker fits, the answer is 409 and says why of each, as `/placement` does: at once, or after `wait`. A worker whose lease has not ended counts, connected or not.',
          params: Params,
          body: InvokeBody,
          response: responses(
            { 200: Invoked },
            'unauthenticated',
            'forbidden',
            'not_found',
            'invalid_state',
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
        presentInvocation(await invocations.invoke(callers.of(request), request.params.task_id, request.body)),
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
            'Each is a run of its own, with its own row under /runs. Those that have not ended when the time is over go on. When none can be started, the answer is the refusal of the first: 409 where no worker fits.',
          params: Params,
          body: InvokeManyBody,
          response: responses(
            { 200: InvokedMany },
            'unauthenticated',
            'forbidden',
            'not_found',
            'invalid_state',
            'unprocessable',
            'unsupported_media_type',
            'too_large',
            'rate_limited',
            'unavailable',
          ),
        },
      },
      async (request) => {
        const many = await invocations.invokeMany(callers.of(request), request.params.task_id, request.body)
        return { runs: many.map(presentInvocation) }
      },
    )
  }
}
