/** Changing an account, by its user or the platform administrator; enabling and disabling also by its owner (decision 51). */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import { Id, MessageBody } from '../wire/index.ts'
import {
  EmailUpdate,
  PictureUpdate,
  RoleUpdate,
  SecretUpdate,
  StatusQuery,
  TagsUpdate,
  User,
  UserUpdate,
  UsernameUpdate,
  presentUser,
} from './schema.ts'
import type { UsersService } from './service.ts'

const Params = Type.Object({ user_id: Id })

const changed = () =>
  responses(
    { 200: User },
    'unauthenticated',
    'forbidden',
    'not_found',
    'conflict',
    'unsupported_media_type',
    'too_large',
  )

const config = { action: 'user.update' }

export function accountRoutes(users: UsersService): RoutePlugin {
  return (app) => {
    addProfileRoutes(app, users)
    addLoginRoutes(app, users)
    addStatusRoutes(app, users)
  }
}

/** Names, tags, picture and email. */
function addProfileRoutes(app: HttpApp, users: UsersService): void {
  app.patch(
    '/users/:user_id',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Change names and metadata',
        description: 'Absent fields stay as they are.',
        params: Params,
        body: UserUpdate,
        response: changed(),
      },
    },
    async (request) => presentUser(await users.update(request.principal, request.params.user_id, request.body)),
  )
  app.patch(
    '/users/:user_id/tags',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Replace the tags',
        description: 'Without `tags` there are none afterwards.',
        params: Params,
        body: TagsUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.setTags(request.principal, request.params.user_id, request.body.tags ?? [])),
  )
  app.patch(
    '/users/:user_id/picture',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Change the profile picture',
        description: 'An http or https address; empty: none.',
        params: Params,
        body: PictureUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.setPicture(request.principal, request.params.user_id, request.body.profile_picture)),
  )
  app.patch(
    '/users/:user_id/email',
    {
      config: { action: 'user.update_login' },
      schema: {
        tags: ['users'],
        summary: 'Change the email address',
        description: 'The new one is not verified. Links in mails to the old one no longer work.',
        params: Params,
        body: EmailUpdate,
        response: changed(),
      },
    },
    async (request) => presentUser(await users.setEmail(request.principal, request.params.user_id, request.body.email)),
  )
}

/** Username, role and password. */
function addLoginRoutes(app: HttpApp, users: UsersService): void {
  app.patch(
    '/users/:user_id/username',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Change the username',
        params: Params,
        body: UsernameUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.setUsername(request.principal, request.params.user_id, request.body.username)),
  )
  app.patch(
    '/users/:user_id/role',
    {
      config: { action: 'user.update_role' },
      schema: {
        tags: ['users'],
        summary: 'Make a user a platform administrator, or an ordinary one again',
        description: 'By a platform administrator. The platform keeps at least one.',
        params: Params,
        body: RoleUpdate,
        response: changed(),
      },
    },
    async (request) => presentUser(await users.setRole(request.principal, request.params.user_id, request.body.role)),
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
}

/** Enabling, disabling and deleting an account. */
function addStatusRoutes(app: HttpApp, users: UsersService): void {
  for (const [verb, status] of [
    ['enable', 'enabled'],
    ['disable', 'disabled'],
  ] as const) {
    app.post(
      `/users/:user_id/${verb}`,
      {
        config,
        schema: {
          tags: ['users'],
          summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a user`,
          description:
            verb === 'enable' ? 'From any state.' : 'From any state. Ends every session of the user at once.',
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
  app.delete(
    '/users/:user_id',
    {
      config: { action: 'user.delete' },
      schema: {
        tags: ['users'],
        summary: 'Delete a user',
        description:
          'Logins and tokens end at once and every role is taken; the record is removed after 30 days, until when its email, username and names stay taken.',
        params: Params,
        querystring: StatusQuery,
        response: responses({ 200: MessageBody }, 'unauthenticated', 'forbidden', 'not_found', 'invalid_state'),
      },
    },
    async (request) => {
      await users.remove(request.principal, request.params.user_id, { force: request.query.force === true })
      return { message: 'user deleted' }
    },
  )
}
