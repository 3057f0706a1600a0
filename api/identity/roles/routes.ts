/** Role routes: every endpoint of contract 2.2 below every base of `paths.ts`. */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { TObject, TSchema } from 'typebox'
import type { ErrorKind } from '#core/errors/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import { DEFAULT_LIMIT } from '#core/page.ts'
import { Id, MessageBody } from '../wire/index.ts'
import { AVAILABLE_ACTIONS_PATHS, ROLE_BASES, targetOf } from './paths.ts'
import type { PathParams, RoleBase } from './paths.ts'
import {
  ActionList,
  ActionsBody,
  ActionsObject,
  AvailableActions,
  EntityMemberPage,
  EntityMemberQuery,
  ForceQuery,
  MemberIdsBody,
  MemberList,
  MemberPage,
  MembersBody,
  MembersObject,
  NewRole,
  PlainPageQuery,
  Role,
  RoleList,
  RolePage,
  RoleUpdate,
  presentEntityMember,
  presentRole,
} from './schema.ts'
import type { Paging, RolesService } from './service.ts'

const tags = ['roles']
const RoleId = Type.String({ maxLength: 64, description: '`<entity type>_<22 characters>`' })

const paramsOf = (names: readonly string[], more: Record<string, TSchema> = {}): TObject =>
  Type.Object({ ...Object.fromEntries(names.map((name) => [name, Id])), ...more })

/** Any of these routes: no such domain or not open (403), no such entity or role (404), an id that several domains know (409). */
const REFUSALS: readonly ErrorKind[] = ['unauthenticated', 'forbidden', 'not_found', 'conflict', 'unprocessable']
const WRITING: readonly ErrorKind[] = [...REFUSALS, 'invalid_state', 'unsupported_media_type', 'too_large']

type PageQuery = { offset?: number; limit?: number }

/** A page where the path always gives one or the query asks for one; else everything (decision 6). */
function pagingOf(base: RoleBase, { offset, limit }: PageQuery): Paging {
  if (!base.isPrefixed && offset === undefined && limit === undefined) return undefined
  return { offset: offset ?? 0, limit: limit ?? DEFAULT_LIMIT }
}

function requireGiven<T>(value: T | undefined, path: string): T {
  if (value !== undefined) return value
  throw new ServiceError('malformed', `${path.slice(1)} is required`, { details: [{ path, message: 'is required' }] })
}

const paramsIn = (request: FastifyRequest) => request.params as PathParams
const roleIdIn = (request: FastifyRequest) => paramsIn(request)['role_id'] ?? ''

export function roleRoutes(roles: RolesService): RoutePlugin {
  return (app) => {
    for (const { type, path, params } of AVAILABLE_ACTIONS_PATHS) {
      app.get(
        path,
        {
          config: { action: 'user.self' },
          schema: {
            tags,
            summary: `List the actions that exist on a ${type}`,
            params: paramsOf(params),
            response: responses({ 200: AvailableActions }, 'unauthenticated', 'forbidden'),
          },
        },
        async (request) => {
          const domainId = paramsIn(request)['domain_id']
          return { available_actions: [...(await roles.availableActions(request.principal, type, domainId))] }
        },
      )
    }
    for (const base of ROLE_BASES) {
      addEntityRoutes(app, roles, base)
      addRoleRoutes(app, roles, base)
      addActionRoutes(app, roles, base)
      addMemberRoutes(app, roles, base)
    }
  }
}

