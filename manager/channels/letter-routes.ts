/** Routes of the dead letters of tasks. */
import { Type } from 'typebox'
import { DeadLetterSelection, DeadLettersChanged, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import type { LettersService } from './letters-service.ts'
import { LettersQuery, TaskLetterPage, presentLetter } from './schema.ts'

const params = Type.Object({ task_id: TaskId })
const tags = ['tasks']

export function letterRoutes({ letters, callers }: { letters: LettersService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: BEARER })
  return (app) => {
    app.get(
      '/tasks/:task_id/dead-letters',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'List the dead letters of a task',
          description: 'Messages and publications that were given up, the newest first.',
          params,
          querystring: LettersQuery,
          response: responses({ 200: TaskLetterPage }, 'not_found'),
        },
      },
      async (request) => {
        const { offset, limit } = request.query
        const page = await letters.list(callers.of(request), request.params.task_id, request.query)
        return { total: page.total, offset, limit, dead_letters: page.letters.map(presentLetter), next: page.next }
      },
    )
    app.post(
      '/tasks/:task_id/dead-letters/retry',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Try dead letters of a task again',
          description:
            'Behind the messages that wait now. A run that was started for a message before is not started again.',
          params,
          body: DeadLetterSelection,
          response: responses({ 200: DeadLettersChanged }, 'not_found'),
        },
      },
      async (request) => ({
        count: await letters.retry(callers.of(request), request.params.task_id, request.body),
      }),
    )
    app.post(
      '/tasks/:task_id/dead-letters/discard',
      {
        onRequest,
        config: config('task_update'),
        schema: {
          tags,
          summary: 'Discard dead letters of a task',
          params,
          body: DeadLetterSelection,
          response: responses({ 200: DeadLettersChanged }, 'not_found'),
        },
      },
      async (request) => ({
        count: await letters.discard(callers.of(request), request.params.task_id, request.body),
      }),
    )
  }
}
