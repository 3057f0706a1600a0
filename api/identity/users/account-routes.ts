/**
 * Routes that change an account. They require the user themselves or a platform administrator; enabling and disabling
 * also accept the owner (decision 51).
 */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
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
import { presentTo } from './shown.ts'
import type { UsersService } from './service.ts'

const Params = Type.Object({ user_id: Id })

const changed = () => responses({ 200: User }, 'not_found', 'conflict')

const config = { action: 'user.update' }

export function accountRoutes(users: UsersService): RoutePlugin {
  return (app) => {
    addProfileRoutes(app, users)
    addLoginRoutes(app, users)
    addStatusRoutes(app, users)
  }
}

/** Adds the routes of names, tags, picture and email. */
function addProfileRoutes(app: HttpApp, users: UsersService): void {
  app.patch(
    '/users/:user_id',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Change names and metadata',
        description: 'Absent fields are unchanged.',
        params: Params,
        body: UserUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.profiles.update(request.principal, request.params.user_id, request.body)),
  )
  app.patch(
    '/users/:user_id/tags',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Replace the tags',
        description: 'Absent `tags` remove all of them.',
        params: Params,
        body: TagsUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.profiles.setTags(request.principal, request.params.user_id, request.body.tags ?? [])),
  )
  app.patch(
    '/users/:user_id/picture',
    {
      config,
      schema: {
        tags: ['users'],
        summary: 'Change the profile picture',
        description: 'An http or https URL; an empty string removes the picture.',
        params: Params,
        body: PictureUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(
        await users.profiles.setPicture(request.principal, request.params.user_id, request.body.profile_picture),
      ),
  )
  app.patch(
    '/users/:user_id/email',
    {
      config: { action: 'user.update_login' },
      schema: {
        tags: ['users'],
        summary: 'Change the email address',
        description: 'The new address is not verified. Links in mails to the old address become invalid.',
        params: Params,
        body: EmailUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.profiles.setEmail(request.principal, request.params.user_id, request.body.email)),
  )
}

/** Adds the routes of username, role and password. */
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
      presentUser(await users.profiles.setUsername(request.principal, request.params.user_id, request.body.username)),
  )
  app.patch(
    '/users/:user_id/role',
    {
      config: { action: 'user.update_role' },
      schema: {
        tags: ['users'],
        summary: 'Change the platform role of a user',
        description: 'Requires a platform administrator. The platform keeps at least one platform administrator.',
        params: Params,
        body: RoleUpdate,
        response: changed(),
      },
    },
    async (request) =>
      presentUser(await users.profiles.setRole(request.principal, request.params.user_id, request.body.role)),
  )
  app.patch(
    '/users/secret',
    {
      config: { action: 'user.self' },
      schema: {
        tags: ['users'],
        summary: 'Change the password of the caller',
        description: 'Ends every other session of the user.',
        body: SecretUpdate,
        response: responses({ 200: User }, 'not_found', 'rate_limited'),
      },
    },
    async (request) =>
      presentUser(
        await users.secrets.changeSecret(request.principal, request.body.old_secret, request.body.new_secret),
      ),
  )
}

/** Adds the routes that enable, disable and delete an account. */
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
          description: verb === 'enable' ? 'Idempotent.' : 'Idempotent. Ends every session of the user immediately.',
          params: Params,
          querystring: StatusQuery,
          response: responses({ 200: User }, 'not_found', 'invalid_state'),
        },
      },
      async (request) => {
        const force = request.query.force === true
        // The owner of a user may do this too.
        const user = await users.statuses.setStatus(request.principal, request.params.user_id, status, { force })
        return presentTo(request.principal, user)
      },
    )
  }
  app.delete(
    '/users/:user_id',
    {
      config: { action: 'user.delete', dryRun: true },
      schema: {
        tags: ['users'],
        summary: 'Delete a user',
        description:
          'Ends all logins and tokens immediately and removes the user from every role. The record is removed after 30 days. Until then its email, username and names remain in use.',
        params: Params,
        querystring: StatusQuery,
        response: responses({ 200: MessageBody }, 'not_found', 'invalid_state'),
      },
    },
    async (request) => {
      await users.statuses.remove(request.principal, request.params.user_id, { force: request.query.force === true })
      return { message: 'user deleted' }
    },
  )
}
