/** Routes that manage profiles (contract 9.1). */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { formatTime } from '#core/time.ts'
import { readDocument } from './documents.ts'
import type { Notation } from './documents.ts'
import { NewProfile, ProfilePage, ProfileQuery, ProfileUpdate, ProfileView, SlotsView } from './schema.ts'
import type { ProfilesService, ShownProfile } from './service.ts'

const tags = ['bootstrap']
const inDomain = Type.Object({ domain_id: Id })
const params = Type.Object({ domain_id: Id, profile_id: Id })

const present = ({ profile, domainId }: ShownProfile): ProfileView => ({
  id: profile.id,
  domain_id: domainId,
  name: profile.name,
  description: profile.description,
  content_format: profile.contentFormat,
  template_format: profile.contentFormat,
  content_type: profile.contentType,
  content_template: profile.contentTemplate,
  defaults: profile.defaults,
  binding_slots: profile.bindingSlots,
  version: profile.version,
  created_at: formatTime(profile.createdAt),
  updated_at: formatTime(profile.updatedAt),
})

const LOCATION = '/clients/bootstrap/profiles/{id}'
const locationOf = ({ profile }: ShownProfile) => `/clients/bootstrap/profiles/${profile.id}`

export function profileRoutes(profiles: ProfilesService): RoutePlugin {
  return async (app) => {
    await app.register((scope, _options, done) => {
      for (const [notation, types] of Object.entries(UPLOADED))
        scope.addContentTypeParser(
          [...types],
          { parseAs: 'string' },
          (request: FastifyRequest, text: string | Buffer) =>
            readDocument(notation as Notation, String(text), (request.params as { domain_id: string }).domain_id),
        )
      uploadRoute(scope as unknown as HttpApp, profiles)
      done()
    })
    app.post(
      '/:domain_id/clients/bootstrap/profiles',
      {
        config: { action: 'profile_create', location: LOCATION },
        schema: {
          tags,
          summary: 'Create a profile',
          description:
            'A profile is a template of device configurations. A configuration with its `profile_id` is rendered at each request of the device.',
          params: inDomain,
          body: NewProfile,
          response: responses({ 201: ProfileView }),
        },
      },
      async (request, reply) => {
        const made = await profiles.create(request.principal, request.params.domain_id, request.body)
        return await reply.code(201).header('Location', locationOf(made)).send(present(made))
      },
    )
    app.get(
      '/:domain_id/clients/bootstrap/profiles',
      {
        config: { action: 'profile_read' },
        schema: {
          tags,
          summary: 'List profiles',
          params: inDomain,
          querystring: ProfileQuery,
          response: responses({ 200: ProfilePage }),
        },
      },
      async (request) => {
        const { items, ...page } = await profiles.list(request.principal, request.params.domain_id, request.query)
        return { ...page, profiles: items.map(present) }
      },
    )
    app.get(
      '/:domain_id/clients/bootstrap/profiles/:profile_id',
      {
        config: { action: 'profile_read' },
        schema: { tags, summary: 'View a profile', params, response: responses({ 200: ProfileView }, 'not_found') },
      },
      async (request) =>
        present(await profiles.get(request.principal, request.params.domain_id, request.params.profile_id)),
    )
    app.get(
      '/:domain_id/clients/bootstrap/profiles/:profile_id/slots',
      {
        config: { action: 'profile_read' },
        schema: {
          tags,
          summary: 'List the slots of a profile',
          description: 'Required slots must be bound before a device of this profile gets a configuration.',
          params,
          response: responses({ 200: SlotsView }, 'not_found'),
        },
      },
      async (request) => {
        const { profile } = await profiles.get(request.principal, request.params.domain_id, request.params.profile_id)
        return { binding_slots: profile.bindingSlots }
      },
    )
    app.patch(
      '/:domain_id/clients/bootstrap/profiles/:profile_id',
      {
        config: { action: 'profile_update' },
        schema: {
          tags,
          summary: 'Change a profile',
          description:
            'Applies from the next request of each device. Also requires `update` on every client that is enrolled with the profile or bound to its slots.',
          params,
          body: ProfileUpdate,
          response: responses({ 200: ProfileView }, 'not_found'),
        },
      },
      async (request) => {
        const { domain_id: domainId, profile_id: profileId } = request.params
        return present(await profiles.update(request.principal, domainId, profileId, request.body))
      },
    )
    app.delete(
      '/:domain_id/clients/bootstrap/profiles/:profile_id',
      {
        config: { action: 'profile_delete' },
        schema: {
          tags,
          summary: 'Delete a profile',
          description: 'Returns 409 while a configuration uses the profile.',
          params,
          response: responses({ 204: NoBody }, 'not_found', 'conflict'),
        },
      },
      async (request, reply) => {
        await profiles.remove(request.principal, request.params.domain_id, request.params.profile_id)
        return await reply.code(204).send()
      },
    )
  }
}

/** Content types besides JSON, which the HTTP server parses. */
const UPLOADED: Record<Exclude<Notation, 'json'>, readonly string[]> = {
  yaml: ['application/yaml', 'application/x-yaml', 'text/yaml'],
  toml: ['application/toml', 'text/toml'],
}

function uploadRoute(scope: HttpApp, profiles: ProfilesService): void {
  scope.post(
    '/:domain_id/clients/bootstrap/profiles/upload',
    {
      config: { action: 'profile_create', location: LOCATION },
      schema: {
        tags,
        consumes: ['application/json', ...Object.values(UPLOADED).flat()],
        summary: 'Create a profile from a file',
        description: 'The file contains the fields of a profile in JSON, YAML or TOML.',
        params: inDomain,
        body: NewProfile,
        response: responses({ 201: ProfileView }),
      },
    },
    async (request, reply) => {
      const made = await profiles.create(request.principal, request.params.domain_id, request.body)
      return await reply.code(201).header('Location', locationOf(made)).send(present(made))
    },
  )
}