/** On all roles of an entity. */
function addEntityRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = paramsOf(base.params)
  app.post(
    base.path,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: `Create a role on a ${base.type}`,
        description: 'With members it needs `add_role_users` too. A caller gives only actions that he holds himself.',
        params,
        body: NewRole,
        response: responses({ 201: Role }, ...WRITING),
      },
    },
    async (request, reply) => {
      const { body } = request
      const created = await roles.create(request.principal, targetOf(base, paramsIn(request)), {
        name: requireGiven(body.role_name ?? body.name, '/role_name'),
        actions: body.optional_actions ?? body.actions ?? [],
        members: body.optional_members ?? body.members ?? [],
      })
      void reply.code(201)
      return presentRole(created)
    },
  )
  app.get(
    base.path,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: `List the roles of a ${base.type}, the built-in one first`,
        params,
        querystring: PlainPageQuery,
        response: responses({ 200: base.isPrefixed ? RolePage : Type.Union([RoleList, RolePage]) }, ...REFUSALS),
      },
    },
    async (request) => {
      const paging = pagingOf(base, request.query)
      const { items, ...page } = await roles.list(request.principal, targetOf(base, paramsIn(request)), paging)
      const shown = items.map(presentRole)
      return paging === undefined ? shown : { ...page, roles: shown }
    },
  )
  app.get(
    `${base.path}/members`,
    {
      config: { action: 'view_role_users' },
      schema: {
        tags,
        summary: `List everybody whose roles give something on a ${base.type}, by inheritance too`,
        params,
        querystring: EntityMemberQuery,
        response: responses({ 200: EntityMemberPage }, ...REFUSALS),
      },
    },
    async (request) => {
      const target = targetOf(base, paramsIn(request))
      const { items, ...page } = await roles.listEntityMembers(request.principal, target, request.query)
      return { ...page, members: items.map(presentEntityMember) }
    },
  )
  app.delete(
    `${base.path}/members`,
    {
      config: { action: 'remove_role_users' },
      schema: {
        tags,
        summary: `Take every role on a ${base.type} from users`,
        description:
          base.type === 'domain'
            ? 'They are no members of the domain any more: their roles on everything in it go too.'
            : 'What they have by inheritance stays.',
        params,
        querystring: ForceQuery,
        body: MemberIdsBody,
        response: responses({ 204: NoBody }, ...WRITING),
      },
    },
    async (request, reply) => {
      const target = targetOf(base, paramsIn(request))
      const force = request.query.force === true
      await roles.removeEntityMembers(request.principal, target, request.body.member_ids, { force })
      void reply.code(204)
    },
  )
}

/** On one role. */
function addRoleRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = paramsOf(base.params, { role_id: RoleId })
  const path = `${base.path}/:role_id`
  app.get(
    path,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: 'View a role with its actions and members',
        params,
        response: responses({ 200: Role }, ...REFUSALS),
      },
    },
    async (request) =>
      presentRole(await roles.get(request.principal, targetOf(base, paramsIn(request)), roleIdIn(request))),
  )
  app.put(
    path,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: 'Change the name or replace the actions of a role',
        params,
        body: RoleUpdate,
        response: responses({ 200: Role }, ...WRITING),
      },
    },
    async (request) => {
      const { body } = request
      const name = body.role_name ?? body.name
      const actions = body.optional_actions ?? body.actions
      if (name === undefined && actions === undefined) requireGiven(undefined, '/role_name')
      const target = targetOf(base, paramsIn(request))
      return presentRole(
        await roles.update(request.principal, target, roleIdIn(request), {
          ...(name === undefined ? {} : { name }),
          ...(actions === undefined ? {} : { actions }),
        }),
      )
    },
  )
  app.delete(
    path,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: 'Delete a role; its members lose what it gave them',
        params,
        response: responses({ 204: NoBody }, ...REFUSALS),
      },
    },
    async (request, reply) => {
      await roles.remove(request.principal, targetOf(base, paramsIn(request)), roleIdIn(request))
      void reply.code(204)
    },
  )
}

function addActionRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = paramsOf(base.params, { role_id: RoleId })
  const path = `${base.path}/:role_id/actions`
  const config = { action: 'manage_role' }
  app.post(
    path,
    {
      config,
      schema: {
        tags,
        summary: 'Add actions to a role',
        params,
        body: ActionsBody,
        response: responses({ 200: ActionsObject }, ...WRITING),
      },
    },
    async (request) => {
      const { actions } = request.body
      await roles.addActions(request.principal, targetOf(base, paramsIn(request)), roleIdIn(request), actions)
      return { actions }
    },
  )
  app.get(
    path,
    {
      config,
      schema: {
        tags,
        summary: 'List the actions of a role',
        params,
        response: responses({ 200: base.isPrefixed ? ActionsObject : ActionList }, ...REFUSALS),
      },
    },
    async (request) => {
      const target = targetOf(base, paramsIn(request))
      const actions = [...(await roles.listActions(request.principal, target, roleIdIn(request)))]
      return (base.isPrefixed ? { actions } : actions) as never
    },
  )
  app.post(
    `${path}/delete`,
    {
      config,
      schema: {
        tags,
        summary: 'Take actions from a role',
        params,
        body: ActionsBody,
        response: responses({ 204: NoBody }, ...WRITING),
      },
    },
    async (request, reply) => {
      const target = targetOf(base, paramsIn(request))
      await roles.removeActions(request.principal, target, roleIdIn(request), request.body.actions)
      void reply.code(204)
    },
  )
  app.post(
    `${path}/delete-all`,
    {
      config,
      schema: {
        tags,
        summary: 'Take all actions from a role',
        params,
        response: responses({ 204: NoBody }, ...REFUSALS),
      },
    },
    async (request, reply) => {
      await roles.removeActions(request.principal, targetOf(base, paramsIn(request)), roleIdIn(request), 'all')
      void reply.code(204)
    },
  )
}

function addMemberRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = paramsOf(base.params, { role_id: RoleId })
  const path = `${base.path}/:role_id/members`
  app.post(
    path,
    {
      config: { action: 'add_role_users' },
      schema: {
        tags,
        summary: 'Give a role to users',
        description:
          base.type === 'domain'
            ? 'They become members of the domain. A caller gives only actions that he holds himself.'
            : 'They must be members of the domain. A caller gives only actions that he holds himself.',
        params,
        body: MembersBody,
        response: responses({ 200: MembersObject }, ...WRITING),
      },
    },
    async (request) => {
      const { members } = request.body
      await roles.addMembers(request.principal, targetOf(base, paramsIn(request)), roleIdIn(request), members)
      return { members }
    },
  )
  app.get(
    path,
    {
      config: { action: 'view_role_users' },
      schema: {
        tags,
        summary: 'List the members of a role',
        params,
        querystring: PlainPageQuery,
        response: responses({ 200: base.isPrefixed ? MemberPage : Type.Union([MemberList, MemberPage]) }, ...REFUSALS),
      },
    },
    async (request) => {
      const paging = pagingOf(base, request.query)
      const target = targetOf(base, paramsIn(request))
      const { items, ...page } = await roles.listMembers(request.principal, target, roleIdIn(request), paging)
      return paging === undefined ? items : { ...page, members: items }
    },
  )
  app.post(
    `${path}/delete`,
    {
      config: { action: 'remove_role_users' },
      schema: {
        tags,
        summary: 'Take a role from users',
        params,
        querystring: ForceQuery,
        body: MembersBody,
        response: responses(base.isPrefixed ? { 204: NoBody } : { 200: MessageBody }, ...WRITING),
      },
    },
    async (request, reply) => {
      const target = targetOf(base, paramsIn(request))
      const force = request.query.force === true
      await roles.removeMembers(request.principal, target, roleIdIn(request), request.body.members, { force })
      // Decision 8.
      if (!base.isPrefixed) return { message: 'members removed' } as never
      void reply.code(204)
      return undefined as never
    },
  )
  app.post(
    `${path}/delete-all`,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: 'Take a role from all of its members; never the built-in one',
        params,
        querystring: ForceQuery,
        response: responses({ 204: NoBody }, ...REFUSALS, 'invalid_state'),
      },
    },
    async (request, reply) => {
      const target = targetOf(base, paramsIn(request))
      const force = request.query.force === true
      await roles.removeMembers(request.principal, target, roleIdIn(request), 'all', { force })
      void reply.code(204)
    },
  )
}
