/**
 * Legacy routes of invitations: a relation instead of a role, the domain in the body or at the end of the path
 * (contract 1.3).
 */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import { Invitation, NewRelationInvitation, presentInvitation } from './schema.ts'
import type { InvitationsService } from './service.ts'

const tags = ['invitations']
const Params = Type.Object({ user_id: Id, domain_id: Id })

export function legacyInvitationRoutes(invitations: InvitationsService): RoutePlugin {
  return (app) => {
    app.post(
      '/invitations',
      {
        config: { action: 'add_role_users' },
        schema: {
          tags,
          summary: 'Invite a user to a domain by a relation',
          description:
            'Requires an administrator of the domain. Uses the role with the name of the relation and creates it on first use.',
          body: NewRelationInvitation,
          response: responses({ 201: NoBody }, 'conflict', 'unprocessable'),
        },
      },
      async ({ principal, body }, reply) => {
        const { user_id: inviteeId, domain_id: domainId, relation, resend } = body
        await invitations.send(principal, domainId, {
          invitee: { id: inviteeId },
          offer: { relation },
          isResent: resend === true,
        })
        return await reply.code(201).send()
      },
    )
    app.get(
      '/invitations/:user_id/:domain_id',
      {
        config: { action: 'invitation.view' },
        schema: {
          tags,
          summary: 'View an invitation by its user and domain',
          params: Params,
          response: responses({ 200: Invitation }, 'not_found'),
        },
      },
      async ({ principal, params }) =>
        presentInvitation(await invitations.get(principal, params.domain_id, params.user_id)),
    )
    app.delete(
      '/invitations/:user_id/:domain_id',
      {
        config: { action: 'invitation.delete' },
        schema: {
          tags,
          summary: 'Delete an invitation, answered or not',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async ({ principal, params }, reply) => {
        await invitations.remove(principal, params.domain_id, params.user_id, { onlyPending: false })
        return await reply.code(204).send()
      },
    )
  }
}
