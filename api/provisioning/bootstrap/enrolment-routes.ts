/** Routes that manage enrolments (contract 9.1): configurations from profiles, and the bindings of their slots. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { formatTime } from '#core/time.ts'
import { BindingView, RenderedView, SlotName } from '../profiles/index.ts'
import type { Binding } from '../profiles/index.ts'
import { BindingsUpdate, PreviewRequest, ProfileAssignment } from './schema.ts'
import type { BootstrapService } from './service.ts'

const tags = ['bootstrap']
const params = Type.Object({ domain_id: Id, client_id: Id })

export function enrolmentRoutes({ enrolments }: BootstrapService): RoutePlugin {
  return (app) => {
    app.patch(
      '/:domain_id/clients/bootstrap/enrollments/:client_id/profile',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Set the profile of a configuration',
          description:
            'The device gets content that is rendered from the profile. The content of the configuration is kept but not sent. Also requires `profile_read` in the domain, and `update` on the bound clients.',
          params,
          body: ProfileAssignment,
          response: responses({ 204: NoBody }, 'not_found'),
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
          summary: 'Remove the profile of a configuration',
          description: 'The device gets the content of the configuration again.',
          params,
          response: responses({ 204: NoBody }, 'not_found'),
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
            'Other slots are unchanged. Binding a client requires `update` on it, because the device gets its secret. Binding a channel requires `read` on it.',
          params,
          body: BindingsUpdate,
          response: responses({ 204: NoBody }, 'not_found', 'invalid_state'),
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
          summary: 'List the bindings of a configuration',
          description: 'Bindings contain no secrets.',
          params,
          response: responses({ 200: Type.Object({ bindings: Type.Array(BindingView) }) }, 'not_found'),
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
          summary: 'Remove the binding of a slot',
          params: Type.Object({ domain_id: Id, client_id: Id, slot: SlotName }),
          response: responses({ 204: NoBody }, 'not_found'),
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
          summary: 'Refresh the bindings of a configuration',
          description:
            'Records the time of the refresh. Names and secrets are read for each request of the device, so there is no copy to update.',
          params,
          response: responses({ 204: NoBody }, 'not_found'),
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
        config: { action: 'profile_read', isReading: true },
        schema: {
          tags,
          summary: 'Preview the configuration of a device',
          description:
            'Renders for a configuration (`config_id`, requires `update` on its client) or for sample values. Secrets are replaced by [redacted].',
          params: Type.Object({ domain_id: Id, profile_id: Id }),
          body: PreviewRequest,
          response: responses({ 200: RenderedView }, 'not_found', 'unprocessable'),
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
