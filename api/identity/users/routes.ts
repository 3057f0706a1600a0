/** User routes of the specification. */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { TokensService } from '../tokens/index.ts'
import { bearerOf, originOf } from '../tokens/index.ts'
import { Id } from '../wire/index.ts'
import {
  NewUser,
  SecretUpdate,
  StatusQuery,
  User,
  UserPage,
  UserQuery,
  UserUpdate,
  presentStranger,
  presentUser,
} from './schema.ts'
import type { UsersService } from './service.ts'

const Params = Type.Object({ user_id: Id })

export function userRoutes(users: UsersService, tokens: TokensService): RoutePlugin {
  return (app) => {
    app.post(
      '/users',
      {
        config: { ownCredentials: true },
        schema: {
          tags: ['users'],
          summary: 'Register a user',
          description: 'With a bearer token the new user is owned by its user.',
          body: NewUser,
          response: responses(
            { 201: User },
            'unauthenticated',
            'forbidden',
            'conflict',
            'unsupported_media_type',
            'rate_limited',
            'too_large',
          ),
        },
        onRequest: async (request) => {
          if (request.headers.authorization !== undefined)
            request.principal = await tokens.authenticate(bearerOf(request), originOf(request))
          users.requireMayRegister(request.principal)
        },
      },
      async (request, reply) => {
        const user = await users.create(request.principal, request.body)
        void reply.code(201).header('Location', `/users/${user.id}`)
        return presentUser(user)
      },
    )
    app.get(
      '/users/profile',
      {
        config: { action: 'user.self' },
        schema: {
          tags: ['users'],
          summary: 'The user of the token',
          response: responses({ 200: User }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => presentUser(await users.getProfile(request.principal)),
    )
    app.get(
      '/users/:user_id',
      {
        config: { action: 'user.view' },
        schema: {
          tags: ['users'],
          summary: 'View a user',
          params: Params,
          response: responses({ 200: User }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const { user, isStranger } = await users.get(request.principal, request.params.user_id)
        return isStranger ? presentStranger(user) : presentUser(user)
      },
    )
    app.get(
      '/users',
      {
        config: { action: 'user.list' },
        schema: {
          tags: ['users'],
          summary: 'List users',
          querystring: UserQuery,
          response: responses({ 200: UserPage }, 'unauthenticated'),
        },
      },
      async (request) => {
        const page = await users.list(request.principal, request.query)
        if (request.query.only_total === true) return { total: page.total }
        return { total: page.total, offset: page.offset, limit: page.limit, users: page.items.map(presentUser) }
      },
    )
    app.patch(
      '/users/:user_id',
      {
        config: { action: 'user.update' },
        schema: {
          tags: ['users'],
          summary: 'Change names and metadata',
          params: Params,
          body: UserUpdate,
          response: responses(
            { 200: User },
            'unauthenticated',
            'forbidden',
            'not_found',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) => presentUser(await users.update(request.principal, request.params.user_id, request.body)),
    )
    app.patch(
      '/users/secret',
      {
        config: { action: 'user.self' },
        schema: {
          tags: ['users'],
          summary: 'Change the own password',
          description: 'Ends every other session of the user.',
          body: SecretUpdate,
          response: responses(
            { 200: User },
            'unauthenticated',
            'not_found',
            'unsupported_media_type',
            'rate_limited',
            'too_large',
          ),
        },
      },
      async (request) =>
        presentUser(await users.changeSecret(request.principal, request.body.old_secret, request.body.new_secret)),
    )
    for (const [verb, status] of [
      ['enable', 'enabled'],
      ['disable', 'disabled'],
    ] as const) {
      app.post(
        `/users/:user_id/${verb}`,
        {
          config: { action: 'user.update' },
          schema: {
            tags: ['users'],
            summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a user`,
            params: Params,
            querystring: StatusQuery,
            response: responses({ 200: User }, 'unauthenticated', 'forbidden', 'not_found', 'invalid_state'),
          },
        },
        async (request) => {
          const force = request.query.force === true
          return presentUser(await users.setStatus(request.principal, request.params.user_id, status, { force }))
        },
      )
    }
  }
}
