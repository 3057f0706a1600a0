/** Deletion of stored messages over HTTP (contract decision 54). */
import { Type } from 'typebox'
import type { MessageGate } from '#api/devices/index.ts'
import { DeletionQuery } from '#api/messages/index.ts'
import type { MessageDeletion } from '#api/messages/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'

export function deletionRoutes(deletion: MessageDeletion, gate: MessageGate): RoutePlugin {
  return (app) => {
    app.delete(
      '/:domain_id/channels/:channel_id/messages',
      {
        config: { action: 'delete', dryRun: true },
        schema: {
          tags: ['messages'],
          summary: 'Delete stored messages of a channel',
          description:
            'Those in a range of times, those of a publisher, or those of a publisher in a range; one of the three must be given. What was acknowledged before the call is gone with the answer, in every read and aggregate; what comes later stays.',
          params: Type.Object({
            domain_id: Type.String({ description: 'Id or route of the domain' }),
            channel_id: Type.String({ description: 'Id or route of the channel' }),
          }),
          querystring: DeletionQuery,
          response: responses({ 204: NoBody }, 'not_found', 'rate_limited', 'timeout'),
        },
      },
      async (request, reply) => {
        const { domain_id: domain, channel_id: channel } = request.params
        // Paths of messages accept routes (decision 23).
        const { domainId, channelId } = await gate.idsOf({ domain, channel })
        await deletion.remove(request.principal, domainId, channelId, request.query)
        return await reply.code(204).send()
      },
    )
  }
}
