/** Routes of API keys (contract section 6). */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import {
  ApiKey,
  ApiKeyPage,
  ApiKeyQuery,
  IssuedApiKey,
  NewApiKey,
  presentApiKey,
  presentIssuedApiKey,
} from './schema.ts'
import type { ApiKeysService } from './service.ts'

const Params = Type.Object({ key_id: Id })
const config = { action: 'key.manage' }
const tags = ['keys']

export function apiKeyRoutes(apiKeys: ApiKeysService): RoutePlugin {
  return (app) => {
    app.post(
      '/keys',
      {
        config,
        schema: {
          tags,
          summary: 'Create an API key',
          description:
            'An API key is a bearer token for programs with the permissions of its user. It is valid until it expires or is deleted. Only this response contains its value.',
          body: NewApiKey,
          response: responses({ 201: IssuedApiKey }, 'unprocessable'),
        },
      },
      async (request, reply) => {
        const { apiKey, value } = await apiKeys.create(request.principal, request.body)
        void reply.code(201)
        return presentIssuedApiKey(apiKey, value)
      },
    )
    app.get(
      '/keys',
      {
        config,
        schema: {
          tags,
          summary: 'List the API keys of the caller',
          description: 'Newest first. Values are never returned.',
          querystring: ApiKeyQuery,
          response: responses({ 200: ApiKeyPage }),
        },
      },
      async (request) => {
        const { items, ...page } = await apiKeys.list(request.principal, request.query)
        return { ...page, keys: items.map(presentApiKey) }
      },
    )
    app.get(
      '/keys/:key_id',
      {
        config,
        schema: {
          tags,
          summary: 'View an API key',
          params: Params,
          response: responses({ 200: ApiKey }, 'not_found'),
        },
      },
      async (request) => presentApiKey(await apiKeys.get(request.principal, request.params.key_id)),
    )
    app.delete(
      '/keys/:key_id',
      {
        config,
        schema: {
          tags,
          summary: 'Delete an API key',
          description: 'The key becomes invalid within a second on every node.',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async (request, reply) => {
        await apiKeys.remove(request.principal, request.params.key_id)
        return await reply.code(204).send()
      },
    )
  }
}
