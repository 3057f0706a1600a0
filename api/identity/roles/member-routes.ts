/** Routes of the members of one role and of all roles of an entity. */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { MessageBody } from '../wire/index.ts'
import type { MembershipsService } from './memberships.ts'
import { ROLE_ERRORS, ROLE_WRITE_ERRORS, pagingOf, paramsIn, roleIdIn, roleTargetOf } from './paths.ts'
import type { RoleBase } from './paths.ts'
import {
  EntityMemberPage,
  EntityMemberQuery,
  ForceQuery,
  MemberIdsBody,
  MemberList,
  MemberPage,
  MembersBody,
  MembersObject,
  OptionalPageQuery,
  RoleId,
  membersIn,
  pathParams,
  presentEntityMember,
} from './schema.ts'

const tags = ['roles']

/** Adds the routes of the members of all roles of an entity. */
export function addEntityMemberRoutes(app: HttpApp, memberships: MembershipsService, base: RoleBase): void {
  const params = pathParams(base.params)
  app.get(
    `${base.path}/members`,
    {
      config: { action: 'view_role_users' },
      schema: {
        tags,
        summary: `List the users with access to a ${base.type}, including inherited access`,
        params,
        querystring: EntityMemberQuery,
        response: responses({ 200: EntityMemberPage }, ...ROLE_ERRORS),
      },
    },
    async (request) => {
      const target = roleTargetOf(base, paramsIn(request))
      const { items, ...page } = await memberships.listEntityMembers(request.principal, target, request.query)
      return { ...page, members: items.map(presentEntityMember) }
    },
  )
  app.delete(
    `${base.path}/members`,
    {
      config: { action: 'remove_role_users' },
      schema: {
        tags,
        summary: `Remove users from all roles on a ${base.type}`,
        description:
          base.type === 'domain'
            ? 'The users are no longer members of the domain and also lose their roles on all entities in it.'
            : 'Inherited access is unchanged.',
        params,
        querystring: ForceQuery,
        body: MemberIdsBody,
        response: responses({ 204: NoBody }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request, reply) => {
      const target = roleTargetOf(base, paramsIn(request))
      const force = request.query.force === true
      await memberships.removeEntityMembers(request.principal, target, request.body.member_ids, { force })
      void reply.code(204)
    },
  )
}

/** Adds the routes of the members of one role. */
export function addMemberRoutes(app: HttpApp, memberships: MembershipsService, base: RoleBase): void {
  const params = pathParams(base.params, { role_id: RoleId })
  const path = `${base.path}/:role_id/members`
  app.post(
    path,
    {
      config: { action: 'add_role_users' },
      schema: {
        tags,
        summary: 'Add members to a role',
        description:
          base.type === 'domain'
            ? 'The users become members of the domain. Callers can only grant actions that they have themselves.'
            : 'The users must be members of the domain. Callers can only grant actions that they have themselves.',
        params,
        body: MembersBody,
        response: responses({ 200: MembersObject }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request) => {
      const members = membersIn(request.body)
      await memberships.addMembers(request.principal, roleTargetOf(base, paramsIn(request)), roleIdIn(request), members)
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
        querystring: OptionalPageQuery,
        response: responses(
          { 200: base.isPrefixed ? MemberPage : Type.Union([MemberList, MemberPage]) },
          ...ROLE_ERRORS,
        ),
      },
    },
    async (request) => {
      const paging = pagingOf(base, request.query)
      const target = roleTargetOf(base, paramsIn(request))
      const { items, ...page } = await memberships.listMembers(request.principal, target, roleIdIn(request), paging)
      return paging === undefined ? items : { ...page, members: items }
    },
  )
  app.post(
    `${path}/delete`,
    {
      config: { action: 'remove_role_users' },
      schema: {
        tags,
        summary: 'Remove members from a role',
        params,
        querystring: ForceQuery,
        body: MembersBody,
        response: responses(base.isPrefixed ? { 204: NoBody } : { 200: MessageBody }, ...ROLE_WRITE_ERRORS),
      },
    },
    async (request, reply) => {
      const target = roleTargetOf(base, paramsIn(request))
      const force = request.query.force === true
      await memberships.removeMembers(request.principal, target, roleIdIn(request), membersIn(request.body), { force })
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
        summary: 'Remove all members from a role; not available for the built-in role',
        params,
        querystring: ForceQuery,
        response: responses({ 204: NoBody }, ...ROLE_ERRORS, 'invalid_state'),
      },
    },
    async (request, reply) => {
      const target = roleTargetOf(base, paramsIn(request))
      const force = request.query.force === true
      await memberships.removeMembers(request.principal, target, roleIdIn(request), 'all', { force })
      void reply.code(204)
    },
  )
}
