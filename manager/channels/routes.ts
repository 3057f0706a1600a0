/** The route of replays (task-manager.md section 5). */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import type { ReplaysService } from './replay-service.ts'
import { NewReplay, Replay } from './schema.ts'

export function replayRoutes({ replays, callers }: { replays: ReplaysService; callers: Callers }): RoutePlugin {
  return (app) => {
    app.post(
      '/tasks/:task_id/replay',
      {
        onRequest: callers.onRequest,
        config: { action: 'task_start', ownCredentials: BEARER },
        schema: {
          tags: ['tasks'],
          summary: 'Run a task over stored messages',
          description:
            'Each stored record of the channel in the time range starts a run, the oldest first, as a new message would. The runs are listed under the task.',
          params: Type.Object({ task_id: TaskId }),
          body: NewReplay,
          response: responses({ 202: Replay }, 'not_found', 'unprocessable'),
        },
      },
      async (request, reply) => {
        const { id } = await replays.start(callers.of(request), request.params.task_id, request.body)
        void reply.code(202)
        return { replay_id: id }
      },
    )
  }
}
