/** Routes of invitations to a role of a domain, and of the answers (contract 1.3). */
import { Type } from 'typebox'
import { refusedField } from '#core/errors/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import {
  DomainInvitationPage,
  DomainInvitationQuery,
  Invitation,
  InvitationAnswer,
  InvitationDeletion,
  InvitationPage,
  InvitationQuery,
  NewInvitation,
  presentDomainPage,
  presentInvitation,
  presentPage,
} from './schema.ts'
import { requireInvitee, requireOffer } from './body.ts'
import type { InvitationsService } from './service.ts'

const tags = ['invitations']
const DomainParams = Type.Object({ domain_id: Id })
const Params = Type.Object({ domain_id: Id, user_id: Id })
const REMOVAL =
  'The invitee can delete it at any time. The inviter and administrators of the domain can delete it until it is answered.'

export function invitationRoutes(invitations: InvitationsService): RoutePlugin {
  return (app) => {
    app.post(
      '/domains/:domain_id/invitations',
      {
        config: { action: 'add_role_users' },
        schema: {
          tags,
          summary: 'Invite a user to a role of the domain',
          description:
            'Requires an administrator of the domain. The invitation expires after 168 hours. `email` invites an address: its user, or, without an account, the person who registers with the link of a mail.',
          params: DomainParams,
          body: NewInvitation,
          response: responses({ 201: NoBody }, 'conflict', 'unprocessable', 'rate_limited'),
        },
      },
      async (request, reply) => {
        const { resend } = request.body
        const sent = { ...requireInvitee(request.body), offer: requireOffer(request.body), isResent: resend === true }
        await invitations.send(request.principal, request.params.domain_id, sent)
        return await reply.code(201).send()
      },
    )
    app.get(
      '/domains/:domain_id/invitations',
      {
        config: { action: 'view_role_users' },
        schema: {
          tags,
          summary: 'List the invitations to a domain',
          description: 'Requires an administrator of the domain.',
          params: DomainParams,
          querystring: DomainInvitationQuery,
          response: responses({ 200: DomainInvitationPage }),
        },
      },
      async ({ principal, params, query }) =>
        presentDomainPage(await invitations.listOfDomain(principal, params.domain_id, query)),
    )
    app.get(
      '/domains/:domain_id/invitations/:user_id',
      {
        config: { action: 'invitation.view' },
        schema: {
          tags,
          summary: 'View an invitation',
          description: 'Requires the invitee, the inviter or an administrator of the domain.',
          params: Params,
          response: responses({ 200: Invitation }, 'not_found'),
        },
      },
      async ({ principal, params }) =>
        presentInvitation(await invitations.get(principal, params.domain_id, params.user_id)),
    )
    app.delete(
      '/domains/:domain_id/invitations/:user_id',
      {
        config: { action: 'invitation.delete' },
        schema: {
          tags,
          summary: 'Delete an invitation',
          description: REMOVAL,
          params: Params,
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
        },
      },
      async ({ principal, params }, reply) => {
        await invitations.remove(principal, params.domain_id, params.user_id, { onlyPending: true })
        return await reply.code(204).send()
      },
    )
    app.delete(
      '/domains/:domain_id/invitations',
      {
        config: { action: 'invitation.delete' },
        schema: {
          tags,
          summary: 'Delete an invitation by the user or the address in the body',
          description: REMOVAL,
          params: DomainParams,
          body: InvitationDeletion,
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
        },
      },
      async ({ principal, params, body }, reply) => {
        const { domain_id: domainId } = params
        if (body.email !== undefined) await invitations.removeMailed(principal, domainId, body.email)
        else if (body.user_id === undefined) throw refusedField('/user_id', 'is required')
        else await invitations.remove(principal, domainId, body.user_id, { onlyPending: true })
        return await reply.code(204).send()
      },
    )
    app.get(
      '/invitations',
      {
        config: { action: 'invitation.list' },
        schema: {
          tags,
          summary: 'List invitations',
          description:
            'Returns the invitations that the caller received. With the `domain_id` of a domain that the caller administers, returns all of ' +
            'that domain. With the caller in `invited_by` or with another invitee, also returns those that the caller sent.',
          querystring: InvitationQuery,
          response: responses({ 200: InvitationPage }),
        },
      },
      async ({ principal, query }) => presentPage(await invitations.list(principal, query)),
    )
    for (const [verb, summary] of [
      ['accept', 'Accept the invitation to a domain'],
      ['reject', 'Reject the invitation to a domain'],
    ] as const) {
      app.post(
        `/invitations/${verb}`,
        {
          config: { action: 'invitation.answer' },
          schema: {
            tags,
            summary,
            body: InvitationAnswer,
            response: responses({ 204: NoBody }, 'not_found', 'invalid_state', 'unprocessable'),
          },
        },
        async ({ principal, body }, reply) => {
          await invitations.answers[verb](principal, body.domain_id)
          return await reply.code(204).send()
        },
      )
    }
  }
}
