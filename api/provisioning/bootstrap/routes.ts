/** Routes that manage bootstrap configurations (contract 9.1). */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import {
  BootstrapPage,
  BootstrapPatch,
  BootstrapQuery,
  BootstrapUpdate,
  BootstrapView,
  CertificatesUpdate,
  CertificatesView,
  ConnectionsUpdate,
  NewBootstrapConfig,
  StateUpdate,
  presentConfig,
  newerConfig,
} from './schema.ts'
import type { BootstrapService, ShownConfig } from './service.ts'

const tags = ['bootstrap']
const params = Type.Object({ domain_id: Id, client_id: Id })

const present = ({ config, secrets }: ShownConfig) => presentConfig(config, secrets)

export function bootstrapRoutes(bootstrap: BootstrapService): RoutePlugin {
  return (app) => {
    configRoutes(app, bootstrap)
    fieldRoutes(app, bootstrap)
    stateRoutes(app, bootstrap)
  }
}

function configRoutes(app: HttpApp, bootstrap: BootstrapService): void {
  for (const path of ['clients/configs', 'clients/bootstrap/enrollments'])
    app.post(
      `/:domain_id/${path}`,
      {
        config: { action: 'client_create', location: `/${path}/{client_id}` },
        schema: {
          tags,
          summary: 'Create a bootstrap configuration',
          description:
            'Creates it for an existing client (requires `update` on it) or for a new one. It is inactive unless `status` is `enabled`. With `profile_id` it is an enrolment: the device gets content that is rendered from the profile. This also requires `profile_read`.',
          params: Type.Object({ domain_id: Id }),
          body: NewBootstrapConfig,
          response: responses({ 201: NoBody }, 'not_found', 'conflict', 'unprocessable', 'rate_limited'),
        },
      },
      async (request, reply) => {
        const clientId = await bootstrap.create(request.principal, request.params.domain_id, newerConfig(request.body))
        return await reply.code(201).header('Location', `/${path}/${clientId}`).send()
      },
    )
  app.get(
    '/:domain_id/clients/configs',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'List bootstrap configurations',
        description:
          'Returns the configurations of clients on which the caller has `update`, because a configuration contains the secrets of its client.',
        params: Type.Object({ domain_id: Id }),
        querystring: BootstrapQuery,
        response: responses({ 200: BootstrapPage }),
      },
    },
    async (request) => {
      const { items, ...page } = await bootstrap.list(request.principal, request.params.domain_id, request.query)
      return { ...page, configs: items.map(present) }
    },
  )
  app.get(
    '/:domain_id/clients/configs/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'View a bootstrap configuration',
        params,
        response: responses({ 200: BootstrapView }, 'not_found'),
      },
    },
    async (request) =>
      present(await bootstrap.get(request.principal, request.params.domain_id, request.params.client_id)),
  )
  app.put(
    '/:domain_id/clients/configs/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Change name and content of a bootstrap configuration',
        params,
        body: BootstrapUpdate,
        response: responses({ 200: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      await bootstrap.update(request.principal, domainId, clientId, request.body)
      return await reply.code(200).send()
    },
  )
  app.patch(
    '/:domain_id/clients/configs/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Change parts of a bootstrap configuration',
        description: 'Also changes the external key and the variables of a profile.',
        params,
        body: BootstrapPatch,
        response: responses({ 200: NoBody }, 'not_found', 'conflict', 'rate_limited'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      await bootstrap.update(request.principal, domainId, clientId, request.body)
      return await reply.code(200).send()
    },
  )
  app.delete(
    '/:domain_id/clients/configs/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Delete a bootstrap configuration, but not its client',
        params,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await bootstrap.remove(request.principal, request.params.domain_id, request.params.client_id)
      return await reply.code(204).send()
    },
  )
}

/** Adds the routes that change single fields of a configuration. */
function fieldRoutes(app: HttpApp, bootstrap: BootstrapService): void {
  app.patch(
    '/:domain_id/clients/configs/certs/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Change the certificates of a bootstrap configuration',
        description: 'The private key is stored encrypted and returned only to the device.',
        params,
        body: CertificatesUpdate,
        response: responses({ 200: CertificatesView }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      const config = await bootstrap.updateCertificates(request.principal, domainId, clientId, request.body)
      return { client_id: clientId, client_cert: config.clientCert, client_key: '', ca_cert: config.caCert }
    },
  )
  app.put(
    '/:domain_id/clients/configs/connections/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Replace the channels of a bootstrap configuration',
        description:
          'While the configuration is active, its client is connected and disconnected in the same transaction.',
        params,
        body: ConnectionsUpdate,
        response: responses({ 200: NoBody }, 'not_found', 'unprocessable'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      await bootstrap.updateConnections(request.principal, domainId, clientId, request.body.channels)
      return await reply.code(200).send()
    },
  )
}

function stateRoutes(app: HttpApp, bootstrap: BootstrapService): void {
  app.put(
    '/:domain_id/clients/state/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Activate or deactivate a bootstrap configuration',
        description: 'State 1 connects the client with all its channels in both directions, 0 disconnects it.',
        params,
        body: StateUpdate,
        response: responses({ 200: NoBody }, 'not_found', 'unprocessable'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      await bootstrap.setState(request.principal, domainId, clientId, request.body.state === 1)
      return await reply.code(200).send()
    },
  )
  for (const [verb, isActive] of [
    ['enable', true],
    ['disable', false],
  ] as const) {
    app.post(
      `/:domain_id/clients/configs/:client_id/${verb}`,
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: isActive ? 'Activate a bootstrap configuration' : 'Deactivate a bootstrap configuration',
          description: 'Current form of the route that sets the state.',
          params,
          response: responses({ 200: BootstrapView }, 'not_found', 'unprocessable'),
        },
      },
      async (request) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        await bootstrap.setState(request.principal, domainId, clientId, isActive)
        return present(await bootstrap.get(request.principal, domainId, clientId))
      },
    )
  }
}
