/** Routes of the state of tasks. Each handler is one call. */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import {
  StateDeleteQuery,
  StateListQuery,
  StateParams,
  StateQuery,
  TaskStatePage,
  TaskStateValue,
  TaskStateWrite,
  presentStateKey,
  presentStateValue,
} from './schema.ts'
import type { StateService } from './service.ts'

const params = Type.Object({ task_id: TaskId, ...StateParams })
const tags = ['tasks']

type Deps = { state: StateService; callers: Callers }

const config = (action: string) => ({ action, ownCredentials: BEARER })

const pathOf = ({
  params: { task_id: taskId, key },
  query,
}: {
  params: { task_id: string; key: string }
  query: { client?: string }
}) => ({
  taskId,
  key,
  client: query.client ?? '',
})

export const stateRoutes =
  (deps: Deps): RoutePlugin =>
  async (app) => {
    await readRoutes(deps)(app)
    await writeRoutes(deps)(app)
  }

function readRoutes({ state, callers }: Deps): RoutePlugin {
  const { onRequest } = callers
  return (app) => {
    app.get(
      '/tasks/:task_id/state',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'List the keys of the state of a task',
          description: 'What its guests keep between runs, in the order of bucket and key, without the values.',
          params: Type.Object({ task_id: TaskId }),
          querystring: StateListQuery,
          response: responses({ 200: TaskStatePage }, 'not_found'),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await state.list(callers.of(request), request.params.task_id, request.query)
        return { total: page.total, offset, limit, keys: page.keys.map(presentStateKey), next: page.next }
      },
    )
    app.get(
      '/tasks/:task_id/state/:key',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'View a value of the state of a task',
          params,
          querystring: StateQuery,
          response: responses({ 200: TaskStateValue }, 'not_found'),
        },
      },
      async (request) => presentStateValue(await state.get(callers.of(request), pathOf(request))),
    )
  }
}

function writeRoutes({ state, callers }: Deps): RoutePlugin {
  const { onRequest } = callers
  return (app) => {
    app.put(
      '/tasks/:task_id/state/:key',
      {
        onRequest,
        config: config('task_update'),
        schema: {
          tags,
          summary: 'Write a value of the state of a task',
          description: 'A run that has read the value and has not ended is repeated.',
          params,
          querystring: StateQuery,
          body: TaskStateWrite,
          response: responses({ 200: TaskStateValue }, 'not_found', 'conflict', 'unprocessable'),
        },
      },
      async (request) => presentStateValue(await state.put(callers.of(request), pathOf(request), request.body)),
    )
    app.delete(
      '/tasks/:task_id/state/:key',
      {
        onRequest,
        config: config('task_update'),
        schema: {
          tags,
          summary: 'Delete a key of the state of a task',
          params,
          querystring: StateDeleteQuery,
          response: responses({ 204: NoBody }, 'not_found', 'conflict'),
        },
      },
      async (request, reply) => {
        await state.remove(callers.of(request), pathOf(request), request.query.version)
        void reply.code(204)
        return null
      },
    )
  }
}
