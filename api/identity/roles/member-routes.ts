/** Routes of members: of one role, and of all roles of an entity. */
import { Type } from 'typebox'
import { NoBody, responses } from '#core/http/index.ts'
import type { HttpApp } from '#core/http/index.ts'
import { MessageBody } from '../wire/index.ts'
import type { MembershipsService } from './memberships.ts'
import { REFUSALS, WRITING, pagingOf, paramsIn, roleIdIn, targetOf } from './paths.ts'
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
  PlainPageQuery,
  RoleId,
  membersIn,
  paramsOf,
  presentEntityMember,
} from './schema.ts'

const tags = ['roles']

/** Of all roles of an entity. */
export function addEntityMemberRoutes(app: HttpApp, memberships: MembershipsService, base: RoleBase): void {
  const params = paramsOf(base.params)
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
      await memberships.removeEntityMembers(request.principal, target, request.body.member_ids, { force })
      void reply.code(204)
    },
  )
}

/** Of one role. */
export function addMemberRoutes(app: HttpApp, memberships: MembershipsService, base: RoleBase): void {
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
      const members = membersIn(request.body)
      await memberships.addMembers(request.principal, targetOf(base, paramsIn(request)), roleIdIn(request), members)
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
        summary: 'Take a role from all of its members; never the built-in one',
        params,
        querystring: ForceQuery,
        response: responses({ 204: NoBody }, ...REFUSALS, 'invalid_state'),
      },
    },
    async (request, reply) => {
      const target = targetOf(base, paramsIn(request))
      const force = request.query.force === true
      await memberships.removeMembers(request.principal, target, roleIdIn(request), 'all', { force })
      void reply.code(204)
    },
  )
}
