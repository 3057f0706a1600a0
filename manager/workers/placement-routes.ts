/** The explanation of a placement (task-manager.md section 1). */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TaskId } from '../tasks/schema.ts'
import { explainPlacement, type PlacementDeps } from './placement.ts'
import { Placement } from './schema.ts'

export function placementRoutes({ callers, ...deps }: PlacementDeps & { callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  return (app) => {
    app.get(
      '/tasks/:task_id/placement',
      {
        onRequest,
        config: { action: 'task_read', ownCredentials: BEARER },
        schema: {
          tags: ['tasks'],
          summary: 'Explain the placement of the newest run',
          params: Type.Object({ task_id: TaskId }),
          response: responses({ 200: Placement }, 'not_found'),
        },
      },
      async (request) => {
        const {
          runId,
          reason,
          position,
          workers: explained,
        } = await explainPlacement(deps, callers.of(request), request.params.task_id)
        return {
          run_id: runId,
          reason,
          ...(position === undefined ? {} : { position }),
          workers: explained.map(({ workerId, name, chosen, reason: why }) => ({
            worker_id: workerId,
            name,
            chosen,
            reason: why,
          })),
        }
      },
    )
  }
}
