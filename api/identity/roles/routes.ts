/** Role routes: every endpoint of contract 2.2 below every path of `paths.ts`. */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { addEntityMemberRoutes, addMemberRoutes } from './member-routes.ts'
import {
  AVAILABLE_ACTIONS_PATHS,
  ROLE_ERRORS,
  ROLE_BASES,
  ROLE_WRITE_ERRORS,
  locationTemplate,
  locationOf,
  pagingOf,
  paramsIn,
  roleIdIn,
  roleTargetOf,
} from './paths.ts'
import type { RoleBase } from './paths.ts'
import {
  ActionList,
  ActionsBody,
  ActionsObject,
  AvailableActions,
  NewRole,
  OptionalPageQuery,
  Role,
  RoleId,
  RoleList,
  RolePage,
  RoleUpdate,
  actionsIn,
  namedActions,
  pathParams,
  presentRole,
  requireGiven,
} from './schema.ts'
import type { MembershipsService } from './memberships.ts'
import type { RolesService } from './service.ts'

const tags = ['roles']

export function roleRoutes(roles: RolesService, memberships: MembershipsService): RoutePlugin {
  return (app) => {
    for (const { type, path, params } of AVAILABLE_ACTIONS_PATHS) {
      app.get(
        path,
        {
          config: { action: 'user.self' },
          schema: {
            tags,
            summary: `List the available actions on a ${type}`,
            params: pathParams(params),
            response: responses({ 200: AvailableActions }),
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
      addEntityMemberRoutes(app, memberships, base)
      addRoleRoutes(app, roles, base)
      addActionRoutes(app, roles, base)
      addMemberRoutes(app, memberships, base)
    }
  }
}

/** Adds the routes of all roles of an entity. */
function addEntityRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = pathParams(base.params)
  app.post(
    base.path,
    {
      config: { action: 'manage_role', location: locationTemplate(base) },
      schema: {
        tags,
        summary: `Create a role on a ${base.type}`,
        description:
          'With members it also requires `add_role_users`. Callers can only grant actions that they have themselves.',
        params,
        body: NewRole,
        response: responses({ 201: Role }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request, reply) => {
      const { body } = request
      const created = await roles.create(request.principal, roleTargetOf(base, paramsIn(request)), {
        name: requireGiven(body.role_name ?? body.name, '/role_name'),
        actions: namedActions(body) ?? [],
        members: body.optional_members ?? body.members ?? [],
      })
      void reply.code(201).header('Location', locationOf(base, paramsIn(request), created.role.id))
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
        querystring: OptionalPageQuery,
        response: responses({ 200: base.isPrefixed ? RolePage : Type.Union([RoleList, RolePage]) }, ...ROLE_ERRORS),
      },
    },
    async (request) => {
      const paging = pagingOf(base, request.query)
      const { items, ...page } = await roles.list(request.principal, roleTargetOf(base, paramsIn(request)), paging)
      const shown = items.map(presentRole)
      return paging === undefined ? shown : { ...page, roles: shown }
    },
  )
}

/** Adds the routes of one role. */
function addRoleRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = pathParams(base.params, { role_id: RoleId })
  const path = `${base.path}/:role_id`
  app.get(
    path,
    {
      config: { action: 'manage_role' },
      schema: {
        tags,
        summary: 'View a role with its actions and members',
        params,
        response: responses({ 200: Role }, ...ROLE_ERRORS),
      },
    },
    async (request) =>
      presentRole(await roles.get(request.principal, roleTargetOf(base, paramsIn(request)), roleIdIn(request))),
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
        response: responses({ 200: Role }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request) => {
      const { body } = request
      const name = body.role_name ?? body.name
      const actions = namedActions(body)
      if (name === undefined && actions === undefined) requireGiven(undefined, '/role_name')
      const target = roleTargetOf(base, paramsIn(request))
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
        summary: 'Delete a role; its members lose its actions',
        params,
        response: responses({ 204: NoBody }, ...ROLE_ERRORS),
      },
    },
    async (request, reply) => {
      await roles.remove(request.principal, roleTargetOf(base, paramsIn(request)), roleIdIn(request))
      void reply.code(204)
    },
  )
}

function addActionRoutes(app: HttpApp, roles: RolesService, base: RoleBase): void {
  const params = pathParams(base.params, { role_id: RoleId })
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
        response: responses({ 200: ActionsObject }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request) => {
      const actions = actionsIn(request.body)
      await roles.addActions(request.principal, roleTargetOf(base, paramsIn(request)), roleIdIn(request), actions)
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
        response: responses({ 200: base.isPrefixed ? ActionsObject : ActionList }, ...ROLE_ERRORS),
      },
    },
    async (request) => {
      const target = roleTargetOf(base, paramsIn(request))
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
        summary: 'Remove actions from a role',
        params,
        body: ActionsBody,
        response: responses({ 204: NoBody }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request, reply) => {
      const target = roleTargetOf(base, paramsIn(request))
      await roles.removeActions(request.principal, target, roleIdIn(request), actionsIn(request.body))
      void reply.code(204)
    },
  )
  app.post(
    `${path}/delete-all`,
    {
      config,
      schema: {
        tags,
        summary: 'Remove all actions from a role',
        params,
        response: responses({ 204: NoBody }, ...ROLE_ERRORS),
      },
    },
    async (request, reply) => {
      await roles.removeActions(request.principal, roleTargetOf(base, paramsIn(request)), roleIdIn(request), 'all')
      void reply.code(204)
    },
  )
}
