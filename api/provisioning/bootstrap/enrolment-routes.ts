/** Enrolments, for whoever manages them (contract 9.1): configurations made from profiles, and what is bound to their slots. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { formatTime } from '#core/time.ts'
import { BindingView, RenderedView, SlotName } from '../profiles/index.ts'
import type { Binding } from '../profiles/index.ts'
import { BindingsUpdate, PreviewRequest, ProfileAssignment } from './schema.ts'
import type { BootstrapService } from './service.ts'

const tags = ['bootstrap']
const KINDS = ['unauthenticated', 'forbidden', 'not_found'] as const
const params = Type.Object({ domain_id: Id, client_id: Id })

export function enrolmentRoutes({ enrolments }: BootstrapService): RoutePlugin {
  return (app) => {
    app.patch(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/profile',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Give a configuration a profile',
          description:
            'What the device is given is rendered from it from then on; its own content stays and is not sent. Takes `profile_read` in the domain too, and `update` on the clients that are bound.',
          params,
          body: ProfileAssignment,
          response: responses({ 204: NoBody }, ...KINDS),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        await enrolments.assign(request.principal, domainId, clientId, request.body.profile_id)
        return await reply.code(204).send()
      },
    )
    app.delete(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/profile',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Take its profile from a configuration',
          description: 'The device is given the content of the configuration again.',
          params,
          response: responses({ 204: NoBody }, ...KINDS),
        },
      },
      async (request, reply) => {
        await enrolments.assign(request.principal, request.params.domain_id, request.params.client_id, undefined)
        return await reply.code(204).send()
      },
    )
    app.put(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/bindings',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Bind clients and channels to slots',
          description:
            'The slots that are named; others keep what they have. A client takes `update` on it, because the device is given its secret; a channel takes `read`.',
          params,
          body: BindingsUpdate,
          response: responses({ 204: NoBody }, ...KINDS, 'invalid_state'),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        await enrolments.bind(request.principal, domainId, clientId, request.body.bindings)
        return await reply.code(204).send()
      },
    )
    app.get(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/bindings',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'What is bound to the slots of a configuration',
          description: 'Without secrets.',
          params,
          response: responses({ 200: Type.Object({ bindings: Type.Array(BindingView) }) }, ...KINDS),
        },
      },
      async (request) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        const bindings = await enrolments.bindings(request.principal, domainId, clientId)
        return { bindings: bindings.map((one) => presentBinding(clientId, one)) }
      },
    )
    app.delete(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/bindings/:slot',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Empty a slot',
          params: Type.Object({ domain_id: Id, client_id: Id, slot: SlotName }),
          response: responses({ 204: NoBody }, ...KINDS),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId, client_id: clientId, slot } = request.params
        await enrolments.unbind(request.principal, domainId, clientId, slot)
        return await reply.code(204).send()
      },
    )
    app.post(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/bindings/refresh',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Note that the bindings were looked at',
          description: 'Names and secrets are looked up at each fetch: there is no older copy to renew.',
          params,
          response: responses({ 204: NoBody }, ...KINDS),
        },
      },
      async (request, reply) => {
        await enrolments.refresh(request.principal, request.params.domain_id, request.params.client_id)
        return await reply.code(204).send()
      },
    )
    app.post(
      '/:domain_id/clients/bootstrap/profiles/:profile_id/render-preview',
      {
        config: { action: 'profile_read' },
        schema: {
          tags,
          summary: 'What a device would be given',
          description:
            'For a configuration (`config_id`, which takes `update` on its client) or for samples. Secrets of the platform are shown as [redacted].',
          params: Type.Object({ domain_id: Id, profile_id: Id }),
          body: PreviewRequest,
          response: responses({ 200: RenderedView }, ...KINDS, 'unprocessable'),
        },
      },
      async (request) => {
        const { domain_id: domainId, profile_id: profileId } = request.params
        const { content, contentType } = await enrolments.preview(request.principal, domainId, profileId, request.body)
        return { content, content_type: contentType }
      },
    )
  }
}

function presentBinding(configId: string, { slot, type, resourceId, snapshot, updatedAt }: Binding) {
  return { config_id: configId, slot, type, resource_id: resourceId, snapshot, updated_at: formatTime(updatedAt) }
}
