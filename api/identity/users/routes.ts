/** Routes that register, list, search and view users. */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { GroupQuery, nest, presentGroup, presentTree } from '../groups/index.ts'
import type { Logins } from '../tokens/index.ts'
import { optionalBearerOf, originOf } from '../tokens/index.ts'
import { Id } from '../wire/index.ts'
import {
  FoundUserPage,
  MembershipPage,
  NewUser,
  SearchQuery,
  User,
  UserPage,
  UserQuery,
  presentFound,
  presentUser,
} from './schema.ts'
import type { UsersService } from './service.ts'
import { presentTo } from './shown.ts'

const Params = Type.Object({ user_id: Id })

const INVITATION = /^Invitation +(\S+)$/i
/** The token of a mailed invitation. A header, because no log contains it and the body is read after the check. */
const invitationOf = ({ headers }: FastifyRequest) => INVITATION.exec(headers.authorization ?? '')?.[1]

export function userRoutes(users: UsersService, tokens: Logins): RoutePlugin {
  return (app) => {
    app.post(
      '/users',
      {
        config: { ownCredentials: ['none', 'bearer', 'mailed_link'], action: 'user.create', location: '/users/{id}' },
        schema: {
          tags: ['users'],
          summary: 'Register a user',
          description:
            'Requires no token unless SKEIN_ALLOW_SELF_REGISTER is false. With a bearer token its user becomes the owner of the new user. With `Authorization: Invitation <token>`, the token of a mailed invitation, the invited address registers, is verified, and the invitation waits for the user; this is possible whatever the setting.',
          body: NewUser,
          response: responses({ 201: User }, 'conflict', 'rate_limited'),
        },
        onRequest: async (request) => {
          const invitation = invitationOf(request)
          if (invitation !== undefined) return await users.registration.requireInvitation(invitation)
          const token = optionalBearerOf(request)
          if (token !== undefined) request.principal = await tokens.authenticate(token, originOf(request))
          users.registration.requireMayRegister(request.principal)
        },
      },
      async (request, reply) => {
        const invitation = invitationOf(request)
        const user =
          invitation === undefined
            ? await users.registration.create(request.principal, request.body, originOf(request))
            : await users.registration.createInvited(invitation, request.body, originOf(request))
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
          summary: 'View the user of the token',
          response: responses({ 200: User }, 'not_found'),
        },
      },
      async (request) => presentUser(await users.listings.getProfile(request.principal)),
    )
    app.get(
      '/users/search',
      {
        config: { action: 'user.search' },
        schema: {
          tags: ['users'],
          summary: 'Search users by substrings of their names or email',
          description:
            'Available to every user. Returns enabled users except platform administrators. Each text requires at least 3 characters.',
          querystring: SearchQuery,
          response: responses({ 200: FoundUserPage }),
        },
      },
      async (request) => {
        const { items, ...page } = await users.listings.search(request.query)
        return { ...page, users: items.map(presentFound) }
      },
    )
    app.get(
      '/users/:user_id',
      {
        config: { action: 'user.view' },
        schema: {
          tags: ['users'],
          summary: 'View a user',
          description:
            'Returns all fields to the user, their owner and platform administrators; id, names and username to other users.',
          params: Params,
          response: responses({ 200: User }, 'not_found'),
        },
      },
      async (request) => {
        return presentTo(request.principal, await users.listings.get(request.params.user_id))
      },
    )
    app.get(
      '/users',
      {
        config: { action: 'user.list' },
        schema: {
          tags: ['users'],
          summary: 'List users',
          description:
            '`visibility=all` returns all users to platform administrators; other callers get themselves, the users that they own and the members of their domains. Each item contains the fields of `GET /users/{user_id}`. Filters on other fields match nothing.',
          querystring: UserQuery,
          response: responses({ 200: UserPage }),
        },
      },
      async (request) => {
        const page = await users.listings.list(request.principal, request.query)
        if (request.query.only_total === true) return { total: page.total, users: [] }
        return {
          total: page.total,
          offset: page.offset,
          limit: page.limit,
          users: page.items.map((user) => presentTo(request.principal, user)),
          next: page.next,
        }
      },
    )
    app.get(
      '/users/:user_id/memberships',
      {
        config: { action: 'user.memberships' },
        schema: {
          tags: ['users'],
          summary: 'List the groups in which a user has a role',
          description:
            'Returns all groups to the user, their owner and platform administrators; other callers get the groups on which they have `membership` (legacy name `c_list`).',
          params: Params,
          querystring: GroupQuery,
          response: responses({ 200: MembershipPage }, 'not_found', 'unprocessable'),
        },
      },
      async (request) => {
        const { query } = request
        const { total, offset, limit, items, next } = await users.memberships.listMemberships(
          request.principal,
          request.params.user_id,
          query,
        )
        if (query.only_total === true) return { total, memberships: [] }
        const memberships =
          query.tree === true ? presentTree(nest(items), presentGroup) : items.map((group) => presentGroup(group))
        return { total, offset, limit, memberships, next }
      },
    )
  }
}
